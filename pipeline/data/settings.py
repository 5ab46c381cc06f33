"""Settings of data sets."""

from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.settings import Name, Section, Seed, check_once

SourceName = Literal[
    "digits", "mnist", "fashion-mnist", "affnist", "cifar10", "smallnorb", "smallnorb48", "smallnorb48-posed", "toys"
]
"""Names of the published data sets, and of the rendered toys."""


@dataclass(frozen=True)
class Published:
    """Properties of a source's images that are known before the images are read.

    Attributes:
        channels, side: an image's number of channels, and its height and width in pixels.
        classes: number of classes.
        images: number of training images, or of all images if there is no official test part; None if unknown.
        test: number of images in the official test part; 0 if there is none, or if the number is unknown.
        factors: names of the factors of variation that are known for all images; None if they are known only for some.
    """

    channels: int
    side: int
    classes: int
    images: int | None
    test: int
    factors: tuple[str, ...] | None = ()


_VIEWS = ("instance", "azimuth", "elevation", "lighting")
PUBLISHED = {
    "digits": Published(1, 28, 10, 1797, 0),
    "mnist": Published(1, 28, 10, 60_000, 10_000),
    "fashion-mnist": Published(1, 28, 10, 60_000, 10_000),
    "cifar10": Published(3, 32, 10, 50_000, 10_000),
    "smallnorb": Published(2, 48, 5, 24_300, 24_300, _VIEWS),
    "smallnorb48": Published(2, 48, 5, 24_300, 24_300, None),  # viewpoints are known for the test part only
    "smallnorb48-posed": Published(2, 48, 5, 14_580, 9_720, _VIEWS),
    "toys": Published(2, 48, 5, 24_300, 24_300, _VIEWS),
}
"""Properties of the sources of data sets, by name. `side` is the size of images from `data.published.READERS`."""


class DatasetParams(Section):
    """The source and the split of one data set."""

    source: Name = Field(description="one of `sources` other than affnist, or a key of `own_images`")
    train: int = Field(ge=1, le=10_000_000, description="number of training images")
    canvas: int = Field(
        ge=28, le=256, description="pixels: side of the black canvas around each image, at least the image's side"
    )
    validation: int = Field(ge=1, le=10_000_000, description="number of validation images, not from the test part")
    test: int = Field(ge=1, le=10_000_000, description="number of test images")
    split_seed: Seed | None = Field(
        description="seed of the shuffle before the split; null: no shuffle, and the last images are for validation"
    )

    def check_counts(self, where: str, source: str, images: int | None, test: int) -> None:
        """ValueError if the split needs more images than the source has. For `images` and `test`, see `Published`."""
        parts = [("train", "validation"), ("test",)] if test else [("train", "validation", "test")]
        for wanted, there in zip(parts, (images, test), strict=False):
            total = sum(getattr(self, part) for part in wanted)
            if there is not None and total > there:
                raise ValueError(f"{where}: {' + '.join(wanted)} must be at most {there} for {source} (found {total})")


class OwnImagesParams(Section):
    """The user's own images as a source of data sets (docs/own-images.md)."""

    path: str = Field(min_length=1, max_length=4096, description="absolute path, or path relative to the repository")
    format: Literal["folder", "npz"] = Field(
        description="folder: PNG and JPEG files in a folder per class; npz: a file with arrays images and labels"
    )
    test_part: bool = Field(
        description="true: folders train/<class> and test/<class> (npz: also arrays test_images and test_labels); "
        "false: test images are taken from all images"
    )
    classes: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        min_length=2, max_length=1000, description="names of classes and of their folders, for labels 0, 1, ..."
    )
    channels: int = Field(ge=1, le=3, description="1: grey; 2: stereo pairs, in an npz only; 3: red, green, blue")
    side: int = Field(ge=8, le=256, description="pixels: height and width that images are resized to")
    fit: Literal["pad", "crop", "stretch"] = Field(
        description="how an image becomes square: padded with black (pad), cropped to its middle (crop), or stretched"
    )

    @field_validator("path")
    @classmethod
    def _local(cls, path: str) -> str:
        if "://" in path or path.startswith("~") or not path.isprintable():
            raise ValueError("must be a path on this machine, written out (no URL, no ~, no control characters)")
        return path

    @field_validator("classes")
    @classmethod
    def _folder_names(cls, classes: list[str]) -> list[str]:
        for name in classes:
            if name.startswith(".") or "/" in name or not name.isprintable():
                raise ValueError(f"{name!r} cannot name a class: no /, no control characters, no dot at the start")
        return check_once(classes)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.format == "folder" and self.channels == 2:
            raise ValueError("channels must be 1 or 3 with format: folder")
        return self

    @property
    def known(self) -> Published:
        """Properties of the images that are known before they are read."""
        return Published(self.channels, self.side, len(self.classes), None, 0)


class HoldoutParams(Section):
    """Validate on images with one value of a factor. For the factor `instance`, these images show one toy per class."""

    factor: Literal["instance", "azimuth", "elevation", "lighting"] = Field(
        description="images are held out by the value of this factor (smallNORB and toys only)"
    )
    value: int = Field(
        ge=0,
        le=360,
        description="images with this value of the factor are held out (instance: one of the training part; azimuth "
        "and elevation: in degrees; lighting: 0 to 5)",
    )
    known_share: float = Field(
        ge=0, lt=1, description="share of images with other values to test on after every epoch, not to train on"
    )
