"""Settings of data sets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.settings import Section


class DatasetParams(Section):
    """One data set: where it comes from and how it is split."""

    source: Literal[
        "digits", "mnist", "fashion-mnist", "cifar10", "smallnorb", "smallnorb48", "smallnorb48-posed", "toys"
    ] = Field(description="entry of the registry of sources")
    train: int = Field(ge=1, description="training images kept (the first ones of the training part)")
    canvas: int = Field(
        ge=28,
        le=256,
        description="pixels: side of the black canvas that images are centred on; at least the side of the images (28; "
        "CIFAR-10 32; smallNORB and the toys 48)",
    )
    validation: int = Field(ge=1, description="images of the official training part held out for validation")
    test: int = Field(ge=1, description="test images kept (the first ones of the test part)")
    split_seed: int | None = Field(
        ge=0,
        description="seed of the fixed train/validation/test shuffle; null: no shuffle, the last published training "
        "images are for validation",
    )


class HoldoutParams(Section):
    """Validation by images unlike those trained on, such as those of toys that training never sees."""

    factor: Literal["instance", "azimuth", "elevation", "lighting"] = Field(
        description="what is known of the images of smallNORB and of toys, by which some are held out"
    )
    value: int = Field(
        ge=0,
        description="training images of this value validate, those of every class (instance 0 to 9; azimuth and "
        "elevation in degrees; lighting 0 to 5); of the training images of smallNORB and toys, instances are 4, 6, 7, "
        "8 and 9",
    )
    known_share: float = Field(
        ge=0,
        lt=1,
        description="share of the others that is not trained on either, but measured after every epoch: the error on "
        "known objects beside that on new ones; 0: none",
    )
