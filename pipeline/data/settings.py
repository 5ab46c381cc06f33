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
