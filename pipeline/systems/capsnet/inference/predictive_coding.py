"""Predictive coding: inference over the activities of all layers at once (document 001, section 3, appendix C).

    E = 1/2 sum_l |x_l - f_l(x_{l-1})|^2  +  1/2 sum_j (t_j - |v_j|)^2  +  weight * penalty(v)

x_0 is the image, v are the class capsules. The second term clamps the label: t is 1 for the image's class, else 0, and
a capsule's length predicts it; with a free label it is absent. The penalty is the capsules' lengths summed (L1, per
capsule as in the document), half their squares (L2), or none. E is the variational free energy of Gaussians of variance
1, up to a constant.

There are two interpretations of the top layer. `predicted`, as in appendix C: v is the last layer's prediction from the
layer below, whose activities are the topmost free ones, and the label's error is that of the output. `free`: v are free
activities with their own prediction error, below the label's error. Then a target acts on capsules directly, and L1 of
weight 1 leaves a single capsule in any network, because predicted lengths are below 1.

The gradient of a layer depends on its own error and on that of the layer above. If capsules are free, L1 has no
derivative at 0, its minimum: a gradient step on all other terms is followed by a proximal step, which shortens
capsules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipeline.errors import UserError

Layer = Callable[[Tensor], Tensor]
Output = Literal["predicted", "free"]
Penalty = Literal["none", "L1", "L2"]


@dataclass(frozen=True)
class Objective:
    """The terms of the energy in addition to the layers' errors.

    Attributes:
        output: whether class capsules are predicted or free.
        target: 1 for the class of each image, else 0, `[B, n]`; None: the label is free.
        penalty: penalty on the class capsules.
        weight: weight of the penalty.
    """

    output: Output
    target: Tensor | None = None
    penalty: Penalty = "none"
    weight: float = 0.0

    @property
    def shortens(self) -> bool:
        """Whether the penalty needs a separate proximal step."""
        return self.output == "free" and self.penalty == "L1"


@dataclass(frozen=True)
class Inferred:
    """The result of inference.

    Attributes:
        activities: activities of each free layer, `[B, ...]`.
        capsules: class capsules, `[B, n, D]`.
        energies: `[steps + 1, terms, B]`, of each image at every step; terms: the free layers, the label, the penalty.
    """

    activities: list[Tensor]
    capsules: Tensor
    energies: Tensor


def forward_pass(layers: Sequence[Layer], images: Tensor) -> list[Tensor]:
    """Activities of each layer, without errors."""
    activities = []
    for layer in layers:
        images = layer(images)
        activities.append(images)
    return activities


def energies_and_gradients(
    layers: Sequence[Layer], constant: Tensor, activities: Sequence[Tensor], objective: Objective
) -> tuple[Tensor, tuple[Tensor, ...], Tensor]:
    """The terms of each image's energy, and their gradients with respect to the free layers' activities.

    Each layer's gradient comes from its own error and that of the layer above alone, as the paths of autograd do.

    Args:
        constant: the first layer's prediction from the image.

    Returns:
        energies `[terms, B]`; the gradients, without the term of the proximal step; and the class capsules `[B, n, D]`.
    """
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in activities]
        predictions = [constant, *(layer(below) for layer, below in zip(layers[1:], leaves[:-1], strict=False))]
        capsules = leaves[-1] if objective.output == "free" else layers[-1](leaves[-1])
        lengths = capsules.norm(dim=-1)
        label = penalty = torch.zeros_like(lengths[:, 0])
        if objective.target is not None:
            label = (objective.target - lengths).square().sum(1) / 2
        if objective.penalty == "L1":
            penalty = objective.weight * lengths.sum(1)
        if objective.penalty == "L2":
            penalty = objective.weight * lengths.square().sum(1) / 2
        errors = [(x - fx).square().flatten(1).sum(1) / 2 for x, fx in zip(leaves, predictions, strict=True)]
        terms = torch.stack([*errors, label, penalty])
        gradients = torch.autograd.grad((terms[:-1] if objective.shortens else terms).sum(), leaves)
    return terms.detach(), gradients, capsules.detach()


@torch.no_grad()
def infer(
    layers: Sequence[Layer], images: Tensor, objective: Objective, *, steps: Iterable[int], rate: float
) -> Inferred:
    """Minimise the energy by gradient descent from the forward pass, for all images and layers at once.

    Args:
        layers: functions of the activities below, the images first; the last gives class capsules `[B, n, D]`.
        images: `[B, ...]`.
        steps: as many steps as it has elements; the number of steps is up to the caller, who may show a bar of it.
        rate: step size.

    Raises:
        UserError: inference diverged.
    """
    free = layers if objective.output == "free" else layers[:-1]
    activities = forward_pass(free, images)
    constant = activities[0]
    found = []
    for _ in steps:
        terms, gradients, _ = energies_and_gradients(layers, constant, activities, objective)
        activities = [x - rate * gradient for x, gradient in zip(activities, gradients, strict=True)]
        if objective.shortens:
            lengths = activities[-1].norm(dim=-1, keepdim=True).clamp_min(torch.finfo(images.dtype).tiny)
            activities[-1] = activities[-1] * (1 - rate * objective.weight / lengths).clamp_min(0)
        found.append(terms)
    terms, _, capsules = energies_and_gradients(layers, constant, activities, objective)
    result = torch.stack([*found, terms])
    if not result.isfinite().all():
        raise UserError(f"inference diverged at rate {rate:g}: lower it")
    return Inferred(activities, capsules, result)
