"""Relaxed presences, their information, the encoder's posterior, and the bound (document 000, sections 2.2, 2.3).

Relaxed presences are binary concrete variables, stored as logits. With logistic noise l, a presence of probability
sigmoid(a) at temperature tau is t = sigmoid(y), where y = (a + l) / tau. Densities are those of y, not of t, because t
may be rounded to 0 or 1. This does not change the bound: the sigmoid's Jacobian cancels between the model and the guide
(the encoder's posterior). The caller draws the guide's noise, so that it depends only on the seed and the epoch.

Mutual information and KL divergence do not depend on the scale of y. So the functions that compute them, in nats, use
u = a + l. Their results hold at any temperature, if it is the same for posterior and prior. With N images, the mean
posterior m(u) is the mixture of the images' posteriors q(u | x) with equal weights. The mutual information between
presences and images is the mean over images of KL(q(u | x) || m).

Shapes: B images, O objects, P parts.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from pyro.distributions import TorchDistribution
from torch import Generator, Tensor
from torch.distributions import Normal

LOGISTIC_ENTROPY = 2.0
"""Differential entropy of the standard logistic distribution, in nats."""
ROWS = 128
"""Number of samples whose densities under the posteriors of all images are computed at a time."""


@dataclass(frozen=True)
class Capsules:
    """The posterior of a batch: log odds of presence, and poses, for parts and objects."""

    part_logits: Tensor  # (B, P)
    part_poses: Tensor  # (B, P, 6)
    object_logits: Tensor  # (B, O)
    object_poses: Tensor  # (B, O, 6)


def inverse_softplus(value: float) -> float:
    """The number whose softplus is `value` > 0."""
    return math.log(math.expm1(value))


def scale_gradient(x: Tensor, factor: Tensor | float) -> Tensor:
    """`x`, with the gradient that flows back through it multiplied by `factor`."""
    return x.detach() + factor * (x - x.detach())


def join(y: Tensor, A: Tensor) -> Tensor:
    """Join presence logits `[..., n]` and poses `[..., n, 6]` into capsule states `[..., n, 7]`."""
    return torch.cat([y.unsqueeze(-1), A], dim=-1)


def logistic_noise(shape: tuple[int, ...], generator: Generator | None, device: torch.device | str) -> Tensor:
    """Standard logistic noise of the given shape."""
    smallest = torch.finfo(torch.float32).tiny
    uniform = torch.rand(shape, generator=generator, device=device).clamp_(min=smallest)
    # log u - log(1 - u). It is finite, because `rand` draws multiples of 2^-24 below 1, so 1 - u is at least 2^-24.
    return uniform.log() - (-uniform).log1p()


def presence_log_prob(y: Tensor, logits: Tensor, temperature: Tensor | float) -> Tensor:
    """Elementwise log density, in nats, of the logits `y` of relaxed presences with log odds `logits`."""
    shift = logits - temperature * y
    log_temperature = temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)
    return shift - 2 * F.softplus(shift) + log_temperature


def joint_information(logits: Tensor, noise: Tensor) -> Tensor:
    """Monte Carlo estimate (a scalar) of the mutual information between the image and all presences jointly, from
    log odds `[N, O]` and standard logistic noise `[N, O]`, with one sample per image.

    The mixture m contains the posterior that a sample is drawn from, with weight 1 / N. So no estimate exceeds log N.
    The expected estimate is at most the information in the population of images. An estimate near 0 may be negative.
    """
    own = presence_log_prob(noise, torch.zeros_like(noise), 1.0).sum(-1)  # (N,)
    mixture = [
        presence_log_prob(u.unsqueeze(1), logits, 1.0).sum(-1).logsumexp(-1) for u in (logits + noise).split(ROWS)
    ]
    return (own - torch.cat(mixture)).mean() + math.log(len(logits))


def presence_kl(logits: Tensor, prior_logits: Tensor | float) -> Tensor:
    """Elementwise KL divergence of relaxed presences with log odds `logits` from relaxed presences with `prior_logits`.

    For logistic distributions of scale 1 with means d apart, the divergence is d coth(d / 2) - 2. It is about d^2 / 6
    for small d, and about |d| - 2 for large d.
    """
    d = (logits - prior_logits).abs()
    small = d < 1e-2
    safe = torch.where(small, torch.ones_like(d), d)
    exact = safe * (1 + (-safe).exp()) / -torch.expm1(-safe) - LOGISTIC_ENTROPY
    return torch.where(small, d.square() / 6, exact)


class InFull(TorchDistribution):
    """A distribution whose parameters have the full batch shape, so that Pyro's plates have nothing to expand."""

    arg_constraints: ClassVar[dict[str, object]] = {}
    has_rsample = True

    def __init__(self, batch_shape: torch.Size, event_shape: torch.Size = torch.Size()) -> None:  # noqa: B008
        super().__init__(batch_shape, event_shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> Self:
        return self


class RelaxedPresence(InFull):
    """The logit of a relaxed presence with log odds `logits` of any shape (the batch shape).

    Args:
        temperature: positive, a number or a scalar tensor. At low temperatures, presences are close to 0 or 1.
        noise: standard logistic noise for `rsample`, with the shape of `logits`. By default, each call draws it.
    """

    def __init__(self, logits: Tensor, temperature: Tensor | float, noise: Tensor | None = None) -> None:
        self.logits, self.temperature, self.noise = logits, temperature, noise
        super().__init__(logits.shape)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        noise = self.noise
        if noise is None:
            noise = logistic_noise(self.shape(sample_shape), None, self.logits.device).to(self.logits.dtype)
        return (self.logits + noise) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        return presence_log_prob(value, self.logits, self.temperature)


class GaussianPoses(InFull):
    """Poses with independent normal elements, event shape `[6]`: `centre` plus `sd` times `noise`, which is standard
    normal. All arguments are `[..., 6]`.
    """

    def __init__(self, centre: Tensor, sd: Tensor, noise: Tensor) -> None:
        self.centre, self.sd, self.noise = centre, sd, noise
        super().__init__(centre.shape[:-1], centre.shape[-1:])

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        return self.centre + self.sd * self.noise

    def log_prob(self, value: Tensor) -> Tensor:
        return Normal(self.centre, self.sd, validate_args=False).log_prob(value).sum(-1)


class PartPosterior(InFull):
    """q(y1, A1): relaxed presences and poses of the parts, event shape `[P, 7]`.

    Args:
        A: delta poses `[B, P, 6]`, or Gaussian poses.
        coupling: factor on the gradient of the poses' log density. The gradient of log p(y1, A1 | y0, A0) with respect
            to parts has the same factor. If only this gradient were scaled to 0, nothing would balance the gradient of
            the entropy for the poses of absent parts, which affect no pixel. Their sds would grow without limit.
    """

    def __init__(self, presence: RelaxedPresence, A: Tensor | GaussianPoses, coupling: Tensor | float = 1.0) -> None:
        self.presence, self.A, self.coupling = presence, A, coupling
        shape = presence.batch_shape
        super().__init__(shape[:-1], torch.Size([shape[-1], 7]))

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        return join(self.presence.rsample(), self.A if isinstance(self.A, Tensor) else self.A.rsample())

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, in nats, of presences and Gaussian poses. Delta poses have no density and are left out."""
        presences = self.presence.log_prob(value[..., 0]).sum(-1)
        if isinstance(self.A, Tensor):
            return presences
        return presences + scale_gradient(self.A.log_prob(value[..., 1:]).sum(-1), self.coupling)


@dataclass(frozen=True)
class BoundTrace:
    """The evidence lower bound of each image of a batch, and its terms: tensors `[B]` in nats, unless noted."""

    log_pixels: Tensor
    log_parts: Tensor
    log_objects: Tensor
    entropy: Tensor
    parts: Tensor  # (B, P, 7), sampled states
    y0: Tensor  # (B, O), sampled presence logits
    object_logits: Tensor  # (B, O), log odds of q(t0)
    object_poses: Tensor  # (B, O, 6), sampled
    error: Tensor  # (B,), squared error summed over the pixels
    children: Tensor  # (B, O), each object's expected number of children under the exact posterior over parents

    @property
    def bound(self) -> Tensor:
        """One-sample estimate of the evidence lower bound of each image."""
        return self.log_pixels + self.log_parts + self.log_objects + self.entropy

    def metrics(self, c: Tensor) -> dict[str, Tensor]:
        """The bound, its terms and other metrics of each image, and three scalars. `c [P, O]` are sds of poses.

        The scalar pose_sd is the mean of `c`. The other two show whether a few objects have all children of the batch:
        most_children is the largest of the objects' mean numbers of children per image. objects_in_use is the
        perplexity of the objects' shares of all children, from 1 (one object has all children) to O.
        """
        children = self.children.mean(0)
        share = children / children.sum().clamp_min(1e-12)
        return {
            "bound": self.bound,
            "log_pixels": self.log_pixels,
            "log_parts": self.log_parts,
            "log_objects": self.log_objects,
            "entropy": self.entropy,
            "pixel_error": self.error,
            "parts_on": self.parts[..., 0].sigmoid().mean(-1),
            "objects_on": self.y0.sigmoid().mean(-1),
            "most_children": children.max(),
            "objects_in_use": (-torch.xlogy(share, share).sum()).exp(),
            "pose_sd": c.mean(),
        }
