"""Settings of the studies of classifiers: adversarial attacks, novel viewpoints, and routing."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol, Self, TypeVar, cast

from pydantic import Field, model_validator

from pipeline.data.settings import HoldoutParams
from pipeline.errors import UserError
from pipeline.learning.settings import CropParams, RunSettings
from pipeline.settings import Name, Section, neutral

Mixup = Annotated[
    float,
    Field(
        ge=0,
        le=100,
        description="in training, images are mixed in pairs by shares from Beta(mixup, mixup) (Zhang et al. 2018); "
        "0: no mixing",
        json_schema_extra=neutral(0.0),
    ),
]


class ClassifierModelParams(Protocol):
    """The settings that every classifier's model has."""

    @property
    def classes(self) -> int:
        """Number of outputs."""
        ...


class ClassifierRun(RunSettings):
    """A run of a classifier: a network that learns from labels."""

    def check_fits(self, channels: int, size: int, classes: int) -> None:
        """As `RunSettings.check_fits`; the network must also have an output for every class."""
        super().check_fits(channels, size, classes)
        outputs = cast("ClassifierModelParams", self.model).classes
        if outputs < classes:
            raise UserError(f"model.classes is {outputs}, but {self.dataset} has {classes} classes")


class CroppedRun(ClassifierRun):
    """A run of one of document 004's networks: on crops, and perhaps validated on objects that it is not trained on."""

    augmentation: CropParams
    holdout: HoldoutParams | None = Field(
        description="which training images validate; null: those that the data set has for it, a random share",
        json_schema_extra=neutral(None),
    )
    watched: int = Field(
        ge=0,
        le=10_000_000,
        description="test images, drawn at random, whose error is recorded after every epoch, for curves of error over "
        "training; nothing is chosen by it",
        json_schema_extra=neutral(0),
    )

    @model_validator(mode="after")
    def _light_is_seen(self) -> Self:
        if self.channels == 1 and (self.augmentation.gain or self.augmentation.offset):
            raise ValueError(
                "augmentation.gain and augmentation.offset must be 0: they change nothing in images of one channel, "
                "which the network standardises; gamma does"
            )
        return self

    @property
    def held_out(self) -> HoldoutParams | None:
        """Which images validate in place of those that the data set has for it; None: these."""
        return self.holdout


AnyRun = TypeVar("AnyRun", bound=CroppedRun)


class RecipeParams(Section):
    """Single changes of how a network is trained, judged by the error on objects that it is not trained on."""

    run: Name = Field(description="a key of `runs` whose variant is matrix_capsules or cnn")
    factor: Literal["instance", "azimuth", "elevation", "lighting"] = Field(description="as in a run's `holdout`")
    held_out: list[Annotated[int, Field(ge=0, le=360)]] = Field(
        min_length=1, description="values of the factor: a network is trained without each of them"
    )
    known_share: float = Field(ge=0, lt=1, description="as in a run's `holdout`")
    replicas: int = Field(ge=1, le=1000, description="seeds trained", json_schema_extra=neutral(1))
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, where a condition has no others")
    conditions: dict[
        Name, dict[Literal["augmentation", "training", "model"], dict[str, bool | int | float | str | list[int]]]
    ] = Field(
        min_length=1,
        description="for each condition, the settings of the run that it changes; none for the unchanged run",
    )

    @model_validator(mode="after")
    def _consistent(self) -> RecipeParams:
        if len(set(self.held_out)) < len(self.held_out):
            raise ValueError("held_out has a value twice")
        return self

    def changed(self, run: AnyRun, condition: str) -> AnyRun:
        """A run with the settings of a condition, the seeds of the study, and the epochs of the condition or the study.

        Raises:
            ValidationError: the settings do not give a valid run.
        """
        changes = self.conditions[condition]
        # The model's schedule counts in the run's own epochs.
        epochs = changes.get("training", {}).get("epochs", self.epochs)
        values: dict[str, Any] = run.model_dump() | {"replicas": self.replicas}
        for part, changed in changes.items():
            values[part] |= changed
        type(run).model_validate(values)  # a wrong number of epochs is named, too
        values["training"]["epochs"] = run.training.epochs
        return type(run).model_validate(values).with_epochs(int(epochs))  # type: ignore[arg-type]

    def without(self, run: AnyRun, value: int) -> AnyRun:
        """The run trained without the images of one value of the factor."""
        holdout = HoldoutParams(factor=self.factor, value=value, known_share=self.known_share)
        return run.model_copy(update={"holdout": holdout})


class RoutingParams(Section):
    """Routing of the class capsules, iteration by iteration."""

    run: Name = Field(description="a key of `runs` whose network routes: matrix_capsules, or capsnet with iterations")
    images: int = Field(ge=1, le=10_000_000, description="maximum number of test images (the first ones)")
    iterations: int = Field(
        ge=2, le=1000, description="iterations followed: at least the network's own, more show whether it has settled"
    )


class ViewpointParams(Section):
    """Novel viewpoints, compared at matched errors on familiar ones: document 004, section 5.1, Table 2."""

    axis: Literal["azimuth", "elevation"] = Field(description="the angle that separates familiar and novel viewpoints")
    dataset: Name = Field(description="a key of `datasets` whose viewpoints are known")
    capsules: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    cnn: Name = Field(description="a key of `runs` whose variant is cnn")
    epochs: int = Field(ge=1, le=10_000, description="passes over the familiar training images")
    replicas: int = Field(ge=1, le=1000, description="seeds trained")


class AttackParams(Section):
    """Adversarial images, document 004, section 6."""

    capsules: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    cnn: Name = Field(description="a key of `runs` whose variant is cnn, with at least two replicas")
    images: int = Field(ge=1, le=10_000_000, description="test images attacked (the first ones)")
    epsilons: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        min_length=1, description="largest change of a pixel, images in [0, 1]"
    )
    steps: int = Field(ge=2, le=1000, description="steps of the basic iterative method")
