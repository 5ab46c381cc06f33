"""Settings of classifiers, and of attacks on them."""

from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.data.settings import HoldoutParams
from pipeline.errors import UserError
from pipeline.learning.settings import CropParams, RunSettings
from pipeline.settings import Name, Section, check_once

Mixup = Annotated[
    float, Field(ge=0, le=100, description="training mixes image pairs with shares from Beta(mixup, mixup); 0: none")
]


class ClassifierRun(RunSettings):
    """A run of a classifier: a network that learns from labels."""

    def check_fits(self, channels: int, size: int, classes: int) -> None:
        """Raise `UserError` as `RunSettings.check_fits` does, or if the network has fewer outputs than `classes`."""
        super().check_fits(channels, size, classes)
        model: Any = self.model  # every classifier's model has a number of classes
        if model.classes < classes:
            raise UserError(f"model.classes is {model.classes}, but {self.dataset} has {classes} classes")


class CroppedRun(ClassifierRun):
    """A run of a network of document 004 on crops of images. `holdout` can select the images for validation."""

    augmentation: CropParams
    holdout: HoldoutParams | None = Field(description="images for validation; null: the data set's validation images")
    watched: int = Field(ge=0, le=10_000_000, description="number of random test images to test on after every epoch")

    @model_validator(mode="after")
    def _light_is_seen(self) -> Self:
        if self.channels == 1 and (self.augmentation.gain or self.augmentation.offset):
            raise ValueError(
                "augmentation.gain and augmentation.offset must be 0: the network standardises images of one channel, "
                "which undoes both; augmentation.gamma has an effect"
            )
        return self


class AttackParams(Section):
    """Settings of adversarial attacks (document 004, section 6)."""

    capsules: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    cnn: Name = Field(description="a key of `runs` whose variant is cnn, with at least two replicas")
    images: int = Field(ge=1, le=10_000_000, description="number of test images to attack (the first ones)")
    epsilons: Annotated[list[Annotated[float, Field(ge=0, le=1)]], AfterValidator(check_once)] = Field(
        description="maximum changes of a pixel's value to try, for values in [0, 1]; one must be 0, for comparison"
    )
    steps: int = Field(ge=2, le=1000, description="steps of the basic iterative method")

    @model_validator(mode="after")
    def _compared(self) -> Self:
        if 0 not in self.epsilons or not any(self.epsilons):
            raise ValueError("epsilons must have 0 (no attack) and a number above 0")
        return self
