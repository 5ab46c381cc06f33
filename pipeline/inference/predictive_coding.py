"""Predictive coding: inference over the activities of all layers at once (document 001, section 3, appendix C).

    E = 1/2 sum_l |x_l - f_l(x_{l-1})|^2  +  1/2 sum_j (t_j - |v_j|)^2  +  weight * penalty

x_0 is the image, x_1 to x_L are free, v = x_L are the class capsules. The second term clamps the label: t is 1 for the
image's class, else 0, and a capsule's length predicts it; with a free label it is absent. The penalty is the capsules'
lengths summed (L1, per capsule as in the document), half their squares (L2), or none. E is the variational free energy
of Gaussians of variance 1, up to a constant.

A layer knows its own error and, through its derivative, that of the layer above. The lengths' penalty has no derivative
at 0, where it wants to bring capsules to: its step is the proximal one, which is the plain one everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Layer = Callable[[Tensor], Tensor]
Penalty = Literal["none", "L1", "L2"]
LABEL, PENALTY = "label", "penalty"
"""Names of the last two terms of an energy; the layers' are their numbers, from 1."""


@dataclass(frozen=True)
class Objective:
    """What is descended, beside the layers' errors.

    Attributes:
        target: 1 for the class of each image, else 0, `[B, n]`; None: the label is free.
        penalty: on the class capsules.
        weight: of the penalty.
    """

    target: Tensor | None = None
    penalty: Penalty = "none"
    weight: float = 1.0


@dataclass(frozen=True)
class Inferred:
    """Where inference ended.

    Attributes:
        activities: of each layer, `[B, ...]`.
        energies: of every image at every step, `[steps + 1, terms, B]`: the layers', the label's, the penalty's.
    """

    activities: list[Tensor]
    energies: Tensor


def energy_names(layers: int) -> list[str]:
    """Names of an energy's terms."""
    return [*(str(number) for number in range(1, layers + 1)), LABEL, PENALTY]


def forward_pass(layers: Sequence[Layer], images: Tensor) -> list[Tensor]:
    """Activities of each layer, without errors."""
    activities = []
    for layer in layers:
        images = layer(images)
        activities.append(images)
    return activities


def energies(errors: Sequence[Tensor], capsules: Tensor, objective: Objective) -> Tensor:
    """The terms of each image's energy, `[terms, B]`.

    Args:
        errors: what each layer's activities are less what the layer below predicts.
        capsules: class capsules `[B, n, D]`.
    """
    of_layers = [error.square().flatten(1).sum(1) / 2 for error in errors]
    lengths = capsules.norm(dim=-1)
    label = torch.zeros_like(of_layers[0])
    if objective.target is not None:
        label = (objective.target - lengths).square().sum(1) / 2
    match objective.penalty:
        case "L1":
            penalty = objective.weight * lengths.sum(1)
        case "L2":
            penalty = objective.weight * lengths.square().sum(1) / 2
        case "none":
            penalty = torch.zeros_like(label)
    return torch.stack([*of_layers, label, penalty])


def local_gradients(
    layers: Sequence[Layer], constant: Tensor, activities: Sequence[Tensor], objective: Objective
) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of the energy by every layer's activities, L1's left out; each layer's from its neighbours' errors.

    Args:
        constant: what the first layer predicts from the image.

    Returns:
        the gradients, and the layers' errors.
    """
    errors = [activities[0] - constant]
    gradients = list(errors)
    for below, layer, above in zip(activities[:-1], layers[1:], activities[1:], strict=True):
        leaf = below.detach().requires_grad_()
        with torch.enable_grad():
            prediction = layer(leaf)
        error = above - prediction.detach()
        (explained,) = torch.autograd.grad(prediction, leaf, error)
        gradients[-1] = gradients[-1] - explained
        gradients.append(error)
        errors.append(error)
    if objective.target is not None:
        lengths = activities[-1].norm(dim=-1, keepdim=True)
        # A capsule of length 0 has no direction to grow in.
        directions = activities[-1] / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)
        gradients[-1] = gradients[-1] + (lengths - objective.target.unsqueeze(-1)) * directions
    if objective.penalty == "L2":
        gradients[-1] = gradients[-1] + objective.weight * activities[-1]
    return gradients, errors


def shortened(capsules: Tensor, by: float) -> Tensor:
    """Capsules `[B, n, D]` shortened by a length, to nothing where they have no more."""
    lengths = capsules.norm(dim=-1, keepdim=True)
    return capsules * (1 - by / lengths.clamp_min(torch.finfo(lengths.dtype).tiny)).clamp_min(0)


@torch.no_grad()
def infer(
    layers: Sequence[Layer],
    images: Tensor,
    objective: Objective,
    *,
    steps: int,
    rate: float,
    bar: Callable[[range], Sequence[int] | range] = lambda steps: steps,
) -> Inferred:
    """Descend the energy from the forward pass, all images and layers at once.

    Args:
        layers: functions of the activities below, the images first; the last gives class capsules `[B, n, D]`.
        images: `[B, ...]`.
        rate: of a step.

    Raises:
        ValueError: the energy grew beyond all bounds.
    """
    constant = layers[0](images)
    activities = forward_pass(layers, images)
    found = []
    for _ in bar(range(steps)):
        gradients, errors = local_gradients(layers, constant, activities, objective)
        found.append(energies(errors, activities[-1], objective))
        activities = [x - rate * gradient for x, gradient in zip(activities, gradients, strict=True)]
        if objective.penalty == "L1":
            activities[-1] = shortened(activities[-1], rate * objective.weight)
    predictions = [constant, *(layer(x) for layer, x in zip(layers[1:], activities[:-1], strict=True))]
    errors = [x - prediction for x, prediction in zip(activities, predictions, strict=True)]
    found.append(energies(errors, activities[-1], objective))
    result = torch.stack(found)
    if not result.isfinite().all():
        raise ValueError(f"inference diverged at rate {rate:g}: lower it")
    return Inferred(activities, result)
