"""Tables of capsule regression (document 002), one for each study."""

from __future__ import annotations

from pipeline.drawing.table import Columns, Table, study_table
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.regression.report.figures import PARTS
from pipeline.systems.regression.report.studies import executed

_ERRORS: Columns = {part: (f"{label} error (%)", ".2%") for part, label in PARTS.items()}
_SHOWN: dict[str, tuple[str, str, Columns]] = {
    "grid": (
        "Errors of capsule regression by size and architecture",
        "Errors of capsule regression, and of other classifiers on the same inputs, after the schedule of section 3.1 "
        "(Figure 5). Log loss and expected calibration error are those of the probabilities on test images; by chance: "
        "the calibration error to expect if the probabilities were right. Iterations: the largest number of any of the "
        "model's problems. Seconds: for the whole fit, or for all regularisation strengths tried.",
        {
            "model": ("model", ""),
            "size": ("size", ""),
            **_ERRORS,
            "test_log_loss": ("test log loss (nats)", ".4f"),
            "ece": ("calibration error (%)", ".2%"),
            "ece_by_chance": ("by chance (%)", ".2%"),
            "iterations": ("iterations", ",.0f"),
            "parameters": ("parameters", ",.0f"),
            "seconds": ("seconds", ".1f"),
        },
    ),
    "convergence": (
        "Capsule regression by variant",
        "The last values of each variant.",
        {
            "variant": ("variant", ""),
            "iteration": ("iteration", ""),
            "log_loss": ("log loss", ".4f"),
            "error": ("error", ".2%"),
        },
    ),
    "online": (
        "Capsule regression by method",
        "The last values of each method.",
        {"method": ("method", ""), "passes": ("passes", ""), "log_loss": ("log loss", ".4f"), **_ERRORS},
    ),
    "ridge": (
        "Capsule regression with a penalty",
        "Errors with a penalty on squared weights. Unit of the penalty: mean square of a feature times the number of "
        "examples.",
        {"penalty": ("penalty", "g"), **_ERRORS},
    ),
    "distorted": (
        "Training on distorted copies",
        "Errors after training on the original images, and on these with distorted copies. Training errors are on all "
        "images that the model was trained on, copies included. The strength is chosen on validation images.",
        {
            "data": ("data", ""),
            "strength": ("strength", "g"),
            "examples": ("examples", ""),
            **_ERRORS,
            "iterations": ("iterations", ""),
            "seconds": ("seconds", ".1f"),
        },
    ),
}
"""By kind of study: the table's title, its caption, and its columns in order."""


def build(results: Results) -> list[Table]:
    """A table for each study that was executed, sorted by kind."""
    tables = []
    for study in executed(results):
        data, records = study.table(()), study.numbers.records
        if data is None or study.kind not in _SHOWN:
            continue
        title, caption, columns = _SHOWN[study.kind]
        if study.kind in ("convergence", "online"):
            data = data.groupby(next(iter(columns)), sort=False).tail(1).reset_index(drop=True)
        told = f"{caption} On {dataset_label(records)}."
        table = study_table(study.name, f"{title}, {study.name}", told, data, columns, records)
        if study.kind == "grid":
            table.shown["size"] = table.shown["size"].replace("0", "")  # of other classifiers
        tables.append(table)
    return tables
