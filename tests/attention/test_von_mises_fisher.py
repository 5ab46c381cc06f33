"""The von Mises-Fisher distribution against SciPy, mpmath and its own samples."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import vonmises_fisher

from pipeline.attention.von_mises_fisher import log_density, log_normaliser, mean_resultant_length, sample

KAPPAS = (1e-6, 0.01, 0.7, 3.0, 20.0, 300.0, 1e4)


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
    assert float(mean_resultant_length(torch.zeros(()), 5)) == 0


def test_large_concentrations_are_gaussians_on_the_tangent_plane() -> None:
    for d in (3, 10):
        kappa = 1e7
        expected = 0.5 * (d - 1) * math.log(kappa / (2 * math.pi)) - kappa
        assert float(log_normaliser(torch.tensor(kappa, dtype=torch.float64), d)) == pytest.approx(expected, rel=1e-12)
        assert 1 - float(mean_resultant_length(torch.tensor(kappa, dtype=torch.float64), d)) == pytest.approx(
            (d - 1) / 2 / kappa, rel=1e-5
        )


@pytest.mark.parametrize("d", [2, 3, 7])
def test_the_circle_of_any_dimension_sums_to_one(d: int) -> None:
    """Over the angle to the mean, with the surface of the sphere of directions around it."""
    surface = 2 * math.pi ** ((d - 1) / 2) / math.gamma((d - 1) / 2)
    for kappa in (0.2, 5.0):
        constant = float(log_normaliser(torch.tensor(kappa, dtype=torch.float64), d))
        mass, _ = quad(
            lambda a, k=kappa, c=constant: math.exp(c + k * math.cos(a)) * math.sin(a) ** (d - 2) * surface, 0, math.pi
        )
        assert mass == pytest.approx(1, rel=1e-9)


def test_gradients_are_those_of_finite_differences() -> None:
    kappa = torch.tensor([0.5, 3.0, 40.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda k: log_normaliser(k, 6), kappa)


@pytest.mark.parametrize(("d", "kappa"), [(2, 4.0), (3, 1.0), (8, 12.0), (8, 0.0)])
def test_samples_lie_around_their_own_means(d: int, kappa: float) -> None:
    random = np.random.default_rng(0)
    means = random.normal(size=(40_000, d))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    drawn = sample(means, kappa, random)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, rtol=1e-9)
    cosines = (drawn * means).sum(1)
    expected = float(mean_resultant_length(torch.tensor(kappa, dtype=torch.float64), d))
    # Four standard errors: this fails once in 16,000 for a right sampler.
    assert abs(cosines.mean() - expected) < 4 * cosines.std() / 200


def test_the_pole_itself_is_a_mean() -> None:
    drawn = sample(np.eye(3)[:1].repeat(2000, 0), 50.0, np.random.default_rng(0))
    assert drawn[:, 0].mean() > 0.97


def test_a_line_has_no_directions() -> None:
    with pytest.raises(ValueError, match="two or more"):
        log_normaliser(torch.ones(()), 1)
