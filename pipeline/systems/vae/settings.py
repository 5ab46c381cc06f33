"""Settings of the variational autoencoder."""

from typing import Literal

from pydantic import Field

from pipeline.learning.settings import AugmentationParams, RunSettings
from pipeline.settings import Section


class VAEModelParams(Section):
    """The variational autoencoder, a baseline in section 5 of document 000."""

    latent: int = Field(ge=1, le=4096, description="number of dimensions of the latent code")
    hidden: int = Field(ge=1, le=65_536, description="number of hidden units of the encoder, and of the decoder")
    pixels: Literal["normal", "bernoulli"] = Field(
        description="distribution of a pixel around the reconstruction; bernoulli: the usual cross-entropy of grey "
        "values in [0, 1], which is not a density of grey values"
    )
    pixel_sd: float = Field(
        gt=0, le=1, description="sd of a normal pixel around the reconstruction (white is 1); bernoulli ignores it"
    )


class VAERun(RunSettings):
    """A run of the variational autoencoder."""

    variant: Literal["vae"]
    augmentation: AugmentationParams
    model: VAEModelParams
