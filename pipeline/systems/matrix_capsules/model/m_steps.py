"""What a capsule makes of the votes assigned to it: M-steps of EM routing (document 004, section 3, Procedure 1).

These follow the procedure as printed. In the authors' published code there is no half before the log variances, so that
lambda counts twice; beta_u is in units of (1 + ln 2 pi) / 2 nats; beta_a is in 5,000 nats, with the other sign; and the
first mean is damped too, towards 0.

Every M-step sees votes only through their moments, and says what the E-step is to think of a vote V by three
coefficients: log density (times activation) = constant + sum over h of (linear_h V_h + quadratic_h V_h^2). Shapes: any
leading axes `...` with the capsule types last among them, poses of P numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

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


@dataclass(frozen=True)
class MStep:
    """An M-step with its constants.

    Attributes:
        activation: `mdl`: logistic of the description length saved (equation 2); `mixing`: share of all mass of the
            layer (section 5); `bayes`: variational Bayes (Ribeiro et al. 2020), whose Gaussians have Normal-Gamma
            posteriors and whose shares have a Dirichlet one.
        variance_floor: added to every variance.
        damping: share of the mean before in the new mean, from the second iteration on.
        inverse_temperature: lambda after infinitely many iterations; iteration i, from 0, has
            `inverse_temperature (1 - rate^(i + 1))`.
        inverse_temperature_rate: that rate; 0 for a lambda that stays.
    """

    activation: Literal["mdl", "mixing", "bayes"] = "mdl"
    variance_floor: float = 5e-4
    damping: float = 0.1
    inverse_temperature: float = 0.01
    inverse_temperature_rate: float = 0.95

    def inverse_temperature_at(self, index: int) -> float:
        """Lambda of an iteration, counted from 0."""
        return self.inverse_temperature * (1 - self.inverse_temperature_rate ** (index + 1))

    def __call__(
        self, moments: Moments, before: Tensor | None, beta_a: Tensor, beta_u: Tensor, index: int, origin: Tensor
    ) -> Parents:
        """The step.

        Args:
            before: poses of the iteration before; None in the first.
            beta_a, beta_u: one for each capsule type, `[D]`, in nats.
            index: of the iteration, from 0.
            origin: where a pose of 0 lies in the coordinates that votes are given in, `[..., P]`.
        """
        if self.activation == "bayes":
            return _bayes(moments, beta_a, beta_u, origin)
        mass = moments.mass.unsqueeze(-1) + _LEAST_MASS
        mean = moments.first / mass
        poses = mean if before is None else (1 - self.damping) * mean + self.damping * before
        # About the damped mean; rounding may leave less than nothing.
        spread = moments.second - 2 * poses * moments.first + poses.square() * moments.mass.unsqueeze(-1)
        spread = spread.clamp_min(0) / mass
        variance = self.variance_floor + spread
        if self.activation == "mixing":
            total = moments.mass.flatten(1).sum(1).view(-1, *[1] * (moments.mass.dim() - 1))
            activations = moments.mass / total.clamp_min(_LEAST_MASS)
            log_activations = activations.clamp_min(torch.finfo(mass.dtype).tiny).log()
        else:
            cost = moments.mass * (poses.shape[-1] * beta_u + 0.5 * variance.log().sum(-1))
            logits = self.inverse_temperature_at(index) * (beta_a - cost)
            activations, log_activations = logits.sigmoid(), torch.nn.functional.logsigmoid(logits)
        constant = log_activations - 0.5 * ((2 * math.pi * variance).log() + poses.square() / variance).sum(-1)
        return Parents(poses, activations, constant, poses / variance, -0.5 / variance)


_PRIOR_SHARE, _PRIOR_STRENGTH, _PRIOR_SHAPE, _PRIOR_RATE = 1.0, 1.0, 1.0, 0.5


def _bayes(moments: Moments, beta_a: Tensor, beta_u: Tensor, origin: Tensor) -> Parents:
    """Posteriors in closed form; the activation is the logistic of beta_a minus the share of the capsule times (beta_u
    for each number of a vote, plus the expected entropy of one). The prior mean of a pose is 0, at `origin`.
    """
    mass, size = moments.mass.unsqueeze(-1), moments.first.shape[-1]
    strength = _PRIOR_STRENGTH + mass  # kappa
    mean = (moments.first + _PRIOR_STRENGTH * origin) / strength
    shape = _PRIOR_SHAPE + 0.5 * mass
    scatter = moments.second + _PRIOR_STRENGTH * origin.square() - strength * mean.square()
    rate = _PRIOR_RATE + 0.5 * scatter.clamp_min(0)
    share = _PRIOR_SHARE + moments.mass
    total = share.flatten(1).sum(1).view(-1, *[1] * (share.dim() - 1))
    log_share = share.digamma() - total.digamma()  # E ln pi
    log_precision = (shape.digamma() - rate.log()).sum(-1)  # E ln det Lambda
    precision = shape / rate
    entropy = 0.5 * (size * math.log(2 * math.pi * math.e) - log_precision)
    activations = (beta_a - log_share.exp() * (size * beta_u + entropy)).sigmoid()
    quadratic = -0.5 * precision
    constant = log_share + 0.5 * (log_precision - size * math.log(2 * math.pi))
    constant = constant - 0.5 * (1 / strength * size).squeeze(-1) + (quadratic * mean.square()).sum(-1)
    return Parents(mean, activations, constant, precision * mean, quadratic)
