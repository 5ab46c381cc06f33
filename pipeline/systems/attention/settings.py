"""Settings of the studies of top-down attention, document 001."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pipeline.settings import Section


class ToyStudy(Section):
    """Appendix B's network of three hidden units, document 001, Figure 3."""

    study: Literal["toy"]
    weights: list[Annotated[float, Field(gt=0, le=10)]] = Field(min_length=1, description="of the penalty, each tried")
    rate: float = Field(gt=0, lt=0.05, description="step size of the inference")
    steps: int = Field(ge=1, le=1_000_000, description="of the inference")


class _SceneStudy(Section):
    scenes: int = Field(ge=2, le=100_000, description="planted in every setting")
    parts: int = Field(ge=2, le=1000, description="m of every scene")
    objects: int = Field(ge=2, le=1000, description="n object capsules")
    dimensions: int = Field(ge=2, le=256, description="of poses of parts and objects")
    sigmas: list[Annotated[float, Field(gt=0)]] = Field(
        min_length=1, description="sds of parts around their predictions, in those of an object's pose, each tried"
    )
    seed: int = Field(ge=0, description="of transformations, scenes and starts")


class IteratedStudy(_SceneStudy):
    """Attention over iterations, document 001, section 4.1."""

    study: Literal["iterated"]
    iterations: int = Field(ge=2, le=10_000, description="of equation 6")
    scales: list[Annotated[float, Field(gt=0)]] = Field(min_length=1, description="of its scores; 1 is the paper's")


class DensityStudy(Section):
    """Samples against densities of the top-down model, document 001, section 4.2."""

    study: Literal["density"]
    dimensions: list[Annotated[int, Field(ge=2, le=256)]] = Field(min_length=1, description="of poses, each tried")
    kappas: list[Annotated[float, Field(gt=0)]] = Field(min_length=1, description="concentrations, each tried")
    components: int = Field(ge=2, le=1000, description="predictions of one part")
    sigma: float = Field(gt=0, description="sd of poses; predictions have 1")
    samples: int = Field(ge=1000, description="of each density")
    seed: int = Field(ge=0, description="of predictions and samples")


class ParsingStudy(_SceneStudy):
    """Inversion against routing on planted scenes, document 001, section 4.2."""

    study: Literal["parsing"]
    shown: list[Annotated[int, Field(ge=1)]] = Field(min_length=1, description="objects in a scene, each tried")
    clutter: float = Field(ge=0, lt=1, description="share of parts without a parent")
    kappa: float = Field(gt=0, description="concentration of cues")
    iterations: int = Field(ge=1, le=1000, description="of routing as published")
    long_iterations: int = Field(ge=1, le=10_000, description="of routing that is given more")
    routing_starts: int = Field(ge=1, le=1000, description="of EM routing that is given more, in every scene")
    steps: int = Field(ge=2, le=100_000, description="of the inversion")
    rate: float = Field(gt=0, description="its step size")
    starts: int = Field(ge=1, le=1000, description="of it in every scene")
    kept: int = Field(ge=1, le=1000, description="of these, for the second half of its steps")
    samples: int = Field(ge=1, le=1000, description="of the poses at each of its steps")
    judging: int = Field(ge=1, le=10_000, description="samples of the poses by which starts are compared")
    widest: float = Field(ge=1, description="sds of parts that it begins with, in their own")

    @model_validator(mode="after")
    def _enough(self) -> ParsingStudy:
        if max(self.shown) > self.objects:
            raise ValueError(f"shown: {max(self.shown)} objects in a scene where there are {self.objects}")
        return self


AttentionStudy = Annotated[ToyStudy | IteratedStudy | DensityStudy | ParsingStudy, Field(discriminator="study")]
