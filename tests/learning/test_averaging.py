"""Averages of the weights over training: their profile, and what the training loop does with them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from line import train_line

from pipeline.learning.averaging import Average


def profile(steps: int, window: float) -> torch.Tensor:
    """The weight of each step in the average after the last: parameters are the steps' unit vectors in turn."""
    parameters = {"w": torch.full((steps,), torch.nan, dtype=torch.float64)}
    average = Average(parameters, window)
    average.averaged["w"].zero_()
    for step in range(steps):
        parameters["w"].copy_(torch.eye(steps, dtype=torch.float64)[step])
        average.update(step + 1)
    return average.averaged["w"]


@pytest.mark.parametrize("window", [0.25, 0.02])
@pytest.mark.parametrize("steps", [100, 300])
def test_the_mean_age_is_the_window_whatever_the_number_of_steps(window: float, steps: int) -> None:
    shares = profile(steps, window)
    assert shares.sum().item() == pytest.approx(1)
    assert (shares >= 0).all()
    age = (shares * torch.arange(steps - 1, -1, -1)).sum().item() / steps
    assert age == pytest.approx(window, abs=1 / steps)


def test_the_widest_window_is_a_plain_mean_and_the_first_step_forgets_the_start() -> None:
    torch.testing.assert_close(profile(7, 0.5), torch.full((7,), 1 / 7, dtype=torch.float64))
    parameters = {"w": torch.tensor([5.0])}
    average = Average(parameters, 0.1)
    parameters["w"].fill_(2.0)
    average.update(1)
    assert average.averaged["w"].item() == 2.0


def test_validation_and_the_best_are_of_averaged_weights_and_training_goes_on_with_its_own() -> None:
    """w = -0.36 + 0.1 t after step t, by a plain mean -0.36 + 0.1 (t + 1) / 2: half as fast, and best nearest to 0."""
    plain, found = train_line([3], epochs=9), train_line([3], epochs=9, averaging=0.5)
    assert found.history["train_w"].tolist() == pytest.approx(plain.history["train_w"].tolist())
    expected = -0.36 + 0.05 * (np.arange(1, 10) + 1)
    assert found.history["validation_w"].to_numpy() == pytest.approx(expected, abs=1e-4)
    assert found.best_epoch == [6]
    assert found.parameters[0]["w"].item() == pytest.approx(-0.01, abs=1e-4)
