"""Computes derivatives of a network along a direction of its input, for the Lie derivative (Gruver et al. 2022).

The methods, in order of preference, are forward mode (`torch.func.jvp`), two backward passes, and central differences
(for operations without a second derivative). The first two miss part of the derivative where a network stops gradients
(`detach`). They are therefore compared with central differences on a few inputs, and the first that agrees is used.
Inputs should be in double precision. Compiled kernels, which lack these derivatives, take single precision only.
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor], dict[str, Tensor]]
FORWARD, BACKWARD, DIFFERENCES = "forward mode", "two backward passes", "central differences"
STEP = 1e-5
"""Largest change of an input in a central difference, double precision."""
CHECKED, TOLERANCE = 3, 1e-2
"""Number of inputs of the comparison with central differences, and the largest relative difference that passes."""


def derivative(f: Function, x: Tensor, direction: Tensor) -> tuple[dict[str, Tensor], str]:
    """The derivative of every output of f at x along a direction of the shape of x, and the method used.

    Args:
        f: a function that treats each input of a batch by itself.
    """
    few = x[:CHECKED], direction[:CHECKED]
    expected = central_differences(f, *few)
    for method, way in ((FORWARD, _forward_mode), (BACKWARD, _two_backward_passes)):
        try:
            found = way(f, *few)
            off = {name: float((found[name] - value).norm()) for name, value in expected.items()}
            # Equal except for rounding and the kinks of a few units
            if all(off[name] <= TOLERANCE * float(value.norm()) + 1e-9 for name, value in expected.items()):
                return way(f, x, direction), method
        except (RuntimeError, NotImplementedError):
            pass
    return central_differences(f, x, direction), DIFFERENCES


def _forward_mode(f: Function, x: Tensor, direction: Tensor) -> dict[str, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from torch's own imports at the first call
        found: dict[str, Tensor] = torch.func.jvp(f, (x,), (direction,))[1]
    return {name: value.detach() for name, value in found.items()}


def _two_backward_passes(f: Function, x: Tensor, direction: Tensor) -> dict[str, Tensor]:
    """J u from vector-Jacobian products: v -> J^T v is linear in v, so its derivative along `direction` u is J u."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        values = f(x)
        found = {}
        for name, value in values.items():
            cotangent = torch.zeros_like(value, requires_grad=True)
            (gradient,) = torch.autograd.grad(value, x, cotangent, create_graph=True)
            (found[name],) = torch.autograd.grad(gradient, cotangent, direction, retain_graph=True)
    return {name: value.detach() for name, value in found.items()}


@torch.no_grad()
def central_differences(f: Function, x: Tensor, direction: Tensor) -> dict[str, Tensor]:
    """(f(x + h u) - f(x - h u)) / 2h, where h is `STEP` over the largest element of u."""
    h = STEP / float(direction.abs().max().clamp_min(1e-30))
    above, below = f(x + h * direction), f(x - h * direction)
    return {name: (above[name] - below[name]) / (2 * h) for name in above}
