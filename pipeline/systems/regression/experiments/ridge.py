"""Training and test errors with a penalty on squared weights, which document 002 leaves open (section 4)."""

import pandas as pd

from pipeline.data.datasets import PARTS
from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.fits import Inputs, fit_architecture, misclassified
from pipeline.systems.regression.settings import RidgeStudy


def run(inputs: Inputs, study: RidgeStudy) -> Outcome:
    """Fit one architecture with each penalty (`ridge` of `Problems`), beginning with 0. Each has a row with its errors
    and the `disagreement`: the share of test images that either this fit or the fit without a penalty misclassifies,
    but not both. The penalty with the lowest validation error is chosen.
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
