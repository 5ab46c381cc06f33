"""Variational inversion, which document 001 leaves open (section 4.2), compared with routing on generated scenes.

All methods are given the parts' poses and the matrices W that predict these poses from objects (`Hierarchy`). Inversion
may also use cues, the directions in which to look for parts. Inversion is given the model's scales (kappa of cues,
sigma of parts), or learns them from parts and cues. The baselines are dynamic routing, EM routing and a form of
k-means. They use votes: a part's vote for an object is the pose of the object that predicts the part best. Dynamic and
EM routing are run as published (few iterations, one start), and with more iterations. The longer EM routing has several
starts, and is run with and without a model of clutter (parts without a parent). Sds in EM routing are at least sigma.
The posterior of parents given the objects' true poses shows how many parents can be found at most, on average.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from pipeline.results.outcome import Outcome, one
from pipeline.systems.attention.model.inversion import invert
from pipeline.systems.attention.model.routing import Parse, dynamic_routing, em_routing, k_means
from pipeline.systems.attention.model.top_down import Hierarchy, Scenes, orthogonal_transforms, plant
from pipeline.systems.attention.settings import ParsingStudy

INVERSION = "inversion"


def run(study: ParsingStudy) -> Outcome:
    """Compare the methods. The table has a row of `measured` for each method, sd of parts, and number of objects in a
    scene. The numbers are means over each method's rows, and inversion's leads over the methods of `route` (`lead_of`).
    """
    random = np.random.default_rng(study.seed)
    W = orthogonal_transforms(study.parts, study.objects, study.dimensions, random)
    rows, leads = [], []
    settings = [(sigma, shown) for sigma in study.sigmas for shown in study.shown]
    for sigma, shown in tqdm(settings, desc="parsing", unit="setting"):
        hierarchy = Hierarchy(W, torch.tensor([study.kappa]), torch.tensor([sigma]), study.clutter, 1.0, 1.0)
        scenes = plant(hierarchy, study.scenes, shown, random)
        routed, inverted = route(hierarchy, scenes, study), invert_with_and_without(hierarchy, scenes, study)
        truth = hierarchy.components(scenes.poses, scenes.present)
        by_cues = {"true poses": None, "true poses, cues": scenes.cues}
        known = {method: Parse(truth.parents(scenes.parts, cues), scenes.poses) for method, cues in by_cues.items()}
        for method, parse in {**routed, **inverted, **known}.items():
            rows.append({"sigma": sigma, "shown": shown, "method": method, **measured(parse, scenes)})
        ours = found(inverted[INVERSION], scenes)
        leads.append({method: ours - found(parse, scenes) for method, parse in routed.items()})
    table = pd.DataFrame(rows)
    measures = ["found", "clutter_found", "pose_error"]
    means = table.groupby("method", sort=False)[measures].agg(pd.Series.mean, skipna=False)
    numbers: dict[str, Any] = {
        **{measure: means[measure].dropna().map(one).to_dict() for measure in measures},
        "lead": {method: lead_of([each[method] for each in leads]) for method in leads[0]},
        "settings": len(leads),
    }
    headline = tuple(f"found.{method}" for method in numbers["found"])
    return Outcome("parsing", table, numbers, headline, overlapping(study))


def route(hierarchy: Hierarchy, scenes: Scenes, study: ParsingStudy) -> dict[str, Parse]:
    """Parse the scenes by each method of routing. The keys of the result are the methods' names."""
    at, sigma = hierarchy.votes(scenes.parts), float(hierarchy.sigma)
    many = (at, study.long_iterations, sigma, study.seed, study.routing_starts)
    # The density of clutter depends on length only, which orthogonal W keep, so a vote has the density of its part.
    log_clutter = torch.distributions.Normal(0.0, hierarchy.clutter_sd).log_prob(scenes.parts).sum(-1)
    return {
        "k-means": k_means(at, study.long_iterations),
        "dynamic routing": dynamic_routing(at, study.iterations),
        "dynamic routing, long": dynamic_routing(at, study.long_iterations),
        "EM routing": em_routing(at, study.iterations, sigma, study.seed),
        "EM routing, several starts": em_routing(*many),
        "EM routing, several starts, clutter": em_routing(*many, log_clutter),
    }


def invert_with_and_without(hierarchy: Hierarchy, scenes: Scenes, study: ParsingStudy) -> dict[str, Parse]:
    """Parse by inversion: without cues, with cues, and with cues and learned scales (initially 3 times too large)."""
    wrong = replace(hierarchy, kappa=hierarchy.kappa * 3, sigma=hierarchy.sigma * 3)
    return {
        INVERSION: invert(hierarchy, scenes.parts, None, study).parse,
        "inversion, cues": invert(hierarchy, scenes.parts, scenes.cues, study).parse,
        "inversion, cues, scales learned": invert(wrong, scenes.parts, scenes.cues, study, learn=True).parse,
    }


def found(parse: Parse, scenes: Scenes) -> Tensor:
    """For each scene: of the parts that have a parent, the share whose parent is found. Scenes with only clutter are
    left out. If a method takes a part with a parent for clutter, the parent is not found.
    """
    real = scenes.parents < parse.poses.shape[1]  # (B, m)
    right = ((parse.chosen == scenes.parents) & real).sum(1) / real.sum(1).clamp_min(1)
    return right[real.any(1)]


def measured(parse: Parse, scenes: Scenes) -> dict[str, float]:
    """Measures by name. `found`: the share of parents found, averaged over scenes, with its `standard_error`.
    `clutter_found`: the share of clutter that the method takes for clutter; nan if scenes have no clutter or the method
    does not model it. `pose_error`: the root mean square error of a pose's numbers, averaged over the objects present.
    """
    right, n = found(parse, scenes), parse.poses.shape[1]
    nobody = scenes.parents == n
    recognised = (parse.chosen[nobody] == n).float().mean() if parse.parents.shape[-1] > n else math.nan
    error = (parse.poses - scenes.poses).square().mean(-1).sqrt()[scenes.present]
    return {
        "found": float(right.mean()),
        "standard_error": float(right.std() / math.sqrt(len(right))),
        "clutter_found": float(recognised),
        "pose_error": float(error.mean()),
    }


def lead_of(leads: list[Tensor]) -> dict[str, float]:
    """The mean lead of inversion over another method, where a lead is the difference in `found`. For each setting
    (sigma, shown), `leads` contains the leads in its scenes, `[B]`.

    Returns:
        `mean`, with equal weights for all settings, and its `standard_error`; the number of `scenes`; the numbers of
        settings in which inversion finds `more` parents than the other method, and in which it finds `as_many`.
    """
    means = [float(each.mean()) for each in leads]
    variance = sum(float(each.var()) / len(each) for each in leads) / len(leads) ** 2
    return {
        "mean": float(np.mean(means)),
        "standard_error": math.sqrt(variance),
        "scenes": sum(len(each) for each in leads),
        "more": sum(mean > 0 for mean in means),
        "as_many": sum(mean == 0 for mean in means),
    }


# ---- scenes for a figure


def shapes(parts: int) -> Tensor:
    """W `[parts, 3, 4, 4]` of a triangle, a square and a star, with `parts` points on the outline of each.

    An object's pose is (x, y, s cos a, s sin a): position (x, y), size s and angle a. A part is a point on the outline.
    The part's pose is the point's position, then a vector of length s along the outline at this point.
    """
    W = np.zeros((3, parts, 4, 4))
    W[..., [0, 1], [0, 1]] = 1
    for of_shape, sides in zip(W, (3, 4, 5), strict=True):
        corners = np.exp(2j * np.pi * (np.arange(2 * sides) / (2 * sides) + 0.25))
        corners[1::2] *= 0.45 if sides == 5 else math.cos(math.pi / sides)
        ring = np.append(corners, corners[0])
        lengths = np.append(0, np.abs(np.diff(ring)).cumsum())
        at = (np.arange(parts) + 0.5) / parts * lengths[-1]
        places = np.interp(at, lengths, ring.real) + 1j * np.interp(at, lengths, ring.imag)
        edge = np.diff(ring)[np.searchsorted(lengths, at, side="right") - 1]
        for row, numbers in ((0, places), (2, edge / abs(edge))):  # W multiplies s exp(i a) by the complex `numbers`
            of_shape[:, row, 2], of_shape[:, row, 3] = numbers.real, -numbers.imag
            of_shape[:, row + 1, 2], of_shape[:, row + 1, 3] = numbers.imag, numbers.real
    return torch.from_numpy(W).transpose(0, 1).float()


def overlapping(study: ParsingStudy) -> dict[str, np.ndarray]:
    """Arrays for a figure: scenes of overlapping shapes with clutter, and their parses by routing and inversion."""
    random = np.random.default_rng(study.seed)
    hierarchy = Hierarchy(shapes(24), torch.tensor([study.kappa]), torch.tensor([0.06]), 0.15, 1.0, 0.9)
    scenes = plant(hierarchy, 3, 3, random)
    settings = study.model_copy(update={"starts": 4 * study.starts})
    inverted = invert(hierarchy, scenes.parts, None, settings).parse
    routed = dynamic_routing(hierarchy.votes(scenes.parts), study.long_iterations)
    return {
        "places": scenes.parts.numpy(),
        "truth": scenes.parents.numpy(),
        "routing": routed.chosen.numpy(),
        "inversion": inverted.chosen.numpy(),
        "outlines": hierarchy.predictions(scenes.poses).numpy(),
        "inverted_outlines": hierarchy.predictions(inverted.poses).numpy(),
        "routed_outlines": hierarchy.predictions(routed.poses).numpy(),
    }
