"""Gaussian posteriors over poses with diagonal covariance (document 000, section 2.3)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import Normal, constraints


class GaussianPoses(TorchDistribution):
    """Poses with independent normal elements, event shape `[6]`.

    Args:
        centre, sd: `[..., 6]`.
        noise: standard normal noise for `rsample`, with the shape of `centre`. The caller draws it, so that seeds
            trained together get the same noise as alone. None: drawn at each call.
    """

    arg_constraints: ClassVar[dict[str, object]] = {}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, centre: Tensor, sd: Tensor, noise: Tensor | None = None) -> None:
        self.centre, self.sd, self.noise = centre, sd, noise
        super().__init__(centre.shape[:-1], centre.shape[-1:], validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> GaussianPoses:
        shape = torch.Size([*batch_shape, *self.event_shape])
        noise = None if self.noise is None else self.noise.expand(shape)
        return GaussianPoses(self.centre.expand(shape), self.sd.expand(shape), noise)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        noise = self.noise
        if noise is None:
            noise = torch.randn(self.shape(sample_shape), dtype=self.centre.dtype, device=self.centre.device)
        return self.centre + self.sd * noise

    def log_prob(self, value: Tensor) -> Tensor:
        return Normal(self.centre, self.sd, validate_args=False).log_prob(value).sum(-1)
