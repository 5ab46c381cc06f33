"""A linear map from a layer's values to those of moved images, where theory gives none (Lenc and Vedaldi 2015).

Shapes: N training images, n capsules of k numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pipeline.probes.equivariance.actions import Map, Pairs

VALIDATION_SHARE = 0.25
"""Of the training images, the last ones: they choose the penalty."""


def linear_map(pairs: Pairs, penalties: Sequence[float]) -> Map:
    """A ridge regression from all n k numbers before to those after, capsule by capsule.

    An image counts for the values of a capsule by its weight. Values are centred, so that the map is affine, and the
    mean is not penalised. The penalty with the least error, over all capsules, on the last quarter of the images is
    taken; the map is then fitted to all.

    Args:
        penalties: tried, as shares of the largest eigenvalue of the values' second moments.

    Raises:
        ValueError: fewer than 8 images, or no penalties.
    """
    count = len(pairs.before)
    if count < 8 or not penalties:
        raise ValueError(f"a linear map needs 8 images and a penalty at least, found {count} and {len(penalties)}")
    before, after, weights = pairs.before.flatten(1).double(), pairs.after.double(), pairs.weights.double()
    first = count - round(VALIDATION_SHARE * count)
    part = _fit(before[:first], after[:first], weights[:first])
    held_out = before[first:]

    def error(penalty: float) -> float:
        missed = (part(penalty, held_out) - after[first:]).square().sum(-1)
        return float((weights[first:] * missed).sum())

    best = min(penalties, key=error)
    whole = _fit(before, after, weights)
    return lambda values: whole(best, values.flatten(1).double()).to(values)


def _fit(before: Tensor, after: Tensor, weights: Tensor) -> Callable[[float, Tensor], Tensor]:
    """Weighted regressions of `after [N, n, k]` on `before [N, d]`: a penalty and values `[M, d]` give `[M, n, k]`."""
    alike = bool((weights == weights[:, :1]).all())
    groups = [slice(None)] if alike else [slice(i, i + 1) for i in range(weights.shape[1])]
    solved = [_Weighted(before, after[:, group].flatten(1), weights[:, group][:, 0]) for group in groups]
    size = after.shape[-1]

    def predict(penalty: float, values: Tensor) -> Tensor:
        return torch.cat([each.predict(penalty, values).unflatten(-1, (-1, size)) for each in solved], 1)

    return predict


class _Weighted:
    """The eigenvectors of one weighted regression's normal equations, for any penalty."""

    def __init__(self, before: Tensor, after: Tensor, weights: Tensor) -> None:
        tiny = torch.finfo(weights.dtype).tiny
        w = (weights / weights.sum().clamp_min(tiny)).unsqueeze(-1)
        self.before, self.after = (w * before).sum(0), (w * after).sum(0)  # means
        x, y = before - self.before, after - self.after
        self.eigenvalues, self.vectors = torch.linalg.eigh((w * x).T @ x)
        self.moments = self.vectors.T @ ((w * x).T @ y)

    def predict(self, penalty: float, values: Tensor) -> Tensor:
        eigenvalues = self.eigenvalues.clamp_min(0)
        shrunk = eigenvalues + penalty * eigenvalues[-1].clamp_min(torch.finfo(values.dtype).tiny)
        return self.after + (values - self.before) @ (self.vectors @ (self.moments / shrunk.unsqueeze(-1)))
