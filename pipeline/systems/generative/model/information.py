"""Mutual information of relaxed presences and the image, in nats.

The logit y of a relaxed presence with log odds a is (a + l) / temperature, where l is logistic noise (`distributions`).
Scaling y does not change mutual information or KL divergence. So all functions use u = a + l, and hold at any
temperature that posterior and prior share. With N images, the mean posterior m(u) is the mixture of the images'
posteriors q(u | x) with equal weights. The mutual information of presences and images is the mean over images of
KL(q(u | x) || m).

A probe on log odds does not measure this information. The log odds may depend on the image much less than the noise l
varies, but the probe standardises them, and so enlarges this dependence.

Shapes: N images, O objects.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.systems.generative.model.distributions import presence_log_prob

LOGISTIC_ENTROPY = 2.0
"""Differential entropy of the standard logistic distribution."""

_TAIL = 20.0
"""Distance of the integrals' limits from the outermost log odds; e^-20 of the mass lies beyond."""
_POINTS = 513
"""Points of the trapezoidal rule. If log odds differ by at most 200, the step is below 1/2, the error below 1e-6."""
_ROWS = 128
"""Samples compared with all images at a time."""


def joint_information(logits: Tensor, noise: Tensor) -> Tensor:
    """Monte Carlo estimate of the mutual information of all presences together and the image, a scalar.

    The mixture includes the posterior that a sample is from. So the expected estimate is at most log N, and at most the
    information over the distribution of all images. An estimate near zero may be slightly negative.

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
    """As `joint_information`, for presences rounded to 1 if their logit is above 0, otherwise to 0. At most O log 2.

    The information of relaxed presences is at least as large, because rounding can only lose information.
    """
    on = (logits + noise > 0).to(logits)
    off = F.softplus(logits).sum(-1)  # log p(b | x) = sum_o b_o logits_o - softplus(logits_o)
    own = (on * logits).sum(-1) - off
    mixture = [(rows @ logits.T - off).logsumexp(-1) for rows in on.split(_ROWS)]
    return (own - torch.cat(mixture)).mean() + math.log(len(logits))


def information_by_object(logits: Tensor) -> Tensor:
    """Mutual information of each single presence and the image, `[O]`, by numerical integration.

    The sum over objects is at least the joint information, because presences are independent given the image. The sum
    counts information that several objects share once per object.

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
    """Elementwise KL divergence of relaxed presences with log odds `logits` from relaxed presences with `prior_logits`.

    For logistic distributions of scale 1 at distance d, the divergence is d coth(d / 2) - 2. It is about d^2 / 6 for
    small d and |d| - 2 for large d.
    """
    d = (logits - prior_logits).abs()
    small = d < 1e-2
    safe = torch.where(small, torch.ones_like(d), d)
    exact = safe * (1 + (-safe).exp()) / -torch.expm1(-safe) - LOGISTIC_ENTROPY
    return torch.where(small, d.square() / 6, exact)
