"""Measures routing to class capsules in each iteration: shares of parts, activations, and spreads of votes.

On the page, a slider selects the iteration. The measures show after how many iterations routing converges (documents
001 and 004).

Each routed layer is also measured, after as many iterations as the network itself runs. This shows whether each capsule
has one parent, as in a tree, and whether some capsules are never active (Mitterreiter, Koch, Giesen and Laue 2023).

Shapes: T iterations, B images, n classes. Parts are the children of class capsules: c types at each of X positions.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest, stack_replicas

_AT_ONCE = 32
DEAD = 0.01
"""A type of capsules is dead if its activation is at most this number at all positions of all images. Its votes then
have at most 1/100 of the full weight. CapsNet's loss does not shorten the class capsules of absent classes below a
length of 0.1, so these capsules do not count as dead."""


class Iterations(NamedTuple):
    """Shares, activations and spreads of votes of the class capsules in each routing iteration.

    Attributes:
        parts: activations of the parts, `[B, X, c]`.
        shares: share of each part assigned to each class, `[B, T, n, X, c]`. Shares sum to 1 over classes.
        activations: activations that class capsules have with these shares, `[B, T, n]`.
        spreads: spread of the votes for each class around their mean (`vote_spread`), `[B, T, n]`.
    """

    parts: Tensor
    shares: Tensor
    activations: Tensor
    spreads: Tensor


class RoutedLayer(NamedTuple):
    """Measures of one routed layer with D types of capsules, on B images.

    Attributes:
        entropy: the activation of a child times its E (see `routed_layer`), summed over the children, `[B]`.
        active: sum of the activations of the children with two or more possible parents, `[B]`.
        activations: the largest activation of each type over all positions, `[B, D]`.
    """

    entropy: Tensor
    active: Tensor
    activations: Tensor


def routed_layer(
    shares: Tensor, below: Tensor, activations: Tensor, over_parents: Callable[[Tensor], Tensor]
) -> RoutedLayer:
    """The measures of a layer. E_i measures how evenly child i is shared among its J_i possible parents j:

        E_i = - sum_j q_ij log q_ij / log J_i,    q_ij = shares_ij / sum_j shares_ij

    E_i is 0 if one parent gets the whole child, and 1 if all parents get equal shares. The sums `entropy` and `active`
    omit children with fewer than two possible parents.

    Args:
        shares: share of each child assigned to each parent (0 or above), in any shape that `over_parents` accepts.
        below: activations of the children, `[B, ...]`.
        activations: the largest activation of each type of the layer's capsules, as in `RoutedLayer`.
        over_parents: sums values over the parents of each child. It maps the shape of `shares` to that of `below`.
    """
    parents, total = over_parents(torch.ones_like(shares)), over_parents(shares)
    # Entropy in nats of the normalised shares s / S, where the shares s of a child sum to S.
    entropy = over_parents(-torch.xlogy(shares, shares)) / total + total.log()
    choice = parents > 1
    weighted = torch.where(choice, below * entropy / parents.log(), 0)
    return RoutedLayer(weighted.flatten(1).sum(1), (below * choice).flatten(1).sum(1), activations)


def vote_spread(votes: Tensor, weights: Tensor) -> Tensor:
    """Root mean square distances `[B, n]` of votes `[B, n, N, P]` from their mean. A class gets N votes of P numbers.

    The mean vote and the mean square are weighted by `weights [B, n, N]`. A class without any weight has distance 0.
    """
    total = weights.sum(-1, keepdim=True).clamp_min(torch.finfo(weights.dtype).tiny)
    shares = (weights / total).unsqueeze(-1)
    mean = (shares * votes).sum(-2, keepdim=True)
    return (shares.squeeze(-1) * (votes - mean).square().sum(-1)).sum(-1).sqrt()


def moved(shares: Tensor, parts: Tensor) -> list[float]:
    """The share of all parts, weighted by activation, that each iteration (from the second on) moves to another class.
    `parts` is as in `Iterations`, `shares` is `[T, B, n, X, c]`.
    """
    found = []
    for before, after in pairwise(shares):
        change = (after - before).abs().sum(1) / 2  # (B, X, c)
        found.append(float((change * parts).sum() / parts.sum().clamp_min(torch.finfo(parts.dtype).tiny)))
    return found


@torch.no_grad()
def outcome(
    follow: Sequence[Callable[[Tensor], Iterations]],
    layers: Sequence[Callable[[Tensor], list[RoutedLayer]]],
    used: int,
    pixels: Tensor,
    labels: NDArray[np.int64],
) -> Outcome:
    """Measure the routing iterations and the routed layers on all images. The arrays have the first replica's
    `Iterations` for the first image that it classifies correctly and the first image that it misclassifies, if any.

    Args:
        follow, layers: functions of images `[B, C, s, s]`, one per replica. A function in `layers` returns a list of
            layers, which ends with the class capsules.
        used: number of iterations that the network itself runs. The functions in `follow` run at least as many.
        pixels: all images, `[images, C, s, s]` in [0, 1], as the network sees them (C channels of s x s pixels).
    """
    found = []
    for each in follow:
        batches = [each(batch) for batch in pixels.split(_AT_ONCE)]
        found.append(Iterations(*map(torch.cat, zip(*batches, strict=True))))
    truth = torch.from_numpy(labels).to(pixels.device)
    table = stack_replicas([_measures(each, truth) for each in found])
    numbers = nest(table.melt(["replica", "iteration"]).dropna(), ["variable", "iteration"], "value")
    by_layer = stack_replicas([_by_layer([read(batch) for batch in pixels.split(_AT_ONCE)]) for read in layers])
    in_layers = nest(by_layer, ["layer", "about"], "value")
    correct = found[0].activations[:, used - 1].argmax(-1) == truth
    chosen = [place for kind in (correct, ~correct) for place in torch.nonzero(kind)[:1, 0].tolist()]
    arrays = {name: values[chosen].cpu().numpy() for name, values in found[0]._asdict().items()}
    arrays |= {
        "images": (255 * pixels[chosen, 0]).round().to(torch.uint8).cpu().numpy(),
        "labels": labels[chosen],
        "used": np.array(used),
    }
    headline = [f"{name}.{used}" for name in numbers] + [f"layers.{layer}.entropy" for layer in in_layers]
    everything = {"used": used, "images": len(labels), **numbers, "layers": in_layers}
    return Outcome("routing", table, everything, tuple(headline[:MOST_HEADLINES]), arrays)


def _by_layer(batches: Sequence[list[RoutedLayer]]) -> pd.DataFrame:
    """One row per routed layer and measure, computed on the images of all `batches`. Layer 1 is nearest to the image.

    `entropy` is the mean of E (see `routed_layer`), weighted by the activations of the children. `dead` is the share of
    types whose activation never exceeds `DEAD`. `types` is the number of types. `range` is the standard deviation over
    images of a type's largest activation in each image, averaged over types.
    """
    rows = []
    for layer, parts in enumerate(zip(*batches, strict=True), 1):
        entropy, active, activations = (torch.cat(values) for values in zip(*parts, strict=True))
        measures: dict[str, Tensor | float] = {
            "entropy": entropy.sum() / active.sum().clamp_min(torch.finfo(active.dtype).tiny),
            "dead": (activations.amax(0) <= DEAD).float().mean(),
            "range": activations.std(0, correction=0).mean(),
            "types": activations.shape[1],
        }
        rows += [(layer, name, float(value)) for name, value in measures.items()]
    return pd.DataFrame(rows, columns=["layer", "about", "value"])


def _measures(found: Iterations, truth: Tensor) -> pd.DataFrame:
    """One row per iteration: test error, share `moved`, mean activation and vote spread of right and other classes."""
    shares, activations, spreads = (each.transpose(0, 1).contiguous() for each in found[1:])
    T, B, n = activations.shape
    right = torch.nn.functional.one_hot(truth, n).bool().expand(T, B, n)
    columns = {
        "iteration": np.arange(1, T + 1),
        "test_error": (activations.argmax(-1) != truth).float().mean(1).tolist(),
        "moved": [np.nan, *moved(shares, found.parts)],
    }
    for name, values in (("activation", activations), ("spread", spreads)):
        for of, chosen in (("right", right), ("others", ~right)):
            columns[f"{name}_{of}"] = values[chosen].view(T, -1).mean(1).tolist()
    return pd.DataFrame(columns)
