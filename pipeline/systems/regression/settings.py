"""Settings of capsule regression, document 002."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.settings import Name, Section, Seed


class ScheduleParams(Section):
    """The schedule of a fit of capsule regression, document 002, sections 2.3 and 3.1."""

    momentum: float = Field(ge=0, lt=1, description="gamma of equation 27")
    thresholds: list[Annotated[float, Field(ge=0, le=1)]] = Field(
        min_length=1,
        description="nu of each round: an example's hidden vectors keep their prior means if the most probable other "
        "class is at most nu times as probable as its own class",
    )
    patience: list[Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        min_length=1, description="for each round: it ends after so many iterations without a lower validation error"
    )
    most_iterations: int = Field(ge=1, le=1_000_000, description="maximum iterations of one problem in all rounds")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(self.thresholds) != len(self.patience):
            raise ValueError(f"patience must have an entry for each of {len(self.thresholds)} thresholds")
        return self


Decision = Literal["multiclass", "one-vs-all", "all-vs-all"]

CapsuleSize = Annotated[int, Field(ge=1, le=256)]


class _RegressionStudy(Section):
    dataset: Name = Field(description="a key of `datasets`")
    features: int = Field(ge=1, le=65_536, description="number p of inputs: projections of images on singular vectors")


class GridStudy(_RegressionStudy):
    """Errors by capsule size and architecture, document 002, Figures 2 to 5."""

    study: Literal["grid"]
    sizes: list[CapsuleSize] = Field(min_length=1, description="capsule sizes d to try")
    decisions: list[Decision] = Field(min_length=1, description="architectures to fit at every size")
    baselines: list[Literal["logistic-regression", "nearest-neighbours", "random-forest", "support-vectors"]] = Field(
        description="classifiers of scikit-learn that are fitted to the same inputs"
    )
    schedule: ScheduleParams


class ConvergenceStudy(_RegressionStudy):
    """Likelihood and error after each iteration, document 002, Figures 6 and 7."""

    study: Literal["convergence"]
    size: CapsuleSize = Field(description="dimensions d of a capsule")
    iterations: int = Field(ge=2, le=100_000, description="iterations of every fit")
    momentum: float = Field(gt=0, lt=1, description="gamma of the updates with momentum")
    threshold: float = Field(gt=0, le=1, description="nu of the updates with a threshold")


class StartsStudy(_RegressionStudy):
    """Random starts compared with the subspace start, document 002, Figure 8."""

    study: Literal["starts"]
    size: CapsuleSize = Field(description="dimensions d of a capsule")
    iterations: int = Field(ge=2, le=100_000, description="iterations of every fit")
    momentum: float = Field(ge=0, lt=1, description="gamma of equation 27")
    threshold: float = Field(ge=0, le=1, description="nu of equation 26")
    sds: list[Annotated[float, Field(gt=0, le=100)]] = Field(min_length=1, description="sds of random weights")
    seeds: int = Field(ge=1, le=1000, description="number of random starts for each sd")
    seed: Seed = Field(description="seed of the random starts")


class ExactnessStudy(_RegressionStudy):
    """Closed forms compared with Monte Carlo estimates, document 002, section 2.2."""

    study: Literal["exactness"]
    size: CapsuleSize = Field(description="dimensions d of a capsule")
    images: int = Field(ge=1, le=10_000_000, description="maximum number of test images (the first ones)")
    samples: int = Field(ge=100, le=100_000_000, description="samples of the hidden variables of each image")
    seed: Seed = Field(description="seed of the samples")
    schedule: ScheduleParams


class OnlineStudy(_RegressionStudy):
    """Incremental and online EM compared with batch EM, document 002, section 4."""

    study: Literal["online"]
    size: CapsuleSize = Field(description="dimensions d of a capsule")
    batches: int = Field(ge=2, le=10_000, description="number of batches in a pass over the training images")
    passes: int = Field(ge=1, le=100_000, description="number of passes of each method over training images")
    momentum: float = Field(gt=0, lt=1, description="gamma of batch EM with momentum")
    pass_momentum: float = Field(
        gt=0, lt=1, description="gamma of incremental EM with momentum, on the change over a pass; about 1/2 diverges"
    )
    rate: float = Field(gt=0.5, le=1, description="alpha: online EM's step sizes are 1, 3^-alpha, 4^-alpha, ...")
    seed: Seed = Field(description="seed of the batches")


class RidgeStudy(_RegressionStudy):
    """Errors with a penalty on squared weights, document 002, section 4."""

    study: Literal["ridge"]
    size: CapsuleSize = Field(description="dimensions d of a capsule")
    decision: Decision = Field(description="the architecture that is fit")
    penalties: list[Annotated[float, Field(ge=0, le=1e6)]] = Field(
        min_length=1,
        description="penalties to try besides 0, in units of a feature's mean square times the number of examples",
    )
    schedule: ScheduleParams


class DistortedStudy(_RegressionStudy):
    """Training on distorted copies of images, document 002, section 3.4."""

    study: Literal["distorted"]
    size: CapsuleSize = Field(description="dimensions d of a capsule")
    decision: Decision = Field(description="the architecture that is fit")
    examples: int = Field(ge=1, le=10_000_000, description="number of training images plus distorted copies")
    strengths: list[Annotated[float, Field(gt=0, le=3)]] = Field(
        min_length=1, description="factors to try on the distortions; the validation error selects one"
    )
    seed: Seed = Field(description="seed of the distortions")
    schedule: ScheduleParams


RegressionStudy = Annotated[
    GridStudy | ConvergenceStudy | StartsStudy | ExactnessStudy | OnlineStudy | RidgeStudy | DistortedStudy,
    Field(discriminator="study"),
]


class RegressionSet(Section):
    """Several short studies of one data set that run as a single item, because each item takes seconds to start."""

    dataset: Name = Field(description="a key of `datasets`, which all studies use")
    studies: dict[Name, RegressionStudy] = Field(min_length=1, description="studies by name")

    @model_validator(mode="after")
    def _one_dataset(self) -> Self:
        for name, study in self.studies.items():
            if study.dataset != self.dataset:
                raise ValueError(f"studies.{name}.dataset: must be the set's, {self.dataset} (found '{study.dataset}')")
        return self
