"""A plain variational autoencoder (Kingma & Welling 2013), the model without poses in document 000, section 5.

    model: z ~ N(0, I), x ~ N(decoder(z), pixel_sd) or Bern(decoder(z));    guide q(z | x): z ~ N(mu(x), sigma(x))

Encoder and decoder have one hidden layer each. Shapes: B images `[B, 1, S, S]` in [0, 1], latent code z `[B, Z]`.
"""

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from pipeline.layers.traces import traced
from pipeline.learning.model import Model
from pipeline.systems.vae.settings import VAEModelParams

SMALLEST = 1e-6
"""Probabilities of Bernoulli pixels are clamped to [`SMALLEST`, 1 - `SMALLEST`]."""


class VAE(Model):
    """Variational autoencoder: encoder S * S -> hidden -> (mu, sigma), decoder Z -> hidden -> S * S.

    Args:
        params: sizes, and the distribution of pixels.
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
        """Mean and sd of q(z | x), `[B, Z]` each, of images `[B, 1, S, S]`."""
        mu, raw = self.encoder(images).chunk(2, dim=-1)
        return mu, F.softplus(raw) + 1e-4

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Features for probes: "mu_sigma" `[B, 2 Z]` has mean and sd of the code (document 000, section 5.1)."""
        return {"mu_sigma": torch.cat(self.encode(images), dim=1)}

    def model(self, images: Tensor) -> Tensor:
        """The generative process of images as a Pyro model. Returns the decoded means `[B, S, S]`."""
        like, count = next(self.decoder.parameters()), len(images)
        with pyro.plate("images", count):
            # Mean and sd are tensors on the device, because Python numbers would be copied from the CPU at every step.
            z = pyro.sample("z", dist.Normal(like.new_zeros(count, self.params.latent), like.new_ones(())).to_event(1))
            mean = self.decoder(z).unflatten(-1, (self.image_size, self.image_size))
            pixels: dist.TorchDistribution
            if self.params.pixels == "normal":
                pixels = dist.Normal(mean, mean.new_full((), self.params.pixel_sd))
            else:
                # Clamping avoids log 0. Validation is off, because grey values are outside the Bernoulli's support.
                pixels = dist.Bernoulli(mean.clamp(SMALLEST, 1 - SMALLEST), validate_args=False)
            pyro.sample("pixels", pixels.to_event(2), obs=images[:, 0])
        return mean

    def guide(self, images: Tensor, noise: Tensor) -> None:
        """The approximate posterior q(z | x) as a Pyro guide. `noise [B, Z]` is standard normal."""
        with pyro.plate("images", images.shape[0]):
            mu, sigma = self.encode(images)
            # `noise` makes z a sample of q(z | x). Pyro gets z as a delta distribution with the log density of q.
            z = mu + sigma * noise
            density = dist.Normal(mu, sigma).log_prob(z).sum(-1)
            pyro.sample("z", dist.Delta(z, log_density=density, event_dim=1))

    def draw_noise(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Standard normal noise for `shape` images, `[*shape, noise_size]`."""
        return torch.randn((*shape, self.noise_size), generator=generator, device=generator.device)

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The mean negative bound of the images, in nats, and metrics by name. `epoch` and `labels` are unused."""
        p, q = traced(lambda: self.model(images), lambda: self.guide(images, noise))
        terms = {
            "log_pixels": p["pixels"]["log_prob"],
            "log_latent": p["z"]["log_prob"],
            "entropy": -q["z"]["log_prob"],
        }
        bound = terms["log_pixels"] + terms["log_latent"] + terms["entropy"]
        error = ((images[:, 0] - p["_RETURN"]["value"]) ** 2).sum((-1, -2))
        values = {"bound": bound, **terms, "pixel_error": error}
        return -bound.mean(), {name: value.detach().mean() for name, value in values.items()}
