"""Training and test errors with a penalty on squared weights (document 002, section 4, left open there)."""

import pandas as pd

from pipeline.data.datasets import PARTS
from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.fits import Inputs, fit_architecture, misclassified
from pipeline.systems.regression.settings import RidgeStudy


def run(inputs: Inputs, study: RidgeStudy) -> Outcome:
    """One row per penalty (`ridge` of `Problems`), starting with 0: errors of one architecture, and the share of test
    images on which exactly one of this fit and the fit without a penalty errs. The validation error chooses a penalty.
    """
    architecture = build_architecture(study.decision, study.size, inputs.classes)
    rows, wrong = [], []
    for penalty in sorted({0.0, *study.penalties}):
        W, found = fit_architecture(inputs, architecture, study.schedule, ridge=penalty)
        wrong.append(misclassified(architecture, W, inputs))
        disagreement = float((wrong[-1] != wrong[0]).double().mean())
        rows.append({"penalty": penalty, **{part: found[part] for part in PARTS}, "disagreement": disagreement})
    chosen = min(rows, key=lambda row: row["validation"])
    numbers = {
        "errors": {f"{row['penalty']:g}": {part: one(row[part]) for part in PARTS} for row in rows},
        "chosen": {name: one(error) for name, error in chosen.items()},
    }
    headline = ("chosen.penalty", "chosen.validation", "chosen.test")
    return Outcome("ridge", pd.DataFrame(rows), numbers, headline)
