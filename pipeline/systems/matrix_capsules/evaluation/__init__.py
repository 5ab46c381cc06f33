"""The evaluation of trained matrix capsules: test errors, and distances of votes to the poses of class capsules.
Routing should gather votes around the pose of the right class's capsule (document 004, section 5, Figures 2 and B.2).
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.classification import errors
from pipeline.learning.model import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, stack_replicas
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules

_AT_ONCE = 32
VOTED = 500
"""Number of test images (the first ones) whose votes are measured."""


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Measure test errors and `concentration` of all replicas, and `histograms` of up to three images for the first."""
    outcome = errors.evaluate(inputs)
    models, (images, labels) = of_kind(MatrixCapsules, inputs.models), inputs.dataset.part("test")
    images, labels = images[:VOTED], labels[:VOTED]
    pixels = errors.seen(images, inputs.run.augmentation.seen_size(images.shape[-1]))
    found = [distances(model, pixels) for model in models]
    shares = stack_replicas([concentration(*each, labels) for each in found])
    # The first two correctly classified images of different classes, and the first misclassified image
    scores = errors.scores(models[0], pixels).cpu().numpy()
    correct = scores.argmax(-1) == labels
    recognised = np.flatnonzero(correct)
    firsts = np.sort(recognised[np.unique(labels[correct], return_index=True)[1]])[:2]
    chosen = [*firsts.tolist(), *np.flatnonzero(~correct)[:1].tolist()]
    arrays = histograms(*found[0], chosen)
    arrays |= {"images": images[chosen], "labels": labels[chosen], "scores": scores[chosen]}
    numbers = {**outcome.numbers, "voted_images": len(images), "votes": nest(shares, ["of", "iteration"], "share")}
    return replace(outcome, numbers=numbers, arrays=arrays)


@torch.no_grad()
def distances(model: MatrixCapsules, images: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The distance of each vote from the pose of its class capsule, and the weight of each vote, for N images and n
    classes: two arrays `[iterations, N, n, votes]`. A vote's weight is its assignment times its child's activation.

    Args:
        images: `[N, C, s, s]` in [0, 1].
    """
    layer = model.routed[-1]
    device = next(model.parameters()).device
    found, weights = [], []
    for batch in images.split(_AT_ONCE):
        below = model.capsules(batch.to(device))[-2]
        votes = layer.votes(below)[:, 0]  # (B, n, votes, P)
        steps = layer.steps(below)
        found.append(torch.stack([(votes - step.parents.poses[:, 0, :, None]).norm(dim=-1) for step in steps]))
        active = layer.fields.gather(below[1]).flatten(2).unsqueeze(2)  # (B, 1, 1, votes)
        weights.append(torch.stack([(step.assignments * active)[:, 0] for step in steps]))
    return torch.cat(found, 1).cpu().numpy(), torch.cat(weights, 1).cpu().numpy()


def concentration(
    distance: NDArray[np.float32], weights: NDArray[np.float32], labels: NDArray[np.int64]
) -> pd.DataFrame:
    """The share of the votes' weight that the right class gets, from the results of `distances`. Columns: `of`,
    `iteration`, `share`. `of` is "all" (all votes) or "near" (only votes within a radius around the pose of their class
    capsule). The radius is such that votes within it have a tenth of all weight in the first iteration.
    """
    right = np.eye(weights.shape[2])[labels].astype(bool)  # (N, n)
    order = np.argsort(distance[0], axis=None)
    total = weights[0].ravel()[order].cumsum()
    radius = distance[0].ravel()[order][np.searchsorted(total, 0.1 * total[-1])]
    rows = []
    for name, kept in (("all", weights), ("near", weights * (distance <= radius))):
        for t, each in enumerate(kept, 1):
            rows.append((name, t, float(each[right].sum() / max(each.sum(), np.finfo(np.float32).tiny))))
    return pd.DataFrame(rows, columns=["of", "iteration", "share"])


def histograms(
    distance: NDArray[np.float32], weights: NDArray[np.float32], chosen: list[int], bins: int = 40
) -> dict[str, NDArray[Any]]:
    """Weighted histograms of vote distances in k images: `counts [k, iterations, n, bins]`, `edges [bins + 1]`."""
    most = float(np.quantile(distance[:, chosen], 0.99))  # votes farther away than this are in no bin
    edges = np.linspace(0, most, bins + 1)
    counts = np.zeros((len(chosen), len(distance), distance.shape[2], bins))
    for row, t, n in np.ndindex(*counts.shape[:3]):
        place = t, chosen[row], n
        counts[row, t, n] = np.histogram(distance[place], edges, weights=weights[place])[0]
    return {"counts": counts, "edges": edges}
