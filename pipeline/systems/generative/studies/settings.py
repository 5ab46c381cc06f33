"""Settings of the studies of the probabilistic capsule model."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from pipeline.settings import MAX_ANGLE, Angles, Name, Section, Seed, check_distinct
from pipeline.systems.generative.inference.settings import Engine


class SensitivityHyperparameters(Section):
    """The values to try for each, in addition to the run's own; the others are kept."""

    pose_sd_floor: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        description="minimum sd c_ij of a part's pose; pose_sd_start is scaled by the same factor"
    )
    pixel_sd: list[Annotated[float, Field(gt=0, le=1)]] = Field(description="sd of a pixel around the rendering")
    temperature: list[Annotated[float, Field(gt=0, le=10)]] = Field(description="temperature of the relaxed presences")


class SensitivityParams(Section):
    """The hyperparameters that document 000, appendix B, calls fairly important."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    epochs: int = Field(ge=1, le=10_000, description="maximum number of passes over the training images")
    replicas: int = Field(ge=1, le=1000, description="seeds trained at each value")
    hyperparameters: SensitivityHyperparameters


class PresenceAblationParams(Section):
    """A run trained with some settings changed: what each contributes to presences that carry information."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, at most")
    replicas: int = Field(ge=1, le=1000, description="seeds trained")
    conditions: dict[Name, dict[str, int | float | str | dict[str, int] | None]] = Field(
        min_length=1,
        description="for each condition, the settings of the run's model that it changes; none for the unchanged run",
    )


class FailureParams(Section):
    """The failure analysis: document 000, section 5.4, Figures 5 to 7."""

    turns: Annotated[list[Annotated[float, Field(gt=0, le=MAX_ANGLE)]], AfterValidator(check_distinct)] = Field(
        min_length=1, description="degrees: every image is rotated by each of these, and its poses compared (Figure 5)"
    )
    images: int = Field(
        ge=1, le=10_000_000, description="maximum number of test images (the first ones) rotated, or compared by part"
    )
    starts: int = Field(ge=1, le=360, description="initial rotations in the alignment of two templates (Figure 6)")
    steps: int = Field(ge=0, le=10_000, description="gradient steps of an alignment")
    threshold: float = Field(gt=0, lt=1, description="two aligned templates with at least this correlation are copies")
    seed: Seed = Field(description="seed of the rotations, and of the strokes that templates are compared with")


class OptimiseParams(Section):
    """One study of free-form variational optimisation, document 000, section 2.4."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    replicas: int = Field(ge=1, le=1000, description="replicas of the run that are used (the first ones)")
    angles: Angles = Field(description="rotations of the images: uniform within each of these")
    images: int = Field(ge=1, le=10_000_000, description="test images per angle, optimised as one batch")
    refit_images: int = Field(
        ge=10,
        le=10_000_000,
        description="training images (the first ones) optimised too, for a probe fit on optimised posteriors",
    )
    engines: dict[Name, Engine] = Field(min_length=1, description="engines compared")
    chosen: Name = Field(description="a key of `engines`; figures and the refit probe use its posteriors")
    kick_logit: float = Field(
        gt=0,
        le=10,
        description="sd of noise on the log odds of presence in extra restarts of the chosen engine, after which "
        "objects do not settle; they only measure what such noise does to accuracy, other restarts perturb poses only",
    )
    seed: Seed = Field(description="seed of the rotations, of the presence noise and of restarts")

    @model_validator(mode="after")
    def _consistent(self) -> OptimiseParams:
        if self.chosen not in self.engines:
            raise ValueError(f"chosen must be one of {sorted(self.engines)}")
        return self


class PosteriorParams(Section):
    """One study of the full variational posterior over poses, document 000, section 2.3."""

    run: Name = Field(description="a key of `runs` whose variant is generative, with delta poses")
    replicas: int = Field(ge=1, le=1000, description="replicas of the run that are used (the first ones)")
    epochs: int = Field(ge=1, le=10_000, description="further epochs of training the encoder with Gaussian poses")
    images: int = Field(ge=1, le=10_000_000, description="test images for measuring bounds (the first ones)")
    samples: int = Field(ge=1, le=100_000, description="number K of samples in each image's bounds")
    sd_grid: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        min_length=1, description="sds of parts and of objects to try around delta poses; chosen on validation images"
    )
    grid_samples: int = Field(ge=1, le=10_000, description="samples per validation image for each pair of sds")
    seed: Seed = Field(description="seed of the samples")
