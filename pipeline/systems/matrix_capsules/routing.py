"""Measures routing by Procedure 1 of document 004. Routing to class capsules is measured in all iterations, and routing
to every layer in the last iteration. Shapes are as in `model.em_routing`, with T iterations and n classes.
"""

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from pipeline.classification.routing import Iterations, RoutedLayer, routed_layer, vote_spread
from pipeline.systems.matrix_capsules.model.em_routing import images_at_once
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
from pipeline.systems.matrix_capsules.model.receptive_fields import ReceptiveFields


@torch.no_grad()
def follow(model: MatrixCapsules, iterations: int, images: Tensor) -> Iterations:
    """Route images `[B, C, s, s]` in [0, 1] to class capsules. `iterations` may exceed the network's own number.

    Parts are the capsules in the layer below. In iteration 1, all classes get the same share of a part. The M-step
    computes the class capsules from the shares. The E-step then computes the shares of the next iteration.
    """
    layer = model.routed[-1]
    below = model.capsules(images)[-2]
    steps = layer.steps(below, iterations)
    votes = layer.votes(below)[:, 0]  # (B, n, N, P): there is one position of class capsules, which sees all parts
    parts = below[1]  # (B, X, c)
    active = parts.flatten(1).unsqueeze(1)
    shares = torch.cat([step.assignments for step in steps], 1)  # (B, T, n, N)
    activations = torch.cat([layer.handed_on(step.parents.activations) for step in steps], 1)
    spreads = torch.stack([vote_spread(votes, each * active) for each in shares.unbind(1)], 1)
    return Iterations(parts, shares.unflatten(-1, parts.shape[1:]), activations, spreads)


@torch.no_grad()
def routed_layers(model: MatrixCapsules, images: Tensor) -> list[RoutedLayer]:
    """Measures of the convolutional layers of capsules, then of the class capsules, on images `[B, C, s, s]` in [0, 1].

    Shares are the assignments used by the last M-step. A child's shares sum to 1 over all parents that see it. With
    competition "position", they sum to 1 at each parent position that sees the child, so their total may exceed 1. With
    activation "mixing", a layer's activations sum to 1. Here they are multiplied by the layer's number of capsules.
    """
    found = []
    for layer, (below, above) in zip(model.routed, pairwise(model.capsules(images)), strict=True):
        routing, (poses, parts), activations = layer.routing(), below, above[1]
        few = images_at_once(poses, layer.full_transformations(), routing)
        batches = zip(poses.split(few), parts.split(few), strict=True)
        shares = torch.cat([layer.steps(batch)[-1].assignments for batch in batches])  # (B, p, D, N)
        unit = activations[0].numel() if model.params.activation == "mixing" else 1
        over_parents = partial(_over_parents, routing.fields, parts.shape[2])
        found.append(routed_layer(shares, parts, unit * activations.amax(1), over_parents))
    return found


def _over_parents(fields: ReceptiveFields, types_below: int, values: Tensor) -> Tensor:
    """Sums over the parents of each child: `[B, p, D, N]` to `[B, X, c]`."""
    return fields.sum(values.sum(2).unflatten(-1, (-1, types_below)))
