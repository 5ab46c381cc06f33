"""Relaxed presences, and what a guide says of the capsules of a batch (document 000, sections 2.2 and 2.3).

Relaxed presences are binary concrete variables kept as logits. With logistic noise l, one of probability sigmoid(a) at
temperature tau is t = sigmoid(y) with y = (a + l) / tau. Densities are those of the logit y, not of t: nothing
saturates, and the Jacobian of the sigmoid cancels between model and guide. The guide's noise is drawn by the caller, so
that it depends on the seed and the epoch alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.distributions import Normal


@dataclass(frozen=True)
class Capsules:
    """The posterior of a batch: log odds of presence and poses, of parts and of objects."""

    part_logits: Tensor  # (B, P)
    part_poses: Tensor  # (B, P, 6)
    object_logits: Tensor  # (B, O)
    object_poses: Tensor  # (B, O, 6)


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One sample of the capsules of each image of a batch from a guide, and what its density depends on."""

    part_logits: Tensor  # (B, P), log odds of q(t1)
    parts: Tensor  # (B, P, 7), states
    object_logits: Tensor  # (B, O), log odds of q(t0)
    y0: Tensor  # (B, O)
    object_poses: Tensor  # (B, O, 6)
    part_density: Normal | None = None  # of the poses of parts where they are Gaussian, not deltas
    object_density: Normal | None = None  # of the poses of objects

    def log_prob(self, temperature: Tensor | float, coupling: Tensor | float) -> Tensor:
        """Log density of presences and Gaussian poses, `[B]`; of the presences alone if poses are deltas.

        Args:
            coupling: factor on the gradient of the density of the parts' poses. It must be that of the prior's: with no
                gradient from the prior, the entropy of the poses of absent parts, which no pixel depends on, would grow
                without bound.
        """
        found = presence_log_prob(self.parts[..., 0], self.part_logits, temperature).sum(-1)
        if self.part_density is not None:
            of_poses = self.part_density.log_prob(self.parts[..., 1:]).sum(-1).sum(-1)
            found = found + scale_gradient(of_poses, coupling)
        found = found + presence_log_prob(self.y0, self.object_logits, temperature).sum(-1)
        if self.object_density is not None:
            found = found + self.object_density.log_prob(self.object_poses).sum(-1).sum(-1)
        return found


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
    # log u - log(1 - u); 1 - u is at least 2^-24, since `rand` draws multiples of it below 1
    return uniform.log() - (-uniform).log1p()


def presence_log_prob(y: Tensor, logits: Tensor, temperature: Tensor | float) -> Tensor:
    """Log density of relaxed-presence logits `y` of presences with log odds `logits`; elementwise, in nats."""
    shift = logits - temperature * y
    log_temperature = temperature.log() if isinstance(temperature, Tensor) else math.log(temperature)
    return shift - 2 * F.softplus(shift) + log_temperature
