"""Settings of a run, of its training, and of its augmentation."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.data.settings import HoldoutParams
from pipeline.errors import UserError
from pipeline.settings import Angle, Name, Section, Seed


class AugmentationParams(Section):
    """Random warps, drawn again for every training image in every epoch."""

    rotation: Angle
    shift: float = Field(ge=0, le=14, description="pixels: translation uniform in [-shift, +shift] on each axis")
    whole_pixels: bool = Field(description="whether shifts are whole numbers of pixels, without interpolation")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.whole_pixels and (self.shift % 1 or self.rotation):
            raise ValueError("if whole_pixels is true, shift must be a whole number and rotation 0")
        return self

    def seen_size(self, image_size: int) -> int:
        """Side (pixels) of a model's input for images with sides of `image_size` pixels."""
        return image_size


class CropParams(Section):
    """Random crops with random brightness and, if `warps` is true, random warps. They are drawn again in every epoch.

    Gain and offset are drawn for each channel. If channels shared them, `standardise` would remove them.
    All other changes are the same for all channels. Validation and tests use the unchanged central crop.
    """

    crop: int = Field(ge=4, le=256, description="pixels: side of the square cut out at a random place")
    gamma: float = Field(ge=0, le=2, description="values in [0, 1] get an exponent log-uniform in [e^-gamma, e^gamma]")
    gain: float = Field(
        ge=0, le=2, description="after gamma, each channel is multiplied by a factor log-uniform in [e^-gain, e^gain]"
    )
    offset: float = Field(ge=0, le=1, description="then a number uniform in [-offset, offset] is added per channel")
    rotation: Angle
    scale: float = Field(ge=0, le=1, description="sizes are multiplied by a factor log-uniform in [e^-scale, e^scale]")
    aspect: float = Field(ge=0, le=1, description="width / height is log-uniform in [e^-aspect, e^aspect], area fixed")
    shear: float = Field(ge=0, le=1, description="x is increased by y times a factor uniform in [-shear, shear]")
    shift: float = Field(
        ge=0,
        le=64,
        description="pixels: further translation, uniform in [-shift, shift] on each axis; edge pixels are repeated",
    )

    @property
    def warps(self) -> bool:
        """Whether images are also warped, not only cropped."""
        return any((self.rotation, self.scale, self.aspect, self.shear, self.shift))

    def seen_size(self, image_size: int) -> int:
        """Side (pixels) of a model's input for images with sides of `image_size` pixels."""
        return self.crop


class TrainingParams(Section):
    """Training by gradient descent."""

    epochs: int = Field(ge=1, le=10_000, description="maximum number of passes through the training images")
    batch_size: int = Field(ge=1, le=65_536, description="images per step")
    optimiser: Literal["adam", "rmsprop"] = Field(description="Adam, or RMSProp with momentum as in TensorFlow 1")
    learning_rate: float = Field(gt=0, le=1, description="step size at the start")
    final_learning_rate: float = Field(gt=0, le=1, description="step size at the end")
    decay: Literal["cosine", "exponential"] = Field(description="shape of the step size's decay from start to end")
    gradient_clip: float = Field(gt=0, le=1e30, description="a gradient with a larger norm is scaled down to this norm")
    patience: int = Field(ge=1, le=1_000_000, description="epochs without improvement after which training ends")
    averaging: float = Field(
        ge=0, le=0.5, description="mean age of averaged weights, as a share of the steps so far; 0: no averaging"
    )


class RunSettings(Section):
    """One entry of `runs`: the settings common to all systems. Subclasses narrow the types of `variant` and `model`."""

    variant: str
    dataset: Name = Field(description="a key of `datasets`")
    replicas: int = Field(ge=1, le=1000, description="number of seeds to train with: seed, seed + 1, ...")
    seed: Seed = Field(description="seed of the first replica")
    augmentation: AugmentationParams | CropParams = Field(description="random changes of training images")
    training: TrainingParams
    model: Section

    @property
    def seeds(self) -> list[int]:
        """One seed per replica."""
        return list(range(self.seed, self.seed + self.replicas))

    @property
    def channels(self) -> int:
        """Number of channels of images: the setting `views` of the model, or 1 if the model has no such setting."""
        return getattr(self.model, "views", 1)

    @property
    def held_out(self) -> HoldoutParams | None:
        """Which images are held out for validation. None if the data set's own validation images are used."""
        return getattr(self, "holdout", None)

    def check_fits(self, channels: int, size: int, classes: int) -> None:
        """Raise `UserError` if the run does not fit images `[N, channels, size, size]` of `classes` classes."""
        if self.channels != channels:
            images = f"images of {self.dataset} have {channels} channel{'s' * (channels > 1)}"
            setting = "model.views is" if hasattr(self.model, "views") else f"a model of variant {self.variant} takes"
            raise UserError(f"{images}, but {setting} {self.channels}")
        if (crop := self.augmentation.seen_size(size)) > size:
            raise UserError(f"augmentation.crop is {crop}, but images of {self.dataset} have {size}x{size} pixels")

    def without_effect(self) -> dict[str, str]:
        """For each setting of the model that has no effect, the condition for an effect, such as "competition: all"."""
        return {name: need for need, (met, names) in self._needs().items() for name in names if not met}

    def _needs(self) -> dict[str, tuple[bool, tuple[str, ...]]]:
        """By condition, such as "competition: all": whether it is met, and the names of settings that depend on it."""
        return {}

    def with_epochs(self, epochs: int) -> Self:
        """A copy of the run that trains for `epochs`, with the model's schedule shortened or extended in proportion.

        With an unchanged schedule, a short training would end before the model reaches its last phase.
        """
        training = self.training.model_copy(update={"epochs": epochs})
        model = self.model.model_copy(update=self._schedule_for(epochs))
        return self.model_copy(update={"training": training, "model": model})

    def _schedule_for(self, epochs: int) -> dict[str, Any]:
        """The model's settings that are numbers of epochs, by name, scaled for a training of `epochs`."""
        return {}
