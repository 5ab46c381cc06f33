"""Defines the finding that answers a claim: our number, errors during training, and remarks on settings that differ."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

from pipeline.results.measured import Measured
from pipeline.results.provenance import Record
from pipeline.results.reading import Numbers, Results, training_behind

_PART = 8
"""Errors at the end of training are means over the last 1 / `_PART` of the epochs."""
_NEAR = 0.02
"""An accuracy counts as guessing if it is at most 1 / (number of classes) plus this number."""
Kind = Literal["budget", "data", "setting", "noise"]
"""The subject of a remark: length of training or number of training images, other data or a missing data set, another
setting, or numbers of seeds and test images. Budget and data can make a claim "not tested" (`page/scorecard.py`).
"""


class Remark(str):
    """How a setting differs from the document's, in words."""

    kind: Kind

    def __new__(cls, words: str, kind: Kind = "setting") -> "Remark":
        remark = super().__new__(cls, words)
        remark.kind = kind
        return remark


@dataclass(frozen=True)
class Learned:
    """Errors of a classifier during its training, in percent, as means over seeds. They show if training was too short.

    Attributes:
        training_error: error on augmented training images in the last epoch. In an ablation, it is the error in the
            epoch whose weights are kept. None if unknown, as with mixup, which gives images two classes.
        measured: the images for `before` and `last`: "test" (some of the test images) or "validation".
        before, last: mean errors on these images in the next-to-last eighth of the epochs, and in the last eighth.
        images: number of these images; 0 if this number or the two errors are unknown.
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
        holds: whether the statement holds; None for a claim with a number, because the scorecard judges numbers.
        records: provenance of every item that the measurement uses.
        remarks: differences from the paper's settings and data; empty if there are none.
        undecided: why noise leaves the claim's statement undecided, in words; "" if it does not.
        notes: other observations that a reader of the verdict should know.
        others: numbers measured in other ways; the keys name these. The scorecard's notes give each with a verdict.
        learned: errors during training; None if unknown, or if the claim is not about the network's error.
    """

    ours: Measured | None
    records: list[Record]
    holds: bool | None = None
    remarks: list[Remark] = field(default_factory=list)
    undecided: str = ""
    notes: list[str] = field(default_factory=list)
    others: dict[str, Measured] = field(default_factory=dict)
    learned: Learned | None = None


Measure = Callable[[Results], Finding]
"""A function that measures one claim. It raises `NotMeasuredError` if a result is missing."""


def learned(results: Results, numbers: Numbers, run: str) -> Learned | None:
    """Errors in training the classifier `run` (see `training_behind`). None if the result or table is missing."""
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
    else:  # with a `holdout`, settings do not say how many images are for validation
        measured, images = "validation", 0 if settings.get("holdout") else dataset.validation
    parts = [len(each) // _PART for each in accuracies]
    if not images or not all(parts):
        return Learned(training)
    values = list(zip((each[f"{measured}_accuracy"] for each in accuracies), parts, strict=True))
    before, last = _error([of[-2 * part : -part] for of, part in values]), _error([of[-part:] for of, part in values])
    return Learned(training, measured, before, last, images)


def _error(accuracies: list["pd.Series[float]"]) -> float:
    """Mean error in percent, over epochs, then over seeds. `accuracies` has a series (0 to 1) for each seed."""
    return 100 * (1 - sum(float(each.mean()) for each in accuracies) / len(accuracies))


def stalled(history: pd.DataFrame, run: Any) -> str:
    """Signs that a run no longer learns, in words; empty if there are none.

    There are three signs. After the last of two or more epochs, the validation accuracy is no better than guessing.
    The gradient norm is 0 in the last epoch. The gradient norm is above `training.gradient_clip` in every epoch.

    Args:
        history: columns replica, epoch, train_gradient_norm and, for classifiers, validation_accuracy.
        run: settings of the run, either current or recorded.
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
        signs["the validation accuracy is no better than guessing at the end"] = guessing & (last["epoch"] > 1)
    return "; ".join(
        words if shown.all() else f"{words} ({shown.sum()} of {len(last)} seeds)"
        for words, shown in signs.items()
        if shown.any()
    )
