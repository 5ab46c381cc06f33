"""How votes gather around class capsules over routing iterations (document 004, Figures 2 and B.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules, RoutedCapsules

_AT_ONCE = 32


@torch.no_grad()
def distances(model: MatrixCapsules, images: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Distances of votes to the mean of the class capsule that they are for, and how much of each vote is assigned to
    it, after every iteration: `[iterations, N, n, votes]` each.

    Args:
        images: `[N, C, s, s]` in [0, 1].
    """
    layer = model.routed[-1]
    assert isinstance(layer, RoutedCapsules)
    device = next(model.parameters()).device
    found, shares = [], []
    for batch in images.split(_AT_ONCE):
        below = model.capsules(batch.to(device))[-2]
        votes = layer.votes(below)[:, 0]  # (B, n, votes, P)
        steps = layer.steps(below)
        found.append(torch.stack([(votes - step.parents.poses[:, 0, :, None]).norm(dim=-1) for step in steps]))
        active = layer.fields.gather(below[1]).flatten(2).unsqueeze(2)  # (B, 1, 1, votes)
        shares.append(torch.stack([(step.assignments * active)[:, 0] for step in steps]))
    return torch.cat(found, 1).cpu().numpy(), torch.cat(shares, 1).cpu().numpy()


def concentration(
    distance: NDArray[np.float32], shares: NDArray[np.float32], labels: NDArray[np.int64]
) -> dict[str, list[float]]:
    """Of all that is assigned, what goes to the right class, for each iteration: `all` of it, and of the votes that are
    `near`, as near to the mean of their class as the closest tenth of all is after the first iteration.
    """
    right = np.eye(shares.shape[2])[labels].astype(bool)  # (N, n)
    order = np.argsort(distance[0], axis=None)
    weights = shares[0].ravel()[order].cumsum()
    radius = distance[0].ravel()[order][np.searchsorted(weights, 0.1 * weights[-1])]
    rows: dict[str, list[float]] = {"all": [], "near": []}
    for d, share in zip(distance, shares, strict=True):
        for name, kept in (("all", share), ("near", share * (d <= radius))):
            rows[name].append(float(kept[right].sum() / max(kept.sum(), np.finfo(np.float32).tiny)))
    return rows


def histograms(
    distance: NDArray[np.float32], shares: NDArray[np.float32], chosen: list[int], bins: int = 40
) -> dict[str, NDArray[Any]]:
    """Weighted histograms for some images: `counts [images, iterations, n, bins]` and `edges [bins + 1]`."""
    most = float(np.quantile(distance[:, chosen], 0.99))
    edges = np.linspace(0, most, bins + 1)
    counts = np.zeros((len(chosen), *distance.shape[:1], distance.shape[2], bins))
    for row, image in enumerate(chosen):
        for t in range(distance.shape[0]):
            for n in range(distance.shape[2]):
                counts[row, t, n] = np.histogram(distance[t, image, n], edges, weights=shares[t, image, n])[0]
    return {"counts": counts, "edges": edges}
