"""How far the training of a classifier came, from its history: errors in percent, means over seeds."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from pipeline.results.reading import Numbers, Results, training_behind

HISTORY = ("replica", "epoch", "train_accuracy", "validation_accuracy")
_PART = 8
"""Errors at the end of a training are means over this part of its epochs, which are few enough to be alike."""


@dataclass(frozen=True)
class Learned:
    """How far a training came.

    Attributes:
        training_error: percent of the training images, augmented as they were, in the last epoch; None where it is not
            known, as where images are mixed and have two classes each.
        measured: what was measured after every epoch, "test" (watched test images) or "validation".
        before, last: percent of these images that are misclassified, means over the last eighth of the epochs and over
            the eighth before it.
        images: how many were measured; 0 where that or the errors are not known.
    """

    training_error: float | None
    measured: str = "validation"
    before: float = 0.0
    last: float = 0.0
    images: int = 0


def learned(results: Results, numbers: Numbers, run: str) -> Learned | None:
    """How far the training of a run came, a classifier, that a result rests on; None where its history is not here."""
    trained = training_behind(results, numbers, run)
    table = results.table("train", run, HISTORY) if trained else None
    if trained is None or table is None:
        return None
    settings, dataset = trained.run(run), trained.dataset_of(run)
    accuracies = [of_seed.sort_values("epoch") for _, of_seed in table.groupby("replica")]
    training = None if settings.model.get("mixup") else _error([each["train_accuracy"][-1:] for each in accuracies])
    if "test_accuracy" in table:
        measured, images = "test", min(settings.watched, dataset.test)
    else:  # of images held out by what they show, the settings do not tell how many there are
        measured, images = "validation", 0 if settings.get("holdout") else dataset.validation
    parts = [len(each) // _PART for each in accuracies]
    if not images or not all(parts):
        return Learned(training)
    values = list(zip((each[f"{measured}_accuracy"] for each in accuracies), parts, strict=True))
    before, last = _error([of[-2 * part : -part] for of, part in values]), _error([of[-part:] for of, part in values])
    return Learned(training, measured, before, last, images)


def _error(accuracies: list[pd.Series[float]]) -> float:
    """Percent: the mean over the epochs of each seed, then over seeds."""
    return 100 * (1 - sum(float(each.mean()) for each in accuracies) / len(accuracies))
