"""Is the mixture a density that its own samples follow (document 001, section 4.2)? Is equation 7, as it is written?

For any density q that lies within the mixture p, E_p[q(V) / p(V)] is one. Where p integrated to c the mean would be
1 / c; where samples followed something else, it would be off as well. The densities q here are a component drawn
together so little that q / p stays small, which is what makes standard errors of the mean believable.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pipeline.attention import von_mises_fisher
from pipeline.attention.top_down import Components, Cues, Parts, literal_mass
from pipeline.outcome import Outcome, one
from pipeline.params import DensityStudy

PEAK = 2.0
"""How much higher than its component the density is that it is tested with."""


def run(study: DensityStudy) -> Outcome:
    """One row per dimension and concentration: how many standard errors the identity is missed by, and equation 7's
    integral where a pose is its own cue.
    """
    random = np.random.default_rng(study.seed)
    rows = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(study.seed)
        for d in study.dimensions:
            U = torch.from_numpy(random.normal(size=(study.components, d)))
            for kappa in study.kappas:
                n = study.components
                equal = torch.full((n,), -math.log(n), dtype=torch.float64)
                components = Components(U, torch.full_like(equal, kappa), torch.full_like(equal, study.sigma), equal)
                cues = _draw_cues(components, study.samples, random)
                poses = Parts(components, cues[0]).sample(torch.Size([study.samples]))
                for name, z in (
                    ("poses", _score(_inside(components, cues[0], poses) - Parts(components, cues[0]).log_prob(poses))),
                    ("cues", _score(_around(components, cues) - Cues(components).log_prob(cues))),
                ):
                    rows.append({"what": name, "dimensions": d, "kappa": kappa, "z": z, "mass": math.nan})
                mass = literal_mass(components, study.samples // 10)
                rows.append({"what": "literal", "dimensions": d, "kappa": kappa, "z": math.nan, "mass": float(mass)})
    table = pd.DataFrame(rows)
    literal = table["mass"].dropna()
    numbers = {
        "largest_z": one(table["z"].abs().max()),
        "tests": int(table["z"].notna().sum()),
        "literal_mass": {"least": one(literal.min()), "most": one(literal.max())},
        "components": study.components,
    }
    return Outcome(table, numbers)


def _draw_cues(components: Components, count: int, random: np.random.Generator) -> Tensor:
    means = torch.nn.functional.normalize(components.predictions, dim=-1).numpy()
    parents = random.integers(len(means), size=count)
    return torch.from_numpy(von_mises_fisher.sample(means[parents], float(components.kappa[0]), random))


def _inside(components: Components, cue: Tensor, poses: Tensor) -> Tensor:
    """log density of a narrower Gaussian in the component that the cue is for, `[samples]`."""
    likely = int(components.log_weights(cue).argmax())
    mean, sd = components.predictions[likely], components.sigma[likely] * PEAK ** (-1 / len(cue))
    return torch.distributions.Normal(mean, sd).log_prob(poses).sum(-1)


def _around(components: Components, cues: Tensor) -> Tensor:
    """log density of directions closer around the first component's, `[samples]`."""
    mean = torch.nn.functional.normalize(components.predictions[0], dim=-1)
    return von_mises_fisher.log_density(cues, mean, components.kappa[0] * PEAK ** (2 / (len(mean) - 1)))


def _score(log_ratios: Tensor) -> float:
    """By how many standard errors the mean of exp(log_ratios) misses one."""
    ratios = log_ratios.exp()
    return float((ratios.mean() - 1) / (ratios.std() / math.sqrt(len(ratios))))
