"""Effect of a penalty on squared weights on training and test error (document 002, section 4, left open there)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.fits import KeepAt, fit_architecture
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.settings import RidgeStudy


def run(inputs: Inputs, study: RidgeStudy, keep_at: KeepAt | None = None) -> Outcome:
    """Errors of one architecture with each penalty, and with none; one is chosen on the validation part."""
    architecture = build_architecture(study.decision, study.size, inputs.classes)
    penalties = sorted({0.0, *study.penalties})
    rows: list[dict[str, Any]] = []
    for penalty in penalties:
        fitted = fit_architecture(inputs, architecture, study.schedule, keep_at, ridge=penalty)
        rows.append({"penalty": penalty, **fitted.errors(inputs)})
    table = pd.DataFrame(rows)
    chosen = min(rows, key=lambda row: row["validation"])
    parts = ("train", "validation", "test")
    numbers = {
        "errors": {f"{row['penalty']:g}": {part: one(row[part]) for part in parts} for row in rows},
        "chosen": {"penalty": one(chosen["penalty"]), **{part: one(chosen[part]) for part in parts}},
    }
    return Outcome("ridge", table, numbers, ("chosen.penalty", "chosen.validation", "chosen.test"))
