"""Is the mixture a proper density, and do samples follow it (document 001, section 4.2)? The same for equation 7.

For any density q with the support of the mixture p, E_p[q(V) / p(V)] is one. If p integrated to c, the mean would be
1 / c; if samples followed another density, it would also differ from one. The densities q are the components, slightly
narrowed, so that q / p stays small and standard errors of the mean are reliable. Concentrations and sds differ between
components, so that a parent with the wrong ones would be detected.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pipeline.results.outcome import Outcome, one
from pipeline.systems.attention.model.top_down import Components, Cues, Parts, literal_mass
from pipeline.systems.attention.settings import DensityStudy

PEAK = 2.0
"""How much higher than its component the density is that it is tested with."""
APART = 2.0
"""The last component's concentration by the first's, and their sds likewise."""
LEAST = 0.01
"""Weight of the components that samples of poses are tested against: of others there are too few."""
WEIGHTS = ("literal", "printed")
"""What equation 7's weights are a softmax of where a pose is its own cue: log densities, and densities as printed."""


def run(study: DensityStudy, title: str) -> Outcome:
    """One row per dimension and concentration: how many standard errors the identity is missed by, at most over the
    components, and equation 7's integral where a pose is its own cue.
    """
    random = np.random.default_rng(study.seed)
    n = study.components
    rows, tests = [], 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(study.seed)
        for d in study.dimensions:
            U = torch.from_numpy(random.normal(size=(n, d)))
            factors = APART ** torch.linspace(-0.5, 0.5, n, dtype=torch.float64)
            equal = torch.full((n,), -math.log(n), dtype=torch.float64)
            for kappa in study.kappas:
                components = Components(U, kappa * factors, study.sigma * factors.flip(0), equal)
                cues = Cues(components).sample(torch.Size([study.samples]))
                poses = Parts(components, cues[0]).sample(torch.Size([study.samples]))
                for name, scores in (
                    ("poses", scores_of_poses(components, cues[0], poses)),
                    ("cues", scores_of_cues(components, cues)),
                ):
                    largest = max(scores, key=abs)
                    rows.append({"what": name, "dimensions": d, "kappa": kappa, "z": largest, "mass": math.nan})
                    tests += len(scores)
                for name, mass in zip(WEIGHTS, literal_mass(components, study.samples // 10), strict=True):
                    rows.append({"what": name, "dimensions": d, "kappa": kappa, "z": math.nan, "mass": float(mass)})
    table = pd.DataFrame(rows)
    numbers = {
        "largest_z": one(table["z"].abs().max()),
        "tests": tests,
        "components": n,
        **{f"{name}_mass": _range(table.loc[table["what"] == name, "mass"]) for name in WEIGHTS},
    }
    return Outcome("density", table, numbers, ("largest_z",))


def scores_of_poses(components: Components, cue: Tensor, poses: Tensor) -> list[float]:
    """By how many standard errors the identity is missed by poses `[samples, d]` given a cue `[d]`, for each component
    that is not too rare under it.
    """
    log_mixture = Parts(components, cue).log_prob(poses)
    narrow = components.sigma * PEAK ** (-1 / len(cue))
    log_inside = replace(components, sigma=narrow).log_poses(poses)  # (samples, n)
    frequent = components.log_weights(cue) > math.log(LEAST)
    return _scores((log_inside - log_mixture.unsqueeze(-1))[:, frequent])


def scores_of_cues(components: Components, cues: Tensor) -> list[float]:
    """The same for directions `[samples, d]` and every component."""
    close = components.kappa * PEAK ** (2 / (cues.shape[-1] - 1))
    log_around = replace(components, kappa=close).log_cues(cues)  # (samples, n)
    return _scores(log_around - Cues(components).log_prob(cues).unsqueeze(-1))


def _scores(log_ratios: Tensor) -> list[float]:
    """By how many standard errors the means of exp of `[samples, tests]` miss one."""
    ratios = log_ratios.exp()
    return [float(z) for z in (ratios.mean(0) - 1) / (ratios.std(0) / math.sqrt(len(ratios)))]


def _range(values: pd.Series) -> dict[str, dict[str, float]]:
    return {"least": one(values.min()), "most": one(values.max())}
