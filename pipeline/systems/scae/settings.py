"""Settings of the stacked capsule autoencoder."""

from typing import Literal

from pydantic import Field

from pipeline.learning.settings import AugmentationParams, RunSettings
from pipeline.settings import Section


class SCAEModelParams(Section):
    """The stacked capsule autoencoder (Kosiorek et al. 2019), a baseline in Figure 4 of document 000."""

    objects: int = Field(ge=1, le=256, description="number of object capsules")
    parts: int = Field(ge=1, le=256, description="number of part capsules; each has a template")
    template_size: int = Field(ge=2, le=64, description="template height and width, in template pixels")
    part_features: int = Field(ge=1, le=1024, description="features of a part; its colour and objects depend on them")
    channels: int = Field(ge=1, le=1024, description="channels of each of the encoder's four convolutions")
    hidden: int = Field(ge=1, le=4096, description="width of the set transformer's blocks")
    blocks: int = Field(ge=1, le=32, description="number of self-attention blocks")
    attention: Literal["published", "presence"] = Field(
        description="term added to attention scores of parts with presence d: -1e32 (1 - d) as published, or log d"
    )
    code: int = Field(ge=1, le=4096, description="number of features per object after the set transformer")
    object_features: int = Field(ge=1, le=1024, description="number of features per object for its predictions")
    presence_noise: float = Field(ge=0, le=10, description="half width of the uniform noise on presence logits")
    deformation: float = Field(ge=0, le=1e6, description="weight of half the sum of squared deformations")
    posterior_within: float = Field(ge=0, le=1e6, description="weight of the entropy of objects' shares in an image")
    posterior_between: float = Field(
        ge=0, le=1e6, description="weight of the entropy of objects' shares in a batch, subtracted from the loss"
    )
    prior_within: float = Field(ge=0, le=1e6, description="weight of (sum of an image's presences - prior_sum)^2")
    prior_between: float = Field(
        ge=0, le=1e6, description="weight of (sum of an object's presences in a batch of B images - B / classes)^2"
    )
    prior_sum: float = Field(gt=0, le=256, description="target number of objects present in an image")
    classes: int = Field(ge=1, le=1000, description="an object should be present in 1 / classes of the images")


class SCAERun(RunSettings):
    """A run of the stacked capsule autoencoder."""

    variant: Literal["scae"]
    augmentation: AugmentationParams
    model: SCAEModelParams
