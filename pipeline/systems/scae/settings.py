"""Settings of the stacked capsule autoencoder."""

from typing import Literal

from pydantic import Field

from pipeline.learning.settings import AugmentationParams, RunSettings
from pipeline.settings import Section


class SCAEModelParams(Section):
    """The stacked capsule autoencoder (Kosiorek et al. 2019), a baseline in Figure 4 of document 000."""

    objects: int = Field(ge=1, le=256, description="object capsules")
    parts: int = Field(ge=1, le=256, description="part capsules, one template each")
    template_size: int = Field(ge=2, le=64, description="template height and width, in template pixels")
    part_features: int = Field(ge=1, le=1024, description="features of a part, for its colour and as input of objects")
    channels: int = Field(ge=1, le=1024, description="channels of each of the encoder's four convolutions")
    hidden: int = Field(ge=1, le=4096, description="width of the set transformer's blocks")
    blocks: int = Field(ge=1, le=32, description="self-attention blocks")
    attention: Literal["published", "presence"] = Field(
        description="how presences d mask attention scores: minus (1 - d) 1e32 as published, or plus log d"
    )
    code: int = Field(ge=1, le=4096, description="features per object after the set transformer")
    object_features: int = Field(ge=1, le=1024, description="features per object for its predictions")
    presence_noise: float = Field(ge=0, le=10, description="half width of the uniform noise on presence logits")
    deformation: float = Field(ge=0, le=1e6, description="weight of half the squared deformations")
    posterior_within: float = Field(ge=0, le=1e6, description="weight of the entropy of objects' shares in an image")
    posterior_between: float = Field(ge=0, le=1e6, description="weight of the same entropy over the batch, subtracted")
    prior_within: float = Field(
        ge=0, le=1e6, description="weight of the squared distance of an image's sum of presences to prior_sum"
    )
    prior_between: float = Field(
        ge=0, le=1e6, description="weight of the squared distance of an object's sum in B images to B / classes"
    )
    prior_sum: float = Field(gt=0, le=256, description="target number of objects present in an image")
    classes: int = Field(ge=1, le=1000, description="target: an object is present in 1 / classes of the images")


class SCAERun(RunSettings):
    """A run of the stacked capsule autoencoder."""

    variant: Literal["scae"]
    augmentation: AugmentationParams
    model: SCAEModelParams
