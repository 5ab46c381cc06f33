"""Relaxed presences: binary concrete variables kept as logits (document 000, section 2.2).

With logistic noise l, a relaxed presence of probability sigmoid(a) at temperature tau is t = sigmoid(y) with
y = (a + l) / tau. Densities are those of the logit y, not of t: nothing saturates, and the Jacobian of the sigmoid
cancels between model and guide.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from pyro.distributions import TorchDistribution
from torch import Generator, Tensor


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


class InFull(TorchDistribution):
    """A distribution made in its full shape, so that Pyro's plates have nothing to expand."""

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
        temperature: positive, a number or a scalar tensor; smaller is closer to 0 or 1.
        noise: standard logistic noise for `rsample`, with the shape of `logits`; None: drawn at each call.
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
