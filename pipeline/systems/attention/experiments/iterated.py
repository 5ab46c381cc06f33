"""Does iterated attention give each part a single parent (document 001, section 4.1)?"""

import math

import numpy as np
import pandas as pd
import torch

from pipeline.results.outcome import Outcome, one
from pipeline.systems.attention.model.top_down import Hierarchy, iterate_attention, orthogonal_transforms, plant
from pipeline.systems.attention.settings import IteratedStudy


def run(study: IteratedStudy) -> Outcome:
    """Measure attention in a table, one row per sd of parts, scale of scores and iteration. `entropy` is the mean
    entropy of attention in nats, `single` the share of parts with a weight above 0.99, and `right` the share of parts
    whose largest weight is at the true parent. Every scene has all objects, and no clutter.
    """
    random = np.random.default_rng(study.seed)
    n = study.objects
    W = orthogonal_transforms(study.parts, n, study.dimensions, random)
    rows = []
    for sigma in study.sigmas:
        hierarchy = Hierarchy(W, torch.ones(1), torch.tensor([sigma]), 0.0, 1.0, 1.0)
        scenes = plant(hierarchy, study.scenes, n, random)
        predictions = hierarchy.predictions(scenes.poses)
        for scale in study.scales:
            weights = iterate_attention(scenes.parts, predictions, study.iterations, scale)  # (T, B, m, n)
            spread = torch.special.entr(weights).sum(-1).flatten(1)
            best, where = weights.max(-1)
            rows += [
                {
                    "sigma": sigma,
                    "scale": scale,
                    "iteration": step + 1,
                    "entropy": float(spread[step].mean()),
                    "single": float((best[step] > 0.99).float().mean()),
                    "right": float((where[step] == scenes.parents).float().mean()),
                }
                for step in range(study.iterations)
            ]
    table = pd.DataFrame(rows)
    means = table.groupby(["iteration", "scale"])[["entropy", "single", "right"]].mean()  # over sds of parts
    by_scale = means.rename(index="{:g}".format, level="scale").map(one)
    numbers = {
        "log_objects": one(math.log(n)),
        "first": by_scale.loc[[1]].droplevel("iteration").to_dict("index"),
        "last": by_scale.loc[[study.iterations]].droplevel("iteration").to_dict("index"),
    }
    return Outcome("iterated", table, numbers, tuple(f"last.{scale:g}.single" for scale in study.scales))
