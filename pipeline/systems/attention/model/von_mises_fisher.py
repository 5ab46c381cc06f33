"""The von Mises-Fisher distribution on the unit sphere of R^d, d >= 2. Its density is

    p(x | mu, kappa) = C_d(kappa) exp(kappa mu^T x),  C_d(kappa) = kappa^v / ((2 pi)^(v + 1) I_v(kappa)),  v = d / 2 - 1

with mean direction mu, concentration kappa from 0 to 1e9, and the modified Bessel function I_v. Equation 7 of document
001 weights predictions by a softmax of p. Gradients with respect to kappa use d log C_d / d kappa = -A_d(kappa), where
the ratio A_d = I_{v+1} / I_v is the mean of mu^T x.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class _ScaledLogNormaliser(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kappa: Tensor, dimensions: int) -> Tensor:
        ctx.dimensions = dimensions
        ctx.save_for_backward(kappa)
        order = dimensions / 2 - 1
        constant = order * math.log(2) - (order + 1) * math.log(2 * math.pi)
        return torch.from_numpy(np.asarray(constant - _log_bessel(order, kappa.double().numpy()))).to(kappa)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kappa,) = ctx.saved_tensors
        # The mean of mu^T x is near 1 for large kappa. So it is subtracted from 1 in double precision.
        short = 1 - mean_resultant_length(kappa.double().numpy(), ctx.dimensions)
        return gradients[0] * torch.from_numpy(np.asarray(short)).to(kappa), None


def scaled_log_normaliser(kappa: Tensor, dimensions: int) -> Tensor:
    """The log density at the mean direction, log C_d(kappa) + kappa, in nats, in the shape of `kappa`.

    In double precision, the relative error is below 1e-11 for d up to 1000. SciPy needs `kappa` on the CPU.
    """
    return _ScaledLogNormaliser.apply(kappa, dimensions)


def mean_resultant_length(kappa: NDArray[np.float64], dimensions: int) -> NDArray[np.float64]:
    """The mean A_d(kappa) of mu^T x, in [0, 1), in the shape of `kappa`."""
    order = dimensions / 2 - 1
    return np.asarray(kappa / 2 * np.exp(_log_bessel(order + 1, kappa) - _log_bessel(order, kappa)))


def log_density(x: Tensor, mean: Tensor, kappa: Tensor) -> Tensor:
    """log p(x | mean, kappa) in nats, `[...]`, for unit vectors `x` and `mean [..., d]`, and `kappa [...]` (broadcast).

    The sum of kappa mu^T x and log C_d(kappa) would lose digits: both are of size kappa, with opposite signs. So the
    code computes (log C_d(kappa) + kappa) - kappa |x - mu|^2 / 2 instead, which is accurate in single precision.
    """
    return scaled_log_normaliser(kappa, x.shape[-1]) - 0.5 * kappa * (x - mean).square().sum(-1)


def sample(mean: NDArray[np.float64], kappa: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """A random unit vector around each mean direction `[n, d]` with concentration `kappa [n]`. SciPy draws all vectors
    with the same concentration at once, around one direction. Reflections then map this direction to the means.
    """
    from scipy.stats import uniform_direction, vonmises_fisher

    north = np.eye(mean.shape[1])[0]
    found = np.empty(mean.shape)
    for concentration in np.unique(kappa):
        where = kappa == concentration
        count = int(where.sum())
        if concentration == 0:
            found[where] = uniform_direction(len(north)).rvs(count, random_state=random)
            continue
        around = np.reshape(vonmises_fisher(north, concentration).rvs(count, random_state=random), (count, -1))
        # The Householder reflection that maps the north pole to the mean, or no reflection if the mean is the pole.
        axis = north - mean[where]
        squares = (axis**2).sum(-1, keepdims=True)
        axis = np.divide(axis, np.sqrt(squares), out=np.zeros_like(axis), where=squares > 1e-24)
        found[where] = around - 2 * axis * (axis * around).sum(-1, keepdims=True)
    return found


def _log_bessel(order: float, kappa: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(I_v(kappa) / (kappa / 2)^v / exp(kappa)), v = `order`, from the power series of I_v if kappa is small."""
    from scipy.special import ive

    is_near = kappa**2 < 32 * (order + 1)  # for these, 40 terms are enough; for others, `ive` does not underflow
    near = np.where(is_near, kappa, 0.0)
    away = np.where(is_near, np.sqrt(32 * (order + 1)), kappa)
    term, total = np.ones_like(near), np.ones_like(near)
    for k in range(1, 40):
        term = term * (near / 2) ** 2 / (k * (order + k))
        total += term
    series = np.log(total) - math.lgamma(order + 1) - near
    return np.asarray(np.where(is_near, series, np.log(ive(order, away)) - order * np.log(away / 2)))
