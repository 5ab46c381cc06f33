"""Planted scenes, parsed: variational inversion against routing (document 001, section 4.2, left open there).

Everyone is given the transformations and the parts; inversion also knows the model's scales, or learns them from parts
and cues. Beside it stand dynamic routing, EM routing's steps and a k-means-like baseline on the parts' votes, all with
the published few iterations from one start, and the posterior under the true poses of all objects, shown or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pipeline.attention.inversion import Settings, invert
from pipeline.attention.routing import Parse, dynamic_routing, em_routing, k_means
from pipeline.attention.scenes import Scenes, orthogonal_transforms, plant, votes
from pipeline.attention.top_down import Hierarchy
from pipeline.outcome import Outcome, one
from pipeline.params import ParsingStudy

INVERSION, WITH_CUES, LEARNED, TRUTH = "inversion", "inversion, cues", "inversion, learned", "true poses"
ROUTING = "dynamic routing"


def run(study: ParsingStudy, bar: Callable[[Iterable[Any]], Iterable[Any]]) -> Outcome:
    """By sd, objects shown and method: share of parts with a parent whose parent is found, over scenes; error of the
    shown objects' poses (root mean square, in units of their sd).
    """
    random = np.random.default_rng(study.seed)
    m, n = study.parts, study.objects
    W = orthogonal_transforms(m, n, study.dimensions, random)
    rows, scales = [], []
    for sigma, shown in bar([(sigma, shown) for sigma in study.sigmas for shown in study.shown]):
        hierarchy = Hierarchy(W, torch.tensor([study.kappa]), torch.tensor([sigma]), study.clutter, 1.0, 1.0)
        scenes = plant(hierarchy, study.scenes, shown, study.clutter, sigma, random)
        parses, learned = _parses(hierarchy, scenes, study)
        for method, parse in parses.items():
            rows.append({"sigma": sigma, "shown": shown, "method": method, **_measured(parse, scenes)})
        scales.append({"sigma": sigma, "shown": shown, **learned})
    table = pd.DataFrame(rows)
    by_method = table.groupby("method", sort=False)
    wide = table.pivot_table(index=["sigma", "shown"], columns="method", values="found")
    numbers = {
        "found": {str(name): one(each["found"].mean()) for name, each in by_method},
        "pose_error": {str(name): one(each["pose_error"].mean()) for name, each in by_method},
        # In how many of the settings inversion finds more parents than routing by agreement, and in how many as many.
        "settings": len(wide),
        "more": int((wide[INVERSION] > wide[ROUTING]).sum()),
        "as_many": int((wide[INVERSION] == wide[ROUTING]).sum()),
        "learned": scales,
    }
    return Outcome(table, numbers, overlapping(study))


def _parses(hierarchy: Hierarchy, scenes: Scenes, study: ParsingStudy) -> tuple[dict[str, Parse], dict[str, float]]:
    at = votes(hierarchy.W, scenes.parts)
    settings = Settings(study.steps, study.rate, study.starts, study.samples, study.widest)
    wrong = Hierarchy(
        hierarchy.W, hierarchy.kappa * 3, hierarchy.sigma * 3, hierarchy.clutter, hierarchy.clutter_sd, 1.0
    )
    seeded = lambda: torch.Generator().manual_seed(study.seed)  # noqa: E731
    learned = invert(wrong, scenes.parts, scenes.cues, settings, seeded(), learn=True)
    known = hierarchy.components(scenes.poses).parents(scenes.parts, None)[..., :-1]
    parses = {
        "k-means": k_means(at, study.iterations),
        ROUTING: dynamic_routing(at, study.iterations),
        "EM routing": em_routing(at, study.iterations, float(hierarchy.sigma)),
        INVERSION: invert(hierarchy, scenes.parts, None, settings, seeded()).parse,
        WITH_CUES: invert(hierarchy, scenes.parts, scenes.cues, settings, seeded()).parse,
        LEARNED: learned.parse,
        TRUTH: Parse(known, scenes.poses),
    }
    return parses, {"kappa": learned.kappa, "learned_sigma": learned.sigma}


def _measured(parse: Parse, scenes: Scenes) -> dict[str, float]:
    real = scenes.parents < parse.parents.shape[-1]  # (B, m)
    right = ((parse.parents.argmax(-1) == scenes.parents) & real).sum(1) / real.sum(1).clamp_min(1)
    right = right[real.any(1)]
    error = (parse.poses - scenes.poses).square().mean(-1).sqrt()[scenes.present]
    return {
        "found": float(right.mean()),
        "standard_error": float(right.std() / math.sqrt(len(right))),
        "pose_error": float(error.mean()),
    }


# ---- a scene that can be looked at

SIDES = {"triangle": 3, "square": 4, "star": 5}


def shapes(parts: int) -> Tensor:
    """W `[parts, 3, 4, 4]` of a triangle, a square and a star whose outlines pass `parts` places.

    An object's pose is (x, y, s cos a, s sin a); a part's is its own place and its direction along the outline, alike.
    """
    found = []
    for sides in SIDES.values():
        corners = np.exp(2j * np.pi * (np.arange(2 * sides) / (2 * sides) + 0.25))
        corners[1::2] *= 0.45 if sides == 5 else math.cos(math.pi / sides)
        ring = np.append(corners, corners[0])
        lengths = np.append(0, np.abs(np.diff(ring)).cumsum())
        at = (np.arange(parts) + 0.5) / parts * lengths[-1]
        places = np.interp(at, lengths, ring.real) + 1j * np.interp(at, lengths, ring.imag)
        edge = np.diff(ring)[np.searchsorted(lengths, at, side="right") - 1]
        found.append([_similarity(place, way / abs(way)) for place, way in zip(places, edge, strict=True)])
    return torch.tensor(np.array(found)).transpose(0, 1).float()


def _similarity(place: complex, way: complex) -> list[list[float]]:
    return [
        [1.0, 0.0, place.real, -place.imag],
        [0.0, 1.0, place.imag, place.real],
        [0.0, 0.0, way.real, -way.imag],
        [0.0, 0.0, way.imag, way.real],
    ]


def overlapping(study: ParsingStudy) -> dict[str, np.ndarray]:
    """Scenes of three overlapping shapes with clutter, and who finds which parent: arrays for a figure."""
    random = np.random.default_rng(study.seed)
    parts, sigma = 24, 0.06
    W = shapes(parts)
    hierarchy = Hierarchy(W, torch.tensor([study.kappa]), torch.tensor([sigma]), 0.15, 1.0, 0.9)
    scenes = plant(hierarchy, 3, 3, 0.15, sigma, random)
    settings = Settings(study.steps, study.rate, 4 * study.starts, study.samples, study.widest)
    at = votes(W, scenes.parts)
    inverted = invert(hierarchy, scenes.parts, None, settings, torch.Generator().manual_seed(study.seed)).parse
    clutter = 1 - inverted.parents.sum(-1, keepdim=True)
    routed = dynamic_routing(at, study.iterations)
    return {
        "places": scenes.parts.numpy(),
        "truth": scenes.parents.numpy(),
        "routing": routed.parents.argmax(-1).numpy(),
        "inversion": torch.cat([inverted.parents, clutter], -1).argmax(-1).numpy(),
        "outlines": hierarchy.predictions(scenes.poses).numpy(),
        "inverted_outlines": hierarchy.predictions(inverted.poses).numpy(),
        "routed_outlines": hierarchy.predictions(routed.poses).numpy(),
    }
