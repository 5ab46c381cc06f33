"""EM routing as a loop over capsules and positions, written from the equations (document 004, Procedure 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import digamma
from small import SMALL_MATRIX_CAPSULES
from torch import Tensor

from pipeline.systems.matrix_capsules.model.em_routing import Routing
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
from pipeline.systems.matrix_capsules.model.receptive_fields import ReceptiveFields
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams

Numbers = NDArray[np.float64]
PARAMS = MatrixCapsulesModelParams.model_validate(SMALL_MATRIX_CAPSULES)
PUBLISHED = {"damped_first": True, "first_shares": "position"}
"""The first iteration as in the authors' code."""


def network(size: int = 10, **changes: Any) -> MatrixCapsules:
    """A small network, not trained."""
    torch.manual_seed(0)
    return MatrixCapsules(MatrixCapsulesModelParams.model_validate({**SMALL_MATRIX_CAPSULES, **changes}), size)


def routing(
    height: int, kernel: int, stride: int = 1, iterations: int = 3, offsets: Tensor | None = None, **changes: Any
) -> Routing:
    """With a lambda that makes activations matter."""
    params = PARAMS.model_copy(update={"variance_floor": 1e-2, "inverse_temperature": 0.3, **changes})
    return Routing(ReceptiveFields(height, kernel, stride), params, iterations, offsets=offsets)


def by_the_letter(
    inputs: Sequence[Tensor], image: int, how: Routing, stride: int
) -> tuple[Numbers, Numbers, list[dict[tuple[Any, Any], float]]]:
    """One image of the inputs of `em_routing.route`.

    Returns:
        poses and activations of the parents, by position and type, and the assignments of each iteration, by child
        (position, type) and parent (position, type).
    """
    everyone, active_below, transformations, beta_a, beta_u = (each.detach().numpy() for each in inputs)
    poses, activations, params = everyone[image], active_below[image], how.params
    offsets = None if how.offsets is None else how.offsets.numpy()
    height, kernel = math.isqrt(len(poses)), math.isqrt(len(transformations))
    side = (height - kernel) // stride + 1
    c, P = poses.shape[1:]
    D = transformations.shape[3]
    parents = [(row * side + column, d) for row in range(side) for column in range(side) for d in range(D)]
    votes: dict[tuple[Any, Any], Numbers] = {}
    for p, d in parents:
        for k in range(kernel * kernel):
            row, column = p // side * stride + k // kernel, p % side * stride + k % kernel
            for i in range(c):
                vote = poses[row * height + column, i] @ transformations[k, i, :, d]
                votes[(row * height + column, i), (p, d)] = vote if offsets is None else vote + offsets[k]
    children = sorted({child for child, _ in votes})
    rivals = {child: [parent for other, parent in votes if other == child] for child in children}

    def group(child: Any, parent: Any, among: str = params.competition) -> list[Any]:
        return [j for j in rivals[child] if among == "all" or j[0] == parent[0]]

    first = params.first_shares if params.competition == "all" else "position"
    R = {(i, j): 1 / len(group(i, j, first)) for i, j in votes}
    mean: dict[Any, Numbers] = {}
    history = []
    for t in range(how.iterations):
        history.append(R)
        weights = {(i, j): R[i, j] * activations[i] for i, j in votes}
        of = {j: [i for i, other in votes if other == j] for j in parents}
        mass = {j: sum(weights[i, j] for i in of[j]) for j in parents}
        total = sum(mass.values())
        variance, active, log_density = {}, {}, {}
        if params.activation == "bayes":
            shares = sum(1 + m for m in mass.values())
            for j in parents:
                kappa, centre = 1 + mass[j], sum(weights[i, j] * votes[i, j] for i in of[j]) / (1 + mass[j])
                average = sum(weights[i, j] * votes[i, j] for i in of[j]) / mass[j]
                scatter = sum(weights[i, j] * (votes[i, j] - average) ** 2 for i in of[j])
                shape, b = 1 + mass[j] / 2, 0.5 + scatter / 2 + mass[j] * average**2 / (2 * kappa)
                log_share = digamma(1 + mass[j]) - digamma(shares)
                log_precision = digamma(shape) - np.log(b)
                entropy = P / 2 * math.log(2 * math.pi * math.e) - log_precision.sum() / 2
                logit = beta_a[j[1]] - math.exp(log_share) * (P * beta_u[j[1]] + entropy)
                active[j], mean[j] = 1 / (1 + math.exp(-logit)), centre
                for i in of[j]:
                    squares = shape / b * (votes[i, j] - centre) ** 2 + 1 / kappa
                    log_density[i, j] = log_share + (log_precision - math.log(2 * math.pi) - squares).sum() / 2
        else:
            for j in parents:
                fresh = sum(weights[i, j] * votes[i, j] for i in of[j]) / mass[j]
                held = params.damping if t or params.damped_first else 0.0
                mean[j] = (1 - held) * fresh + held * mean.get(j, np.zeros(P))
                scatter = sum(weights[i, j] * (votes[i, j] - mean[j]) ** 2 for i in of[j])
                variance[j] = params.variance_floor + scatter / mass[j]
                costs = [(beta_u[j[1]] + math.log(math.sqrt(v))) * mass[j] for v in variance[j]]
                beta = params.inverse_temperature * (1 - params.inverse_temperature_rate ** (t + 1))
                mdl = 1 / (1 + math.exp(-beta * (beta_a[j[1]] - sum(costs))))
                active[j] = mass[j] / total if params.activation == "mixing" else mdl
                for i in of[j]:
                    density = np.exp(-((votes[i, j] - mean[j]) ** 2) / (2 * variance[j]))
                    log_density[i, j] = math.log(active[j]) + np.log(density / np.sqrt(2 * math.pi * variance[j])).sum()
        R = {
            (i, j): 1 / sum(math.exp(log_density[i, other] - log_density[i, j]) for other in group(i, j))
            for i, j in votes
        }
    found = np.array([mean[j] for j in parents]).reshape(side * side, D, P)
    return found, np.array([active[j] for j in parents]).reshape(side * side, D), history
