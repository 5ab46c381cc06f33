"""What a capsule makes of the votes assigned to it: M-steps of EM routing (document 004, section 3, Procedure 1).

These follow the procedure as printed. In the authors' published code there is no half before the log variances, so that
lambda counts twice; beta_u is in units of (1 + ln 2 pi) / 2 nats; and beta_a is in 5,000 nats, with the other sign.

Variational Bayes has Dirichlet, normal, and Gamma or Wishart priors. In its authors' code the latter is Wishart's, with
as many degrees of freedom as a pose has numbers, and one; the diagonal of its posterior alone is kept. beta_u is added
outside of the product with a share, where batch norm takes it away again; and the latest version of that code divides a
child among the capsules of one position, and leaves shares out of the numerator. Here beta_u counts for each number of
a vote, and assignments are the paper's.

Every M-step sees votes only through their moments, and says what the E-step is to think of a vote V by three
coefficients: log density (times activation) = constant + sum over h of (linear_h V_h + quadratic_h V_h^2). Shapes: any
leading axes `...` with the capsule types last among them, poses of P numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams

_LEAST_MASS = 1e-7
"""Added to the assigned mass that moments are divided by, as in the authors' code: a capsule may get nothing."""


@dataclass(frozen=True)
class Moments:
    """Of the votes for a capsule, each weighted by its assignment times its child's activation.

    Attributes:
        mass: sum of the weights, `[...]`.
        first: weighted sum of the votes, `[..., P]`.
        second: weighted sum of their squares, `[..., P]`.
    """

    mass: Tensor
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class Parents:
    """Capsules after an M-step.

    Attributes:
        poses: `[..., P]`.
        activations: from 0 to 1, `[...]`.
        constant, linear, quadratic: what the E-step thinks of votes, `[...]`, `[..., P]`, `[..., P]`.
    """

    poses: Tensor
    activations: Tensor
    constant: Tensor
    linear: Tensor
    quadratic: Tensor


def m_step(
    moments: Moments,
    before: Tensor | None,
    beta_a: Tensor,
    beta_u: Tensor,
    inverse_temperature: float,
    origin: Tensor,
    params: MatrixCapsulesModelParams,
) -> Parents:
    """The M-step of `params.activation`. With batch norm, activations are given before their logistic.

    Args:
        before: poses of the iteration before; None in the first.
        beta_a, beta_u: one for each capsule type, `[D]`, in nats.
        inverse_temperature: lambda of this iteration.
        origin: where a pose of 0 lies in the coordinates that votes are given in, `[..., P]`.
    """
    if params.activation == "bayes":
        return _bayes(moments, beta_a, beta_u, origin, params)
    mass = moments.mass.unsqueeze(-1) + _LEAST_MASS
    mean = moments.first / mass
    damping = params.damping if before is not None or params.damped_first else 0.0
    before = origin if before is None else before
    poses = (1 - damping) * mean + damping * before
    # About the damped mean; rounding may leave less than nothing.
    spread = moments.second - 2 * poses * moments.first + poses.square() * moments.mass.unsqueeze(-1)
    spread = spread.clamp_min(0) / mass
    variance = params.variance_floor + spread
    if params.activation == "mixing":
        total = moments.mass.flatten(1).sum(1).view(-1, *[1] * (moments.mass.dim() - 1))
        activations = moments.mass / total.clamp_min(_LEAST_MASS)
        log_activations = activations.clamp_min(torch.finfo(mass.dtype).tiny).log()
    else:
        cost = moments.mass * (poses.shape[-1] * beta_u + 0.5 * variance.log().sum(-1))
        logits = inverse_temperature * (beta_a - cost)
        activations, log_activations = logits.sigmoid(), torch.nn.functional.logsigmoid(logits)
    constant = log_activations - 0.5 * ((2 * math.pi * variance).log() + poses.square() / variance).sum(-1)
    return Parents(poses, activations, constant, poses / variance, -0.5 / variance)


def _bayes(
    moments: Moments, beta_a: Tensor, beta_u: Tensor, origin: Tensor, params: MatrixCapsulesModelParams
) -> Parents:
    """Posteriors in closed form; the activation is the logistic of beta_a minus the share of the capsule times
    (beta_u for each number of a vote, plus the expected entropy of one). A pose's prior mean, 0, is at `origin`.
    """
    priors = params.bayes
    mass, size = moments.mass.unsqueeze(-1), moments.first.shape[-1]
    strength = priors.kappa0 + mass  # kappa
    mean = (moments.first + priors.kappa0 * origin) / strength
    shape = priors.nu0 / 2 + 0.5 * mass  # nu / 2
    scatter = moments.second + priors.kappa0 * origin.square() - strength * mean.square()
    rate = 0.5 / priors.psi0 + 0.5 * scatter.clamp_min(0)  # half the diagonal of Psi^-1
    share = priors.alpha0 + moments.mass
    if priors.shares_of == "layer":
        total = share.flatten(1).sum(1).view(-1, *[1] * (share.dim() - 1))
    else:
        total = share.sum(-1, keepdim=True)
    log_share = share.digamma() - total.digamma()  # E ln pi
    freedom = shape
    if priors.precisions == "wishart":
        freedom = shape - 0.5 * torch.arange(size, device=shape.device, dtype=shape.dtype)
    log_precision = (freedom.digamma() - rate.log()).sum(-1)  # E ln det Lambda
    precision = shape / rate
    entropy = 0.5 * (size * math.log(2 * math.pi * math.e) - log_precision)
    logits = beta_a - log_share.exp() * (size * beta_u + entropy)
    quadratic = -0.5 * precision
    constant = log_share + 0.5 * (log_precision - size * math.log(2 * math.pi))
    constant = constant - 0.5 * (1 / strength * size).squeeze(-1) + (quadratic * mean.square()).sum(-1)
    return Parents(mean, logits if params.batch_norm else logits.sigmoid(), constant, precision * mean, quadratic)
