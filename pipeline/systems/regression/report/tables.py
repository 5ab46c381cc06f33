"""Tables of capsule regression (document 002), one for each study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from pipeline.drawing.table import Table, tracked
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.regression.report.figures import PARTS
from pipeline.systems.regression.report.studies import executed

_ERRORS = {part: f"{label} error (%)" for part, (label, *_) in PARTS.items()}
_CALIBRATION = {
    "test_log_loss": "test log loss (nats)",
    "ece": "calibration error (%)",
    "ece_by_chance": "by chance (%)",
}
_PERCENT = {*_ERRORS, "error", "ece", "ece_by_chance"}
_COLUMNS: dict[str, tuple[str, str, Sequence[str]]] = {
    "grid": (
        "Errors of capsule regression by size and architecture",
        "Errors of capsule regression, and of other classifiers on the same inputs, after the schedule of section 3.1 "
        "(Figure 5). Log loss and expected calibration error are those of the probabilities on test images; by chance: "
        "the calibration error to expect if the probabilities were right. Iterations: the largest number of any of the "
        "model's problems. Seconds: for the whole fit, or for all regularisation strengths tried.",
        ("model", "size", *_ERRORS, *_CALIBRATION, "iterations", "parameters", "seconds"),
    ),
    "ridge": (
        "Capsule regression with a penalty",
        "Errors with a penalty on squared weights. Unit of the penalty: mean square of a feature times the number of "
        "examples.",
        ("penalty", *_ERRORS),
    ),
    "sizes": (
        "Capsules of different sizes by class",
        "Errors at the same number of parameters: capsules of equal size, and sizes in (inverse) proportion to that "
        "model's validation errors by class.",
        ("plan", "sizes", *_ERRORS),
    ),
    "distorted": (
        "Training on distorted copies",
        "Errors after training on the original images, and on these with distorted copies. Training errors are on all "
        "images that the model was trained on, copies included. The strength is chosen on validation images.",
        ("data", "strength", "examples", *_ERRORS, "iterations", "seconds"),
    ),
}
"""By kind of study: the table's title, its caption, and its columns in order."""

_LAST: dict[str, Sequence[str]] = {
    "convergence": ("variant", "iteration", "log_loss", "error"),
    "online": ("method", "passes", "log_loss", "train", "validation", "test"),
}
"""By kind of study of which only the last rows of each value of the first column are shown: columns in order."""


def _cell(column: str, value: Any) -> str:
    if pd.isna(value) or (column == "size" and not value):
        return ""
    if column in _PERCENT:
        return f"{100 * value:.2f}"
    if column in ("log_loss", "test_log_loss"):
        return f"{value:.4f}"
    if column == "seconds":
        return f"{value:.1f}"
    return f"{value:,.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def build(results: Results) -> list[Table]:
    """A table for each study that was executed, sorted by kind."""
    tables = []
    for study in executed(results):
        data, records = study.table(()), study.numbers.records
        if data is None or study.kind not in {*_COLUMNS, *_LAST}:
            continue
        if study.kind in _LAST:
            key, *_ = columns = _LAST[study.kind]
            title, caption = f"Capsule regression by {key}", f"The last values of each {key}."
            data = data.groupby(key, sort=False).tail(1).reset_index(drop=True)
        else:
            title, caption, columns = _COLUMNS[study.kind]
        label = dataset_label(records)
        tidy = data[list(columns)].assign(dataset=label, tracking_run=tracked(records))
        words = _ERRORS | _CALIBRATION
        shown = pd.DataFrame(
            [[_cell(column, row[column]) for column in columns] for row in data.to_dict("records")],
            columns=[words.get(column, column.replace("_", " ")) for column in columns],
        )
        tables.append(Table(study.name, f"{title}, {study.name}", f"{caption} On {label}.", tidy, shown, records))
    return tables
