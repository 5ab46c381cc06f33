"""Derivatives of a network along a direction of its input: for the Lie derivative (Gruver et al. 2022).

Forward mode (`torch.func.jvp`) where every operation has it; else two backward passes; else central differences, for
operations whose gradient is written by hand and has none itself. The first two are compared with central differences on
a few inputs, because where a network stops gradients (`detach`) they miss a part of the derivative: differences are
then taken. Give inputs in double precision: compiled kernels then step aside for the form in PyTorch's operators.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor], dict[str, Tensor]]
FORWARD, BACKWARD, DIFFERENCES = "forward mode", "two backward passes", "central differences"
STEP = 1e-5
"""Largest change of an input in a central difference, double precision."""
CHECKED, TOLERANCE = 3, 1e-2
"""Inputs at which a derivative is compared with central differences, and how far it may be off, relatively."""


def derivative(f: Function, x: Tensor, direction: Tensor) -> tuple[dict[str, Tensor], str]:
    """The derivative of every output of f at x along a direction of the shape of x, and how it was found.

    Args:
        f: works on each input of a batch by itself.
    """
    few = x[:CHECKED], direction[:CHECKED]
    for method, way in ((FORWARD, _forward_mode), (BACKWARD, _two_backward_passes)):
        try:
            if _agree(way(f, *few), central_differences(f, *few)):
                return way(f, x, direction), method
        except (RuntimeError, NotImplementedError):
            pass
    return central_differences(f, x, direction), DIFFERENCES


def _agree(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    """Whether derivatives are the same but for rounding and the kinks of a few units."""
    return all(
        float((found[name] - value).norm()) <= TOLERANCE * float(value.norm()) + 1e-9
        for name, value in expected.items()
    )


def _forward_mode(f: Function, x: Tensor, direction: Tensor) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what torch itself imports at the first call
        found: dict[str, Tensor] = torch.func.jvp(f, (x,), (direction,))[1]
    return {name: value.detach() for name, value in found.items()}


def _two_backward_passes(f: Function, x: Tensor, direction: Tensor) -> dict[str, Tensor]:
    """The gradient by x is linear in what is passed back: its derivative by that is the one wanted."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        values = f(x)
        found = {}
        for name, value in values.items():
            passed = torch.zeros_like(value, requires_grad=True)
            (gradient,) = torch.autograd.grad(value, x, passed, create_graph=True)
            (found[name],) = torch.autograd.grad(gradient, passed, direction, retain_graph=True)
    return {name: value.detach() for name, value in found.items()}


@torch.no_grad()
def central_differences(f: Function, x: Tensor, direction: Tensor) -> dict[str, Tensor]:
    """(f(x + h u) - f(x - h u)) / 2h, with h by the largest element of u."""
    h = STEP / float(direction.abs().max().clamp_min(1e-30))
    above, below = f(x + h * direction), f(x - h * direction)
    return {name: (above[name] - below[name]) / (2 * h) for name in above}
