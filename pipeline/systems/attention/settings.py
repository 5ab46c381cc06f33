"""Settings of the studies of top-down attention, document 001."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.settings import Name, Section, Seed


class ToyStudy(Section):
    """The toy network of document 001, appendix B, Figure 3."""

    study: Literal["toy"]
    weights: list[Annotated[float, Field(gt=0, le=10)]] = Field(min_length=1, description="penalty weights to try")
    rate: float = Field(gt=0, lt=0.05, description="step size of inference")
    steps: int = Field(ge=1, le=1_000_000, description="steps of inference")


class _SceneStudy(Section):
    scenes: int = Field(ge=2, le=100_000, description="number of scenes to generate for each setting")
    parts: int = Field(ge=2, le=1000, description="number m of parts in a scene")
    objects: int = Field(ge=2, le=1000, description="number n of object capsules")
    dimensions: int = Field(ge=2, le=256, description="dimensions of the poses of parts and objects")
    sigmas: list[Annotated[float, Field(gt=0, le=100)]] = Field(
        min_length=1, description="sds to try, of parts around their predictions, in units of the sd of objects' poses"
    )
    seed: Seed = Field(description="seed of transformations, scenes and the methods' random numbers")


class IteratedStudy(_SceneStudy):
    """Iterated attention on generated scenes, document 001, section 4.1."""

    study: Literal["iterated"]
    iterations: int = Field(ge=2, le=10_000, description="iterations of equation 6")
    scales: list[Annotated[float, Field(gt=0, le=1e6)]] = Field(
        min_length=1, description="factors to try on attention scores; the document's factor is 1"
    )


class DensityStudy(Section):
    """Samples of the top-down model compared with its densities, document 001, section 4.2."""

    study: Literal["density"]
    dimensions: list[Annotated[int, Field(ge=2, le=256)]] = Field(
        min_length=1, description="numbers of dimensions of poses to try"
    )
    kappas: list[Annotated[float, Field(gt=0, le=1e6)]] = Field(
        min_length=1, description="values to try for the geometric mean of the concentrations of the components' cues"
    )
    components: int = Field(ge=2, le=1000, description="number of predictions (and mixture components) of a part")
    sigma: float = Field(
        gt=0, le=100, description="geometric mean of the components' sds of poses, in units of the sd of predictions"
    )
    samples: int = Field(ge=1000, le=100_000_000, description="number of samples from each density")
    seed: Seed = Field(description="seed of predictions and samples")


class ParsingStudy(_SceneStudy):
    """Inversion of the model compared with routing on generated scenes, document 001, section 4.2."""

    study: Literal["parsing"]
    shown: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        min_length=1, description="numbers of objects per scene to try"
    )
    clutter: float = Field(ge=0, lt=1, description="probability that a part has no parent")
    kappa: float = Field(gt=0, le=1e6, description="concentration of cues around the directions of predictions")
    iterations: int = Field(ge=1, le=1000, description="iterations of dynamic and EM routing as published")
    long_iterations: int = Field(ge=1, le=10_000, description="iterations of the long runs of routing, and of k-means")
    routing_starts: int = Field(ge=1, le=1000, description="starts, in every scene, of EM routing with several starts")
    steps: int = Field(ge=2, le=100_000, description="steps of the inversion")
    rate: float = Field(gt=0, le=10, description="step size of the inversion")
    starts: int = Field(ge=1, le=1000, description="starts of the inversion in every scene")
    kept: int = Field(ge=1, le=1000, description="number of best starts that continue in the second half of the steps")
    samples: int = Field(ge=1, le=1000, description="samples of the poses at each step of the inversion")
    judging: int = Field(ge=1, le=10_000, description="samples of the poses in the bounds that compare starts")
    widest: float = Field(ge=1, le=1000, description="initial sd of parts in the inversion, divided by the final sd")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if max(self.shown) > self.objects:
            raise ValueError(f"shown: must be at most objects ({self.objects}), found {max(self.shown)}")
        if self.kept > self.starts:
            raise ValueError(f"kept: must be at most starts ({self.starts}), found {self.kept}")
        return self


AttentionStudy = Annotated[ToyStudy | IteratedStudy | DensityStudy | ParsingStudy, Field(discriminator="study")]


class AttentionSet(Section):
    """Several short studies that run together as one item, because an item takes seconds to start."""

    studies: dict[Name, AttentionStudy] = Field(min_length=1, description="the studies, by name")
