"""The layer of a VAE whose equivariance is measured, the mean of the code. No theory predicts it for moved images."""

from torch import Tensor

from pipeline.probes.equivariance.actions import Layer, plain
from pipeline.systems.vae.model.vae import VAE


def read(model: VAE, images: Tensor) -> dict[str, Layer]:
    """The layer, under the name "code", for images `[B, 1, S, S]` in [0, 1]."""
    return {"code": plain(model.encode(images)[0].unsqueeze(1), None)}
