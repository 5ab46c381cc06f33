"""RMSProp against its formula, step by step in float64, and the names that parameters give to optimisers."""

from __future__ import annotations

import math

import pytest
import torch
from small import training
from torch.optim import Adam

from pipeline.learning.optimisers import RMSProp, build_optimiser


def by_formula(start: float, gradients: list[float], rates: list[float], eps: float) -> list[float]:
    """Where one number stands after each step, with decay and momentum 0.9."""
    w, square, velocity, found = start, 1.0, 0.0, []
    for g, lr in zip(gradients, rates, strict=True):
        square = 0.9 * square + 0.1 * g * g
        velocity = 0.9 * velocity + lr * g / math.sqrt(square + eps)
        w -= velocity
        found.append(w)
    return found


def test_rmsprop_follows_its_formula_under_a_changing_step_size() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(12, 2, 3, generator=generator, dtype=torch.float64)
    gradients[4:] *= 1e-3  # small enough for eps to count
    gradients[:, 0, 0] = 0
    w = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    start = w.clone()
    rates, eps = [0.1 / (1 + step) for step in range(12)], 1e-4
    optimiser = RMSProp([w], 0.1, decay=0.9, momentum=0.9, eps=eps)
    path = []
    for gradient, rate in zip(gradients, rates, strict=True):
        optimiser.param_groups[0]["lr"] = rate
        w.grad = gradient.clone()
        optimiser.step()
        path.append(w.clone())
    for place in [(0, 0), (0, 2), (1, 1)]:
        expected = by_formula(start[place].item(), gradients[:, *place].tolist(), rates, eps)
        assert [each[place].item() for each in path] == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert path[-1][0, 0] == start[0, 0], "without a gradient nothing moves"


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    w, other = torch.ones(2), torch.ones(2)
    w.grad = torch.ones(2)
    optimiser = RMSProp([w, other], 0.1, decay=0.9, momentum=0.9, eps=1e-4)
    optimiser.step()
    assert other.tolist() == [1, 1]
    assert (w < 1).all()


def test_a_training_names_its_optimiser() -> None:
    w = torch.zeros(2, 3)
    assert isinstance(build_optimiser(training(optimiser="adam"), [w]), Adam)
    found = build_optimiser(training(optimiser="rmsprop", batch_size=128, learning_rate=3e-5), [w])
    assert isinstance(found, RMSProp)
    (group,) = found.param_groups
    assert {name: group[name] for name in ("lr", "decay", "momentum", "eps")} == {
        "lr": 3e-5, "decay": 0.9, "momentum": 0.9, "eps": 1e-2 / 128**2,
    }  # fmt: skip
