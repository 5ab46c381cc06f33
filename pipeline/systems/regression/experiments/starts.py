"""Random starts with several sds of weights, compared with the subspace start (document 002, B.2, Figure 8)."""

import pandas as pd
import torch

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import Architecture, build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import Inputs, fit_without_validation
from pipeline.systems.regression.settings import StartsStudy


def run(inputs: Inputs, study: StartsStudy) -> Outcome:
    """Fit from every start. The table has a row per start, with the lowest training error of the fit. The column `seed`
    numbers the starts of each sd, which are drawn from one generator.
    """
    X, y = inputs.without_validation()
    single = build_architecture("multiclass", study.size, inputs.classes)
    several = Architecture("multiclass", single.capsules.expand(study.seeds, -1), study.size)
    random, reference = Problems(X, y, several), Problems(X, y, single)
    starts = [
        (f"{sd:g}", random, random.random_start(sd, torch.Generator().manual_seed(study.seed))) for sd in study.sds
    ]
    rows: list[tuple[str, int, float]] = []
    for start, problems, W in (*starts, ("subspace", reference, reference.subspace_start())):
        history = fit_without_validation(problems, W, study.momentum, study.threshold, study.iterations)
        lowest = history.groupby("problem")["error"].min()
        rows += [(start, study.seed + k, error) for k, error in enumerate(lowest)]
    table = pd.DataFrame(rows, columns=["start", "seed", "error"])
    *errors, best = table["error"]
    numbers = {"subspace": one(best), "best_random": one(min(errors))}
    return Outcome("starts", table, numbers, tuple(numbers))
