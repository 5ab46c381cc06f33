"""Random starts with several sds compared with the subspace start (document 002, appendix B.2, Figure 8)."""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import Architecture, build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import Inputs, fit_without_validation
from pipeline.systems.regression.settings import StartsStudy


def run(inputs: Inputs, study: StartsStudy) -> Outcome:
    """The lowest training error over the iterations, for every start; all starts of one sd are fit together."""
    X, y = inputs.without_validation()
    single = build_architecture("multiclass", study.size, inputs.classes)
    several = Architecture("multiclass", single.capsules.expand(study.seeds, -1), study.size)

    def lowest(problems: Problems, W: Tensor) -> list[float]:
        history = fit_without_validation(problems, W, study.momentum, study.threshold, study.iterations)
        return [float(error) for error in history.groupby("problem")["error"].min()]

    rows = []
    problems = Problems(X, y, several)
    for sd in study.sds:
        W = problems.random_start(sd, torch.Generator().manual_seed(study.seed))
        rows += [(f"{sd:g}", study.seed + k, error) for k, error in enumerate(lowest(problems, W))]
    random = pd.DataFrame(rows, columns=["start", "seed", "error"])
    reference = Problems(X, y, single)
    (best,) = lowest(reference, reference.subspace_start())
    rows.append(("subspace", study.seed, best))
    numbers = {
        "subspace": one(best),
        "random": {
            str(start): {
                "mean": float(errors.mean()),
                "sd": float(errors.std()) if len(errors) > 1 else 0.0,
                "n": len(errors),
            }
            for start, errors in random.groupby("start")["error"]
        },
        "best_random": one(random["error"].min()),
    }
    return Outcome("starts", pd.DataFrame(rows, columns=random.columns), numbers, ("subspace", "best_random"))
