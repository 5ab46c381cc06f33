"""RMSProp against its formula, Adam against torch's own, and the names that parameters give to optimisers."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch
from small import training

from pipeline.learning.optimisers import Adam, RMSProp, build_optimiser


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
    optimiser = RMSProp([w], 0.1, eps=eps)
    path = []
    for gradient, rate in zip(gradients, rates, strict=True):
        optimiser.lr = rate
        optimiser.step([gradient])
        path.append(w.clone())
    for place in [(0, 0), (0, 2), (1, 1)]:
        expected = by_formula(start[place].item(), gradients[:, *place].tolist(), rates, eps)
        assert [each[place].item() for each in path] == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert path[-1][0, 0] == start[0, 0], "without a gradient nothing moves"


def test_adam_is_torchs_own() -> None:
    """Under a changing step size; the state too."""
    generator = torch.Generator().manual_seed(0)
    ours = [torch.randn(3, 4, generator=generator), torch.randn(5, generator=generator)]
    theirs = [w.clone() for w in ours]
    own, torchs = Adam(ours, 0.01), torch.optim.Adam(theirs, lr=0.01)
    for step in range(20):
        own.lr = torchs.param_groups[0]["lr"] = 0.01 / (1 + step)
        gradients = [torch.randn(w.shape, generator=generator) for w in ours]
        own.step(gradients)
        for w, gradient in zip(theirs, gradients, strict=True):
            w.grad = gradient
        torchs.step()
        torch.testing.assert_close(ours, theirs)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.state[a], torchs.state[b])


def test_a_training_names_its_optimiser() -> None:
    w = torch.zeros(2, 3)
    assert isinstance(build_optimiser(training(optimiser="adam"), [w]), Adam)
    found = build_optimiser(training(optimiser="rmsprop", batch_size=128, learning_rate=3e-5), [w])
    assert isinstance(found, RMSProp)
    assert (found.lr, found.eps) == (3e-5, 1e-2 / 128**2)


def test_making_an_optimiser_and_a_step_do_not_import_torchs_compiler() -> None:
    """That takes a second in every training."""
    code = """if True:
        import sys, torch
        from pipeline.learning.optimisers import Adam, RMSProp
        w = torch.ones(2)
        for optimiser in (Adam([w], 0.1), RMSProp([w], 0.1, eps=1e-4)):
            optimiser.step([torch.ones(2)])
        assert "torch._dynamo" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
