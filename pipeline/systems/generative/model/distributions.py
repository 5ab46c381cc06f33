"""Relaxed presences, and the guide's posterior of the capsules of a batch (document 000, sections 2.2 and 2.3).

Relaxed presences are binary concrete variables kept as logits. With logistic noise l, a presence of probability
sigmoid(a) at temperature tau is t = sigmoid(y), where y = (a + l) / tau. Densities are of y, not of t, because y does
not saturate. This does not change the bound: the sigmoid's Jacobian cancels between model and guide. The caller draws
the guide's noise, so that the noise depends on the seed and the epoch alone.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from pyro.distributions import TorchDistribution
from torch import Generator, Tensor
from torch.distributions import Normal


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
    """Presence logits `[..., n]` and poses `[..., n, 6]` as capsule states `[..., n, 7]`."""
    return torch.cat([y.unsqueeze(-1), A], dim=-1)


def logistic_noise(shape: tuple[int, ...], generator: Generator | None, device: torch.device | str) -> Tensor:
    """Standard logistic noise of the given shape."""
    smallest = torch.finfo(torch.float32).tiny
    uniform = torch.rand(shape, generator=generator, device=device).clamp_(min=smallest)
    # log u - log(1 - u); 1 - u is at least 2^-24, since `rand` draws multiples of 2^-24 below 1
    return uniform.log() - (-uniform).log1p()


def presence_log_prob(y: Tensor, logits: Tensor, temperature: Tensor | float) -> Tensor:
    """Elementwise log density, in nats, of the logits `y` of relaxed presences with log odds `logits`."""
    shift = logits - temperature * y
    log_temperature = temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)
    return shift - 2 * F.softplus(shift) + log_temperature


class InFull(TorchDistribution):
    """A distribution whose parameters have the full batch shape, so that Pyro's plates have nothing to expand."""

    arg_constraints: ClassVar[dict[str, object]] = {}
    has_rsample = True

    def __init__(self, batch_shape: torch.Size, event_shape: torch.Size = torch.Size()) -> None:  # noqa: B008
        super().__init__(batch_shape, event_shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> Self:
        return self


class RelaxedPresence(InFull):
    """The logit of a relaxed presence with log odds `logits` at `temperature`.

    Args:
        logits: log odds of being present, any shape (the batch shape).
        temperature: positive, a number or a scalar tensor; the smaller, the closer presences are to 0 or 1.
        noise: standard logistic noise for `rsample`, with the shape of `logits`; by default, drawn at each call.
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
    """Poses with independent normal elements, event shape `[6]`.

    Args:
        centre, sd: `[..., 6]`.
        noise: standard normal noise for the sample, with the shape of `centre`.
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
        coupling: factor on the gradient of the poses' log density, the same as for the prior. Poses of absent parts
            affect no pixel. If only the prior's gradient were scaled to zero, their entropy would grow without bound.
    """

    def __init__(self, presence: RelaxedPresence, A: Tensor | GaussianPoses, coupling: Tensor | float = 1.0) -> None:
        self.presence, self.A, self.coupling = presence, A, coupling
        shape = presence.batch_shape
        super().__init__(shape[:-1], torch.Size([shape[-1], 7]))

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        return join(self.presence.rsample(), self.A if isinstance(self.A, Tensor) else self.A.rsample())

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density, in nats, of presences and Gaussian poses, or of presences alone if poses are deltas."""
        presences = self.presence.log_prob(value[..., 0]).sum(-1)
        if isinstance(self.A, Tensor):
            return presences
        return presences + scale_gradient(self.A.log_prob(value[..., 1:]).sum(-1), self.coupling)
