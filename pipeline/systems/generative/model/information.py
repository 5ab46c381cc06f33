"""How much relaxed presences tell of the image, in nats.

The logit y of a relaxed presence with log odds a is (a + l) / temperature, l logistic (`presences`). Mutual information
and KL divergence do not change when y is scaled, so that everything here is about u = a + l, and holds at any
temperature that posterior and prior share. With N images, the mean posterior m(u) is the mixture of their posteriors
q(u | x) with equal weights, and the mutual information of presences and images is the mean over images of
KL(q(u | x) || m).

A probe on log odds is no such measure: it standardises them, which enlarges any trace of the image however small it is
beside the noise l.

Shapes: N images, O objects.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.systems.generative.model.distributions import presence_log_prob

LOGISTIC_ENTROPY = 2.0
"""Differential entropy of the standard logistic distribution."""

_TAIL = 20.0
"""The integrals end so far from the outermost log odds; e^-20 of the mass lies beyond."""
_POINTS = 513
"""Of the trapezoidal rule. Up to log odds that differ by 200, its step is below 1/2, and its error below 1e-6."""
_ROWS = 128
"""Samples compared with all images at a time."""


def joint_information(logits: Tensor, noise: Tensor) -> Tensor:
    """Monte Carlo estimate of the mutual information of all presences together and the image, a scalar.

    The mixture holds each sample's own posterior, so that in expectation the estimate is a lower bound for images at
    large, and it cannot exceed log N. Around zero it may be slightly negative.

    Args:
        logits: log odds `[N, O]`.
        noise: standard logistic noise `[N, O]`, one sample per image.
    """
    own = presence_log_prob(noise, torch.zeros_like(noise), 1.0).sum(-1)  # (N,)
    mixture = [
        presence_log_prob(u.unsqueeze(1), logits, 1.0).sum(-1).logsumexp(-1) for u in (logits + noise).split(_ROWS)
    ]
    return (own - torch.cat(mixture)).mean() + math.log(len(logits))


def binary_information(logits: Tensor, noise: Tensor) -> Tensor:
    """As `joint_information`, of presences that are 0 or 1: where their logit is above 0. At most O log 2.

    A relaxed presence has a value besides, so that its information is larger.
    """
    on = (logits + noise > 0).to(logits)
    off = F.softplus(logits).sum(-1)  # log p(b | x) = sum_o b_o logits_o - softplus(logits_o)
    own = (on * logits).sum(-1) - off
    mixture = [(rows @ logits.T - off).logsumexp(-1) for rows in on.split(_ROWS)]
    return (own - torch.cat(mixture)).mean() + math.log(len(logits))


def information_by_object(logits: Tensor) -> Tensor:
    """Mutual information of each presence by itself and the image, `[O]`, by numerical integration.

    Given the image presences are independent, so that the sum over objects is at least the information of all together:
    what several objects tell alike is counted once for each.

    Args:
        logits: log odds `[N, O]`.
    """
    unit = torch.linspace(0, 1, _POINTS, dtype=logits.dtype, device=logits.device)
    found = []
    for own in logits.unbind(-1):
        low, width = own.amin() - _TAIL, own.amax() - own.amin() + 2 * _TAIL
        log_density = presence_log_prob(low + width * unit, own.unsqueeze(-1), 1.0)  # (N, points)
        log_mean = log_density.logsumexp(0) - math.log(len(own))
        step = width / (_POINTS - 1)
        entropy = -(log_mean.exp() * log_mean).sum() * step  # the ends contribute next to nothing
        found.append(entropy - LOGISTIC_ENTROPY)
    return torch.stack(found)


def presence_kl(logits: Tensor, prior_logits: Tensor | float) -> Tensor:
    """KL divergence of relaxed presences from others at the same temperature, elementwise.

    Of two standard logistic distributions d apart it is d coth(d / 2) - 2: about d^2 / 6 where d is small, |d| - 2
    where it is large.
    """
    d = (logits - prior_logits).abs()
    small = d < 1e-2
    safe = torch.where(small, torch.ones_like(d), d)
    exact = safe * (1 + (-safe).exp()) / -torch.expm1(-safe) - LOGISTIC_ENTROPY
    return torch.where(small, d.square() / 6, exact)
