"""What the stage `routing` follows of matrix capsules: EM routing of the class capsules (document 004, Procedure 1)."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.classification.routing import Iterations, vote_spread
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules, RoutedCapsules


def iterations_of(model: MatrixCapsules) -> int:
    """Iterations that the network itself runs."""
    return model.params.iterations


@torch.no_grad()
def follow(model: MatrixCapsules, iterations: int, images: Tensor) -> Iterations:
    """Every iteration, of images `[B, C, s, s]` in [0, 1]; the first ones are the network's own, however many follow.

    In iteration 1 every part gives each class the same share. The M-step then makes the class capsules of these shares,
    and the E-step the shares of the next iteration.
    """
    layer = model.routed[-1]
    assert isinstance(layer, RoutedCapsules)
    below = model.capsules(images)[-2]
    steps = layer.steps(below, iterations)
    votes = layer.votes(below)[:, 0]  # (B, n, N, P): there is one position of class capsules, which sees all parts
    parts = below[1]  # (B, X, c)
    shares = torch.stack([step.assignments[:, 0] for step in steps])  # (T, B, n, N)
    active = parts.flatten(1).unsqueeze(1)
    activations = torch.stack([layer.handed_on(step.parents.activations) for step in steps])
    spreads = torch.stack([vote_spread(votes, each * active) for each in shares])
    return Iterations(parts, shares.unflatten(-1, parts.shape[1:]), activations[:, :, 0], spreads)
