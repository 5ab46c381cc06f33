"""Settings of the convolutional network."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.classification.settings import CroppedRun, Mixup
from pipeline.settings import Section


class CNNModelParams(Section):
    """The convolutional baseline of document 004, section 5."""

    views: int = Field(ge=1, le=16, description="channels of an image: 2 for a stereo pair")
    channels: list[Annotated[int, Field(ge=1, le=4096)]] = Field(
        min_length=2, max_length=2, description="feature maps of the two convolutions"
    )
    kernel: int = Field(ge=1, le=31, description="pixels: side of both convolutions' kernels, an odd number")
    hidden: int = Field(ge=1, le=65_536, description="units of the fully connected layer")
    dropout: float = Field(ge=0, lt=1, description="dropout probability of the fully connected layer's units")
    mixup: Mixup
    classes: int = Field(ge=2, le=1000, description="number of outputs")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError("kernel must be odd")
        return self


class CNNRun(CroppedRun):
    """A run of the convolutional network."""

    variant: Literal["cnn"]
    model: CNNModelParams
