"""Effect of a penalty on squared weights on training and test error (document 002, section 4, left open there)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.fits import Inputs, errors, fit_architecture
from pipeline.systems.regression.settings import RidgeStudy


def run(inputs: Inputs, study: RidgeStudy) -> Outcome:
    """Errors of one architecture with each penalty, and with none; one is chosen on the validation part."""
    architecture = build_architecture(study.decision, study.size, inputs.classes)
    rows: list[dict[str, Any]] = []
    for penalty in sorted({0.0, *study.penalties}):
        W = fit_architecture(inputs, architecture, study.schedule, ridge=penalty)[0]
        rows.append({"penalty": penalty, **errors(architecture, W, inputs)})
    chosen = min(rows, key=lambda row: row["validation"])
    parts = ("train", "validation", "test")
    numbers = {
        "errors": {f"{row['penalty']:g}": {part: one(row[part]) for part in parts} for row in rows},
        "chosen": {name: one(chosen[name]) for name in ("penalty", *parts)},
    }
    headline = ("chosen.penalty", "chosen.validation", "chosen.test")
    return Outcome("ridge", pd.DataFrame(rows), numbers, headline)
