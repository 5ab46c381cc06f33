"""Random starts with several sds compared with the subspace start (document 002, appendix B.2, Figure 8)."""

from __future__ import annotations

import pandas as pd
import torch

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import Architecture, build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import KeepAt, everything, nothing
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.model.schedule import Round, fit
from pipeline.systems.regression.settings import StartsStudy

SUBSPACE = "subspace"


def run(inputs: Inputs, study: StartsStudy, keep_at: KeepAt | None = None) -> Outcome:
    """The lowest training error over the iterations, for every start; all starts of one sd are fit together."""
    X, y = everything(inputs)
    single = build_architecture("multiclass", study.size, inputs.classes)
    several = Architecture(
        "multiclass", single.capsules.expand(study.seeds, -1), single.sizes.expand(study.seeds, -1).contiguous()
    )
    rounds = [Round(study.threshold, study.iterations + 1)]
    rows = []
    problems = Problems(X, y, several)
    for sd in study.sds:
        generator = torch.Generator().manual_seed(study.seed)
        W = problems.random_start(sd, generator)
        rows += [
            {"start": f"{sd:g}", "seed": study.seed + k, "error": error}
            for k, error in enumerate(_lowest(problems, W, rounds, study))
        ]
    reference = Problems(X, y, single)
    (best,) = _lowest(reference, reference.subspace_start(), rounds, study)
    rows.append({"start": SUBSPACE, "seed": study.seed, "error": best})
    table = pd.DataFrame(rows)
    random = table[table["start"] != SUBSPACE]
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
    return Outcome("starts", table, numbers, ("subspace", "best_random"))


def _lowest(problems: Problems, W: torch.Tensor, rounds: list[Round], study: StartsStudy) -> list[float]:
    _, history = fit(
        problems, W, nothing(problems), momentum=study.momentum, rounds=rounds, most_iterations=study.iterations
    )
    return [float(error) for error in history.groupby("problem")["error"].min()]
