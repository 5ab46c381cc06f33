"""Routing iteration by iteration: which parts each class capsule is assigned, its activation, how its votes agree.

For the page's slider, and for numbers: after how many iterations routing has settled (documents 001 and 004).

Shapes: T iterations, B images, n classes; parts are the capsules below, c types at each of X positions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, stack_replicas

_AT_ONCE = 32


@dataclass(frozen=True)
class Iterations:
    """What the class capsules of a network do in each routing iteration.

    Attributes:
        parts: activations of the parts, `[B, X, c]`.
        shares: of each part, those given to each class, `[T, B, n, X, c]`; they sum to 1 over classes.
        activations: of the classes, given these shares, `[T, B, n]`.
        spreads: of the votes for a class around their mean, `[T, B, n]`: see `vote_spread`.
    """

    parts: Tensor
    shares: Tensor
    activations: Tensor
    spreads: Tensor

    @staticmethod
    def joined(batches: Sequence[Iterations]) -> Iterations:
        """Those of all images of several batches."""
        parts, *others = zip(*(vars(each).values() for each in batches), strict=True)
        return Iterations(torch.cat(parts), *(torch.cat(values, 1) for values in others))

    def of(self, images: Sequence[int]) -> dict[str, NDArray[np.generic]]:
        """Of K images: parts `[K, X, c]`; shares `[K, T, n, X, c]`, activations and spreads `[K, T, n]`."""
        others = {name: values[:, images].transpose(0, 1) for name, values in vars(self).items() if name != "parts"}
        return {name: values.cpu().numpy() for name, values in ({"parts": self.parts[images]} | others).items()}


Follow = Callable[[Tensor], Iterations]
"""Routes images `[B, C, s, s]` in [0, 1]."""


def vote_spread(votes: Tensor, weights: Tensor) -> Tensor:
    """Root mean square distances of `votes [B, n, N, P]` to their mean, `[B, n]`; a vote counts by `weights [B, n, N]`.

    It is 0 for a class that no part is assigned to.
    """
    total = weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    shares = (weights / total).unsqueeze(-1)
    mean = (shares * votes).sum(-2, keepdim=True)
    return (shares.squeeze(-1) * (votes - mean).square().sum(-1)).sum(-1).sqrt()


def moved(shares: Tensor, parts: Tensor) -> list[float]:
    """Of all parts, the share that goes to another class than in the iteration before, from the second iteration on.

    Args:
        shares, parts: as in `Iterations`; parts count by their activations.
    """
    found = []
    for before, after in pairwise(shares):
        change = (after - before).abs().sum(1) / 2  # (B, X, c)
        found.append(float((change * parts).sum() / parts.sum().clamp_min(torch.finfo(parts.dtype).tiny)))
    return found


@torch.no_grad()
def outcome(follow: Sequence[Follow], used: int, pixels: Tensor, labels: NDArray[np.int64]) -> Outcome:
    """How routing settles, measured on all of these images; arrays show a few of them, by the first replica.

    Args:
        follow: of each replica.
        used: iterations that the network itself runs; the others show whether more would change anything.
        pixels: `[N, C, s, s]` in [0, 1], as the network sees them.
    """
    found = [Iterations.joined([each(batch) for batch in pixels.split(_AT_ONCE)]) for each in follow]
    truth = torch.from_numpy(labels).to(pixels.device)
    table = stack_replicas([_measures(each, truth) for each in found])
    numbers = {
        name: nest(table[["iteration", name]].dropna(), ["iteration"], name)
        for name in table.columns
        if name not in ("replica", "iteration")
    }
    # The first image that is recognised, and the first that is not
    correct = found[0].activations[used - 1].argmax(-1) == truth
    chosen = [place for kind in (correct, ~correct) for place in torch.nonzero(kind)[:1, 0].tolist()]
    arrays = found[0].of(chosen) | {
        "images": (255 * pixels[chosen, 0]).round().to(torch.uint8).cpu().numpy(),
        "labels": labels[chosen],
        "used": np.array(used),
    }
    headline = tuple(f"{name}.{used}" for name in numbers)
    return Outcome("routing", table, {"used": used, "images": len(labels), **numbers}, headline, arrays)


def _measures(found: Iterations, truth: Tensor) -> pd.DataFrame:
    """One row for each iteration: the error, what moved, and the right class beside the others."""
    activations, spreads = found.activations, found.spreads
    T, B, n = activations.shape
    right = torch.nn.functional.one_hot(truth, n).bool().expand(T, B, n)
    return pd.DataFrame(
        {
            "iteration": np.arange(1, T + 1),
            "test_error": (activations.argmax(-1) != truth).float().mean(1).tolist(),
            "moved": [np.nan, *moved(found.shares, found.parts)],
            "activation_right": activations[right].view(T, B).mean(1).tolist(),
            "activation_others": activations[~right].view(T, -1).mean(1).tolist(),
            "spread_right": spreads[right].view(T, B).mean(1).tolist(),
            "spread_others": spreads[~right].view(T, -1).mean(1).tolist(),
        }
    )
