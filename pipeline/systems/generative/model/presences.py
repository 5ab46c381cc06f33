"""Relaxed presences: binary concrete variables kept as logits (document 000, section 2.2).

With logistic noise l, a relaxed presence of probability sigmoid(a) at temperature tau is t = sigmoid(y) with
y = (a + l) / tau. Densities are those of the logit y, not of t: nothing saturates, and the Jacobian of the sigmoid
cancels between model and guide.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from pyro.distributions import TorchDistribution
from torch import Generator, Tensor
from torch.distributions import constraints


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


class RelaxedPresence(TorchDistribution):
    """The logit of a relaxed presence with log odds `logits` at `temperature`.

    Args:
        logits: log odds of being present, any shape (the batch shape).
        temperature: positive, a number or a scalar tensor; smaller is closer to 0 or 1.
        noise: standard logistic noise for `rsample`, with the shape of `logits`. The caller draws it, so that seeds
            trained together get the same noise as alone. None: drawn at each call.
    """

    arg_constraints = {"logits": constraints.real}  # noqa: RUF012 (the form that torch.distributions reads)
    support = constraints.real
    has_rsample = True

    def __init__(self, logits: Tensor, temperature: Tensor | float, noise: Tensor | None = None) -> None:
        self.logits, self.temperature, self.noise = logits, temperature, noise
        super().__init__(logits.shape, validate_args=False)

    def expand(self, batch_shape: torch.Size, _instance: object = None) -> RelaxedPresence:
        noise = None if self.noise is None else self.noise.expand(batch_shape)
        return RelaxedPresence(self.logits.expand(batch_shape), self.temperature, noise)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:  # noqa: B008 (torch's own signature)
        noise = self.noise
        if noise is None:
            noise = logistic_noise(self.shape(sample_shape), None, self.logits.device).to(self.logits.dtype)
        return (self.logits + noise) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        return presence_log_prob(value, self.logits, self.temperature)
