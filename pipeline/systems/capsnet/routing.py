"""Routing by agreement (document 001) of a CapsNet, read off a network for the stage `routing`. The stage measures
class capsules in every iteration, and every routed layer after the last iteration.
"""

from functools import partial

import torch
from torch import Tensor

from pipeline.classification.routing import Iterations, RoutedLayer, routed_layer, vote_spread
from pipeline.layers.dynamic_routing import agreement, cast_votes, products, squash, weighted_sum
from pipeline.systems.capsnet.model.capsnet import CapsNet, CapsuleLayer


def iterations_of(model: CapsNet) -> int:
    """Number of weighted sums of votes of a network that routes, one more than its updates of the weights."""
    assert model.last.updates is not None
    return model.last.updates + 1


@torch.no_grad()
def follow(model: CapsNet, iterations: int, images: Tensor) -> Iterations:
    """The first `iterations` of routing of images `[B, 1, S, S]` in [0, 1], even if the network runs fewer.

    Parts are the capsules below: primary capsules at X positions, or middle capsules without positions (X is 1). In
    iteration 1 a part gives all classes the same share. Activations of parts and classes are lengths.
    """
    *below, last = model.layers()
    assert last is model.last
    capsules = images
    for layer in below:
        capsules = layer(capsules)
    types = capsules.shape[1] if model.middle else model.params.types
    parts = capsules.norm(dim=-1)  # (B, m)
    votes = cast_votes(capsules, model.last.transformations)  # (B, n, m, D)
    logits = votes.new_zeros(votes.shape[:3])
    shares, activations, spreads = [], [], []
    for _ in range(iterations):
        weights = logits.softmax(1)
        classes = squash(weighted_sum(weights, votes))
        shares.append(weights.unflatten(-1, (-1, types)))
        activations.append(classes.norm(dim=-1))
        spreads.append(vote_spread(votes, weights * parts.unsqueeze(1)))
        logits = logits + products(votes, classes)
    return Iterations(
        parts.unflatten(-1, (-1, types)), torch.stack(shares), torch.stack(activations), torch.stack(spreads)
    )


@torch.no_grad()
def routed_layers(model: CapsNet, images: Tensor) -> list[RoutedLayer]:
    """The middle capsules, if there are any, and the class capsules, of images `[B, 1, S, S]` in [0, 1].

    Every capsule sees all capsules below. Activations are lengths. Shares are the weights of the last sum of votes.
    """
    updates = iterations_of(model) - 1
    found, capsules = [], images
    for layer in model.layers():
        below, capsules = capsules, layer(capsules)
        if isinstance(layer, CapsuleLayer):
            shares = agreement(cast_votes(below, layer.transformations), updates)  # (B, n, m)
            over_parents = partial(torch.sum, dim=1)  # (B, n, m) -> (B, m)
            found.append(routed_layer(shares, below.norm(dim=-1), capsules.norm(dim=-1), over_parents))
    return found
