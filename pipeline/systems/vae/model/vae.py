"""A plain variational autoencoder (Kingma & Welling 2013), the model without poses in document 000, section 5.

    z ~ N(0, I), x ~ N(decoder(z), sigma) or Bern(decoder(z)); guide z ~ N(mu(x), sigma(x)); one hidden layer each way.

Shapes: B images `[B, 1, S, S]` in [0, 1], latent code `[B, Z]`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn
from torch.distributions import Bernoulli, Normal

from pipeline.learning.model import Model
from pipeline.systems.vae.settings import VAEModelParams

SMALLEST = 1e-6
"""Least probability of a Bernoulli pixel, and of its complement."""


class VAE(Model):
    """Encoder S * S -> hidden -> (mu, sigma), decoder Z -> hidden -> S * S.

    Args:
        params: sizes and the pixels' standard deviation.
        image_size: side S of the square images, in pixels.
    """

    def __init__(self, params: VAEModelParams, image_size: int) -> None:
        super().__init__()
        self.params, self.image_size = params, image_size
        self.noise_size = params.latent
        pixels = image_size**2
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, params.hidden), nn.ReLU(), nn.Linear(params.hidden, 2 * params.latent)
        )
        self.decoder: nn.Module = nn.Sequential(
            nn.Linear(params.latent, params.hidden), nn.ReLU(), nn.Linear(params.hidden, pixels), nn.Sigmoid()
        )

    def generative_parameters(self) -> int:
        """Number of the decoder's parameters."""
        return sum(p.numel() for p in self.decoder.parameters())

    def encode(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and sd of q(z | x) of images `[B, 1, S, S]`, `[B, Z]` each."""
        mu, raw = self.encoder(images).chunk(2, dim=-1)
        return mu, F.softplus(raw) + 1e-4

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Probe features of images `[B, 1, S, S]`: mu_sigma, mean and sd of the code (document 000, section 5.1)."""
        return {"mu_sigma": torch.cat(self.encode(images), dim=1)}

    def draw_noise(self, shape: tuple[int, ...], generator: Generator, device: torch.device | str) -> Tensor:
        """Noise for `shape` images, `[*shape, noise_size]`."""
        return torch.randn((*shape, self.noise_size), generator=generator, device=device)

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The negative bound per image, in nats, and its terms; `epoch` and `labels` are unused."""
        mu, sigma = self.encode(images)
        z = mu + sigma * noise
        entropy = -Normal(mu, sigma, validate_args=False).log_prob(z).sum(-1)
        mean = self.decoder(z).unflatten(-1, (self.image_size, self.image_size))
        pixels: Normal | Bernoulli
        if self.params.pixels == "normal":
            # The sd is a tensor on the device: a Python number would be copied from the CPU at every step.
            pixels = Normal(mean, mean.new_full((), self.params.pixel_sd), validate_args=False)
        else:
            # Away from 0 and 1, whose logarithms are infinite. Grey values are not in its support.
            pixels = Bernoulli(mean.clamp(SMALLEST, 1 - SMALLEST), validate_args=False)
        terms = {
            "log_pixels": pixels.log_prob(images[:, 0]).flatten(1).sum(-1),
            "log_latent": Normal(torch.zeros_like(z), z.new_ones(()), validate_args=False).log_prob(z).sum(-1),
            "entropy": entropy,
        }
        bound = terms["log_pixels"] + terms["log_latent"] + terms["entropy"]
        values = {"bound": bound, **terms, "pixel_error": ((images[:, 0] - mean) ** 2).sum((-1, -2))}
        return -bound.mean(), {name: value.detach().mean() for name, value in values.items()}
