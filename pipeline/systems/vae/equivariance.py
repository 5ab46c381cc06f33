"""The layer of a VAE for measures of equivariance: the mean of the code. Theory gives no action rho for it."""

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, plain
from pipeline.systems.vae.model.vae import VAE


def read(model: VAE, images: Tensor) -> dict[str, Layer]:
    """Layers of images `[B, 1, S, S]` in [0, 1]: code."""
    return {"code": plain(model.encode(images)[0].unsqueeze(1), None)}
