"""The closed forms of capsule regression against integrals, samples and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import hyp1f1
from torch import Tensor

from pipeline.systems.regression.model.capsules import (
    InterpolationTable,
    interpolation,
    posterior_means,
    predict_probabilities,
    subspace_start,
)

BETAS = torch.logspace(-6, 6, 61, dtype=torch.float64)


@pytest.mark.parametrize("s", [1, 1.5, 2, 5, 8.5, 20, 80])
def test_interpolation_is_kummers_function(s: float) -> None:
    """int_0^1 rho^s exp(rho b) drho = 1F1(s + 1; s + 2; b) / (s + 1), and Kummer's transformation."""
    beta = BETAS.numpy()
    for order, ours in zip((s, s + 1), interpolation(BETAS, s), strict=True):
        expected = beta / (order + 1) * hyp1f1(1, order + 2, -beta)
        np.testing.assert_allclose(ours.numpy(), expected, rtol=3e-14)


@pytest.mark.parametrize("s", [1, 4.5, 40])
def test_interpolation_is_good_in_single_precision(s: float) -> None:
    for ours, exact in zip(interpolation(BETAS.float(), s), interpolation(BETAS, s), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=2e-6, atol=0)


def test_nothing_known_and_everything_known() -> None:
    l0, l1 = interpolation(torch.tensor([0.0, 1e300], dtype=torch.float64), 3)
    assert l0.tolist() == l1.tolist() == [0.0, 1.0]
    W, X = model(3, 2, scale=0.0)
    torch.testing.assert_close(predict_probabilities(W, X), torch.full((4, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("s", [1, 1.5, 7, 80])
def test_the_table_reads_what_the_recursions_give(s: float) -> None:
    between = torch.logspace(-6, 6, 1009, dtype=torch.float64)
    exact = interpolation(between, s)
    for dtype, error in ((torch.float64, 1e-9), (torch.float32, 3e-7)):
        for ours, expected in zip(InterpolationTable(s, dtype)(between.to(dtype)), exact, strict=True):
            torch.testing.assert_close(ours.double(), expected, rtol=0, atol=error)


def model(m: int, d: int, p: int = 3, n: int = 4, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Weights and inputs of a random model."""
    generator = torch.Generator().manual_seed(seed)
    W = scale * torch.randn(m, d, p, generator=generator, dtype=torch.float64)
    return W, torch.randn(n, p, generator=generator, dtype=torch.float64)


def sphere(D: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Directions `[q, D]` and weights `[q]` that integrate smooth functions over the circle or the sphere."""
    angle = np.arange(120) * (2 * np.pi / 120)
    if D == 2:
        return np.stack([np.cos(angle), np.sin(angle)], axis=1), np.full(120, 2 * np.pi / 120)
    z, weight = np.polynomial.legendre.leggauss(60)
    radius = np.sqrt(1 - z**2)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points = np.concatenate([(radius[:, None, None] * ring).reshape(-1, 2), np.repeat(z, 120)[:, None]], axis=1)
    return points, np.repeat(weight, 120) * (2 * np.pi / 120)


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("scale", [0.4, 1.5])
def test_probabilities_and_means_are_the_integrals(m: int, scale: float) -> None:
    """Equations 10 and 11 by quadrature over all hidden variables, one for each class: lengths times directions, on
    which the shares of equation 3 depend alone.
    """
    W, X = model(m, 1, n=1, scale=scale)
    mean = (W[:, 0] @ X[0]).numpy()
    directions, over = sphere(len(mean))
    length, along = np.polynomial.legendre.leggauss(120)
    far = np.linalg.norm(mean) + 9
    length, along = far * (length + 1) / 2, along * far / 2
    h = length[:, None, None] * directions  # (lengths, directions, D)
    density = np.exp(-0.5 * ((h - mean) ** 2).sum(-1)) / (2 * np.pi) ** (len(mean) / 2)
    weight = density * (along * length ** (len(mean) - 1))[:, None] * over
    assert weight.sum() == pytest.approx(1, abs=1e-10)
    P = predict_probabilities(W, X)[0]
    for j in range(m):
        share = weight * directions[:, j] ** 2
        assert P[j].item() == pytest.approx(share.sum(), abs=1e-9)
        E = posterior_means(W, X, torch.tensor([j]))[0, :, 0]
        expected = (share[..., None] * h).sum((0, 1)) / share.sum()
        np.testing.assert_allclose(E.numpy(), expected, rtol=0, atol=1e-8)


def test_posterior_means_average_to_prior_means() -> None:
    """sum_j P(y = j | x) E[h | x, y = j] = E[h | x], below equation 19."""
    W, X = model(4, 3, n=5)
    P = predict_probabilities(W, X)
    torch.testing.assert_close(P.sum(-1), torch.ones(5, dtype=torch.float64))
    means = [posterior_means(W, X, torch.full((5,), j)) * P[:, j, None, None] for j in range(4)]
    torch.testing.assert_close(torch.stack(means).sum(0), (X @ W.flatten(0, 1).T).view(5, 4, 3))


def test_the_subspace_start_is_equation_28() -> None:
    values = torch.tensor([4.0, 0.25, 9.0], dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    W = subspace_start(Q @ torch.diag(values) @ Q.T, 2, (0,))
    for row, column in zip(W, (2, 0), strict=True):
        expected = Q[:, column] / math.sqrt(2 * float(values[column]))
        expected = expected * expected[expected.abs().argmax()].sign()
        torch.testing.assert_close(row, expected)
    with pytest.raises(ValueError, match="class 0: the inputs span 1 dimensions, fewer than the capsule's size 2"):
        subspace_start(torch.diag(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)), 2, (0,))
