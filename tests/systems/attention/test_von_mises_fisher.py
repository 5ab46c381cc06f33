"""The von Mises-Fisher distribution against SciPy, mpmath and its own samples."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import vonmises_fisher

from pipeline.systems.attention.model.von_mises_fisher import (
    log_density,
    mean_resultant_length,
    sample,
    scaled_log_normaliser,
)

KAPPAS = (1e-6, 0.01, 0.7, 3.0, 20.0, 300.0, 1e4, 9e7, 1e9)


def log_normaliser(kappa: torch.Tensor, d: int) -> torch.Tensor:
    return scaled_log_normaliser(kappa, d) - kappa


@pytest.mark.parametrize("d", [2, 3, 4, 8, 33, 256])
def test_the_normaliser_is_that_of_exact_arithmetic(d: int) -> None:
    order = mpmath.mpf(d) / 2 - 1
    for kappa in KAPPAS:
        exact = order * mpmath.log(kappa) - (order + 1) * mpmath.log(2 * mpmath.pi)
        exact -= mpmath.log(mpmath.besseli(order, kappa))
        ours = float(log_normaliser(torch.tensor(kappa, dtype=torch.float64), d))
        assert ours == pytest.approx(float(exact), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("d", [3, 5, 16])
def test_the_density_is_scipys(d: int) -> None:
    random = np.random.default_rng(d)
    mean, points = random.normal(size=d), random.normal(size=(20, d))
    mean, points = mean / np.linalg.norm(mean), points / np.linalg.norm(points, axis=1, keepdims=True)
    for kappa in (0.3, 4.0, 80.0):
        ours = log_density(torch.from_numpy(points), torch.from_numpy(mean), torch.tensor(kappa, dtype=torch.float64))
        np.testing.assert_allclose(ours, vonmises_fisher(mean, kappa).logpdf(points), rtol=1e-9)


def test_without_concentration_it_is_even_on_the_sphere() -> None:
    for d, surface in ((2, 2 * math.pi), (3, 4 * math.pi), (4, 2 * math.pi**2)):
        assert float(log_normaliser(torch.zeros((), dtype=torch.float64), d)) == pytest.approx(-math.log(surface))
    assert float(mean_resultant_length(np.zeros(()), 5)) == 0


def test_gradients_are_those_of_finite_differences() -> None:
    kappa = torch.tensor([0.5, 3.0, 40.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda k: log_normaliser(k, 6), kappa)


@pytest.mark.parametrize("kappa", [0.0, 3.0, 1e3, 1e8, 1e9])
def test_single_precision_keeps_the_digits_of_the_density(kappa: float) -> None:
    """Around a mean, as far as the concentration lets directions go; the terms themselves are as large as kappa."""
    random = np.random.default_rng(1)
    means = random.normal(size=(200, 8))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    x, mean = (torch.from_numpy(each).float() for each in (sample(means, np.full(200, min(kappa, 1e8)), random), means))
    single = log_density(x, mean, torch.tensor(kappa))
    double = log_density(x.double(), mean.double(), torch.tensor(kappa, dtype=torch.float64))
    torch.testing.assert_close(single.double(), double, rtol=3e-6, atol=1e-5)


def test_gradients_in_single_precision_at_large_concentrations() -> None:
    """d log p / d kappa at the mean is 1 - A, (d - 1) / 2 kappa out there: a difference of numbers that are alike."""
    kappa = torch.tensor([1e5, 1e7], requires_grad=True)
    log_density(torch.eye(5)[:1], torch.eye(5)[:1], kappa).sum().backward()
    assert kappa.grad is not None
    torch.testing.assert_close(kappa.grad * kappa.detach(), torch.full((2,), 2.0), rtol=1e-3, atol=0)


@pytest.mark.parametrize("d", [2, 3, 8])
@pytest.mark.parametrize("kappa", [0.0, 1.0, 30.0, 1e8])
def test_samples_spread_alike_across_their_mean(d: int, kappa: float) -> None:
    """The covariance across the mean is (1 - E[(mu^T x)^2]) / (d - 1) in every direction, and none with the cosine.

    E[(mu^T x)^2] = 1 - (d - 1) A_d(kappa) / kappa; 1 / d without concentration.
    """
    random, count = np.random.default_rng(1), 40_000
    mean = np.ones(d) / math.sqrt(d)
    drawn = sample(np.tile(mean, (count, 1)), np.full(count, kappa), random)
    turned = drawn @ np.linalg.qr(np.column_stack([mean, np.eye(d)[:, 1:]]))[0]  # the mean (or its opposite) first
    length = float(mean_resultant_length(np.array(kappa), d))
    expected = length / kappa if kappa else 1 / d
    across = turned[:, 1:] / math.sqrt(expected)
    # Products of two have a variance of two at most: five standard errors, each fails once in 1.7 million.
    np.testing.assert_allclose(across.T @ across / count, np.eye(d - 1), atol=5 * math.sqrt(2 / count))
    along = turned[:, 0] - turned[:, 0].mean()
    np.testing.assert_allclose(along / along.std() @ across / count, 0, atol=5 * math.sqrt(2 / count))


def test_each_mean_has_its_own_concentration() -> None:
    kappas = np.tile([0.0, 5.0, 200.0], 20_000)
    means = np.tile(np.eye(4)[:1], (len(kappas), 1))
    drawn = sample(means, kappas, np.random.default_rng(0))[:, 0].reshape(-1, 3)
    expected = mean_resultant_length(np.array([0.0, 5.0, 200.0]), 4)
    assert (abs(drawn.mean(0) - expected) < 4 * drawn.std(0) / math.sqrt(len(drawn))).all()
