"""Routing by agreement (document 001) in a trained CapsNet, for the stage `routing`. The stage measures class capsules
in every iteration, and every routed layer after the last iteration.
"""

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from pipeline.classification.routing import Iterations, RoutedLayer, routed_layer, vote_spread
from pipeline.layers.dynamic_routing import agreement, cast_votes, products, squash, weighted_sum
from pipeline.systems.capsnet.model.capsnet import CapsNet, CapsuleLayer, forward_pass


@torch.no_grad()
def follow(model: CapsNet, iterations: int, images: Tensor) -> Iterations:
    """Route images `[B, 1, S, S]` in [0, 1] to classes in `iterations` iterations, even if the network runs fewer.

    The m capsules below are called parts. They are primary capsules at X positions, or middle capsules, where X is 1.
    In iteration 1, a part gives all n classes equal shares. The activation of a part or class capsule is its length.
    """
    capsules = forward_pass(model.layers()[:-1], images)[-1]
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
    by_iteration = (torch.stack(each, 1) for each in (shares, activations, spreads))
    return Iterations(parts.unflatten(-1, (-1, types)), *by_iteration)


@torch.no_grad()
def routed_layers(model: CapsNet, images: Tensor) -> list[RoutedLayer]:
    """Measures of middle capsules, if there are any, then of class capsules, on images `[B, 1, S, S]` in [0, 1].

    All capsules below vote for every capsule. Activations are lengths. Shares are the weights of the last sum of votes.
    """
    found, layers, over_parents = [], model.layers(), partial(torch.sum, dim=1)  # (B, n, m) -> (B, m)
    for layer, (below, above) in zip(layers[1:], pairwise(forward_pass(layers, images)), strict=True):
        if isinstance(layer, CapsuleLayer):
            assert layer.updates is not None  # the check of params.yaml requires a network that routes
            shares = agreement(cast_votes(below, layer.transformations), layer.updates)  # (B, n, m)
            found.append(routed_layer(shares, below.norm(dim=-1), above.norm(dim=-1), over_parents))
    return found
