"""Do samples of mixtures in `top_down` follow their densities (document 001, section 4.2)? Is equation 7 a density?

If V is a sample from the density p of a mixture, and q is any density with p's support, then q(V) / p(V) has mean one.
If p integrated to c, the mean would be 1 / c. If the samples followed another density, the mean would in general not be
one. Each q is a narrower copy of one component of p. (If q were wider, q / p could be very large, and standard errors
unreliable.) Distributions of PyTorch or SciPy compute q, and our own code computes p. If both used the same code, the
test would miss an error in it. Each component has its own concentration of cues and sd of poses. If these were equal,
the test would miss samples that were drawn with the concentration or sd of a wrong component.
"""

import math

import numpy as np
import pandas as pd
import torch
from scipy.stats import vonmises_fisher
from torch import Tensor
from torch.distributions import Normal

from pipeline.results.outcome import Outcome, one
from pipeline.systems.attention.model.top_down import Components, literal_mass
from pipeline.systems.attention.settings import DensityStudy

PEAK = 2.0
"""Ratio of the peak of a density q to the peak of its component. It is approximate for cues."""
APART = 2.0
"""From the first component to the last, concentrations rise and sds fall, both by this factor."""


def run(study: DensityStudy) -> Outcome:
    """Make a table with a row for each number of dimensions, kappa and `what`. If `what` is poses or cues, the column
    `z` has the largest deviation of a mean of q / p from one, in standard errors. If `what` is literal or printed, the
    column `mass` has the integral of equation 7 (see `literal_mass`).
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
                cues = components.sample_cues(study.samples)
                poses = components.sample_poses(study.samples, cues[0])
                where = {"dimensions": d, "kappa": kappa}
                scores = {
                    "poses": scores_of_poses(components, cues[0], poses),
                    "cues": scores_of_cues(components, cues),
                }
                rows += [{"what": name, **where, "z": max(each, key=abs)} for name, each in scores.items()]
                tests += sum(map(len, scores.values()))
                masses = literal_mass(components, study.samples // 10)
                rows += [{"what": name, **where, "mass": mass} for name, mass in masses.items()]
    table = pd.DataFrame(rows)
    ends = table.groupby("what").agg(least=("mass", "min"), most=("mass", "max")).dropna().map(one)
    numbers = {
        "largest_z": one(table["z"].abs().max()),
        "tests": tests,
        "components": n,
        **{f"{name}_mass": ends.loc[name].to_dict() for name in ends.index},
    }
    return Outcome("density", table, numbers, ("largest_z",))


def scores_of_poses(components: Components, cue: Tensor, poses: Tensor) -> list[float]:
    """Deviations of the means of q / p from one, in standard errors, for poses `[samples, d]` given a cue `[d]`. There
    is one deviation for each component with a weight above 0.01.
    """
    log_mixture = components.log_pose_density(poses, cue)
    narrow = components.sigma * PEAK ** (-1 / len(cue))
    inside = Normal(components.predictions, narrow.unsqueeze(-1))
    log_inside = inside.log_prob(poses.unsqueeze(-2)).sum(-1)  # (samples, n)
    frequent = components.log_weights(cue) > math.log(0.01)  # rarer components have too few samples
    return _scores((log_inside - log_mixture.unsqueeze(-1))[:, frequent])


def scores_of_cues(components: Components, cues: Tensor) -> list[float]:
    """Deviations of the means of q / p from one, in standard errors, for cues `[samples, d]`: one per component."""
    close = components.kappa * PEAK ** (2 / (cues.shape[-1] - 1))
    around = (vonmises_fisher(*each) for each in zip(components.directions.numpy(), close.numpy(), strict=True))
    log_around = torch.from_numpy(np.stack([each.logpdf(cues.numpy()) for each in around], axis=-1))  # (samples, n)
    return _scores(log_around - components.log_cue_density(cues).unsqueeze(-1))


def _scores(log_ratios: Tensor) -> list[float]:
    """For each test, the deviation of the mean of exp(`log_ratios [samples, tests]`) from one, in standard errors."""
    ratios = log_ratios.exp()
    return [float(z) for z in (ratios.mean(0) - 1) / (ratios.std(0) / math.sqrt(len(ratios)))]
