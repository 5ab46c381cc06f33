"""What the guide says of the capsules of a batch, and the distributions that it samples (document 000, section 2.3).

Noise is drawn by the caller, so that it depends on the seed and the epoch alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Normal

from pipeline.systems.generative.model.hierarchy import join, scale_gradient
from pipeline.systems.generative.model.presences import InFull, RelaxedPresence


@dataclass(frozen=True)
class Capsules:
    """The posterior of a batch: log odds of presence and poses, of parts and of objects."""

    part_logits: Tensor  # (B, P)
    part_poses: Tensor  # (B, P, 6)
    object_logits: Tensor  # (B, O)
    object_poses: Tensor  # (B, O, 6)


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
        A: delta poses `[B, P, 6]`, or Gaussian ones.
        coupling: factor on the gradient of the poses' density. It must be that of the prior's: with no gradient from
            the prior, the entropy of the poses of absent parts, which no pixel depends on, would grow without bound.
    """

    def __init__(self, presence: RelaxedPresence, A: Tensor | GaussianPoses, coupling: Tensor | float = 1.0) -> None:
        self.presence, self.A, self.coupling = presence, A, coupling
        shape = presence.batch_shape
        super().__init__(shape[:-1], torch.Size([shape[-1], 7]))

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        return join(self.presence.rsample(), self.A if isinstance(self.A, Tensor) else self.A.rsample())

    def log_prob(self, value: Tensor) -> Tensor:
        """Log density of presences and Gaussian poses; of the presences alone if poses are deltas."""
        presences = self.presence.log_prob(value[..., 0]).sum(-1)
        if isinstance(self.A, Tensor):
            return presences
        return presences + scale_gradient(self.A.log_prob(value[..., 1:]).sum(-1), self.coupling)
