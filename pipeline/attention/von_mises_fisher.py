"""The von Mises-Fisher distribution on the unit sphere of R^d, for any d >= 2 and any concentration.

    p(x | mu, kappa) = C_d(kappa) exp(kappa mu^T x),  C_d(kappa) = kappa^v / ((2 pi)^(v + 1) I_v(kappa)),  v = d / 2 - 1

Document 001 weighs predictions by it (equation 7). Its logarithm is differentiable in kappa as well, so that
concentrations can be learned: d log C_d / d kappa = -A_d(kappa), A_d = I_{v+1} / I_v, the mean of mu^T x.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SERIES_TERMS = 40


class _LogNormaliser(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kappa: Tensor, dimensions: int) -> Tensor:
        value = kappa.detach().double().cpu().numpy()
        ctx.dimensions = dimensions
        ctx.save_for_backward(kappa)
        return torch.from_numpy(np.asarray(_log_normaliser(value, dimensions))).to(kappa)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kappa,) = ctx.saved_tensors
        return -gradients[0] * mean_resultant_length(kappa, ctx.dimensions), None


def log_normaliser(kappa: Tensor, dimensions: int) -> Tensor:
    """log C_d(kappa), of the shape of `kappa`, in nats: minus the log surface of the sphere at 0.

    Exact to 1e-12 from kappa = 0 to 1e8, through SciPy on the CPU (concentrations are few), for d up to 1000.

    Args:
        kappa: not negative.
        dimensions: d >= 2.
    """
    if dimensions < 2:
        raise ValueError(f"a direction in {dimensions} dimension(s): two or more are needed")
    return _LogNormaliser.apply(kappa, dimensions)


def mean_resultant_length(kappa: Tensor, dimensions: int) -> Tensor:
    """A_d(kappa) = E[mu^T x], of the shape of `kappa`, in [0, 1)."""
    from scipy.special import ive

    value = kappa.detach().double().cpu().numpy()
    order = dimensions / 2 - 1
    near = np.where(_is_near(value, order), value, 0.0)
    far = np.where(_is_near(value, order), np.sqrt(32 * (order + 1)), value)
    series = near / 2 * np.exp(_series(near, order + 1) - _series(near, order))
    return torch.from_numpy(np.where(_is_near(value, order), series, ive(order + 1, far) / ive(order, far))).to(kappa)


def log_density(x: Tensor, mean: Tensor, kappa: Tensor) -> Tensor:
    """log p(x | mean, kappa) of unit vectors `[..., d]` that broadcast; kappa broadcasts with `[...]`."""
    return kappa * (x * mean).sum(-1) + log_normaliser(kappa, x.shape[-1])


def sample(mean: NDArray[np.float64], kappa: float, random: np.random.Generator) -> NDArray[np.float64]:
    """A unit vector around each mean direction, `[n, d]`; SciPy's sampler, turned to each mean."""
    from scipy.stats import uniform_direction, vonmises_fisher

    count, d = mean.shape
    if kappa == 0:
        return np.atleast_2d(uniform_direction(d).rvs(count, random_state=random))
    north = np.eye(d)[0]
    around = np.atleast_2d(vonmises_fisher(north, kappa).rvs(count, random_state=random))
    # The reflection that takes the north pole to the mean (Householder's); at the pole itself there is nothing to do.
    axis = north - mean
    length = (axis**2).sum(-1, keepdims=True)
    axis = np.divide(axis, np.sqrt(length), out=np.zeros_like(axis), where=length > 1e-24)
    return np.asarray(around - 2 * axis * (axis * around).sum(-1, keepdims=True))


def _log_normaliser(kappa: NDArray[np.float64], dimensions: int) -> NDArray[np.float64]:
    from scipy.special import ive

    order = dimensions / 2 - 1
    is_near = _is_near(kappa, order)
    near = np.where(is_near, kappa, 0.0)
    far = np.where(is_near, np.sqrt(32 * (order + 1)), kappa)
    scaled = np.log(ive(order, far)) + far - order * np.log(far / 2)
    reduced = np.where(is_near, _series(near, order), scaled)  # log of I_v(kappa) / (kappa / 2)^v
    return np.asarray(order * math.log(2) - (order + 1) * math.log(2 * math.pi) - reduced)


def _is_near(kappa: NDArray[np.float64], order: float) -> NDArray[np.bool_]:
    """Where the power series is over within its terms; further out SciPy's scaled function does not underflow."""
    return np.asarray(kappa**2 < 32 * (order + 1))


def _series(kappa: NDArray[np.float64], order: float) -> NDArray[np.float64]:
    """log of I_v(kappa) / (kappa / 2)^v, from I_v's power series."""
    term, total = np.ones_like(kappa), np.ones_like(kappa)
    for k in range(1, _SERIES_TERMS):
        term = term * (kappa / 2) ** 2 / (k * (order + k))
        total += term
    return np.asarray(np.log(total) - math.lgamma(order + 1))
