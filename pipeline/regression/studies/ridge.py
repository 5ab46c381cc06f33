"""What a penalty on squared weights does to training and test error (document 002, section 4, left open there)."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pipeline.outcome import Outcome, one
from pipeline.params import RidgeStudy
from pipeline.regression.architectures import build_architecture
from pipeline.regression.fits import KeepAt, fit_architecture, no_checkpoints
from pipeline.regression.inputs import Inputs


def run(inputs: Inputs, study: RidgeStudy, keep_at: KeepAt = no_checkpoints) -> Outcome:
    """Errors of one architecture with each penalty, none among them; the validation part chooses."""
    architecture = build_architecture(study.decision, study.size, inputs.classes)
    penalties = sorted({0.0, *study.penalties})
    rows: list[dict[str, Any]] = [
        {
            "penalty": penalty,
            **fit_architecture(inputs, architecture, study.schedule, ridge=penalty, keep_at=keep_at).errors(inputs),
        }
        for penalty in penalties
    ]
    table = pd.DataFrame(rows)
    chosen = min(rows, key=lambda row: row["validation"])
    parts = ("train", "validation", "test")
    numbers = {
        "errors": {f"{row['penalty']:g}": {part: one(row[part]) for part in parts} for row in rows},
        "chosen": {"penalty": one(chosen["penalty"]), **{part: one(chosen[part]) for part in parts}},
    }
    return Outcome(table, numbers)
