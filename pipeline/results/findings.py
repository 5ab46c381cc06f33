"""The finding about one claim: how far its setting is from the paper's, and how far the training behind it came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from pipeline.results.measured import Measured
from pipeline.results.provenance import Record
from pipeline.results.reading import Numbers, Results, training_behind

NOT_THE_PAPERS_DATA = "not the paper's data"
"""The mark of a finding on another data set than the paper's, wherever it is shown."""
_PART = 8
"""Errors at the end of a training are means over this part of its epochs, which are few enough to be alike."""
_NEAR = 0.02
"""By how much an accuracy of guessing may exceed one over the number of classes."""
Kind = Literal["budget", "data", "setting", "noise"]
"""What differs from a document: how long was trained, on which images, how, or on how many the number was measured."""


class Remark(str):
    """In what a setting differs from the document's, in words.

    Attributes:
        untested: whether a number that is worse does not test its claim, because of this.
    """

    kind: Kind
    untested: bool

    def __new__(cls, words: str, kind: Kind = "setting", *, untested: bool = False) -> Remark:
        remark = super().__new__(cls, words)
        remark.kind, remark.untested = kind, untested
        return remark


@dataclass(frozen=True)
class Learned:
    """How far the training of a classifier came, from its history: errors in percent, means over seeds.

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


@dataclass(frozen=True)
class Finding:
    """The measurement that answers a claim.

    Attributes:
        ours: our number, in the claim's unit.
        holds: whether the statement holds; None for a claim with a number, which the verdict rules judge.
        records: provenance of every item that it uses.
        remarks: how the setting differs from the paper's; empty if it does not.
        notes: other observations that a reader of the verdict should know.
        others: our numbers by another protocol, by its name. The scorecard adds them to the notes with their verdicts.
        learned: how far the training came of the network whose error answers the claim; None where nothing is known of
            it, or no error does.
    """

    ours: Measured | None
    records: list[Record]
    holds: bool | None = None
    remarks: list[Remark] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    others: dict[str, Measured] = field(default_factory=dict)
    learned: Learned | None = None


Measure = Callable[[Results], Finding | None]
"""Checks one claim on the results of a profile; None, or `NotMeasuredError`, if results that it needs are missing."""


def learned(results: Results, numbers: Numbers, run: str) -> Learned | None:
    """How far the training of a run came, a classifier, that a result rests on; None where its history is not here."""
    trained = training_behind(results, numbers, run)
    columns = ("replica", "epoch", "train_accuracy", "validation_accuracy")
    table = results.table("train", run, columns) if trained else None
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


def stalled(history: pd.DataFrame, run: Any) -> str:
    """What shows that a training no longer learns, in words; empty if nothing does.

    A classifier that is no better on images of validation than guessing, at the end, after two epochs or more; a
    gradient of 0 at the end; or gradients that were longer than `training.gradient_clip` in every epoch.

    Args:
        history: columns replica, epoch, train_gradient_norm and, of classifiers, validation_accuracy.
        run: its settings, as they are or as a result recorded them.
    """
    last, clip = history.groupby("replica").tail(1), run.training.gradient_clip
    signs = {
        "the gradient is 0 at the end": last["train_gradient_norm"] == 0,
        f"the gradient norm is above training.gradient_clip, {clip:g}, in every epoch": (
            history.groupby("replica")["train_gradient_norm"].min() > clip
        ),
    }
    if "validation_accuracy" in history:
        guessing = last["validation_accuracy"] <= 1 / run.model.classes + _NEAR
        signs["the accuracy of validation is no better than guessing at the end"] = guessing & (last["epoch"] > 1)
    return "; ".join(
        words if shown.all() else f"{words} ({shown.sum()} of {len(last)} seeds)"
        for words, shown in signs.items()
        if shown.any()
    )
