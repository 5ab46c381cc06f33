"""Settings of CapsNet and of its iterative inference."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.classification.settings import ClassifierRun
from pipeline.learning.settings import AugmentationParams
from pipeline.settings import Name, Section, check_once, younger


class CapsNetModelParams(Section):
    """CapsNet (Sabour et al. 2017), the network of document 001, section 3.1 and appendix A."""

    channels: int = Field(ge=1, le=4096, description="feature maps of the first convolution")
    kernel: int = Field(ge=1, le=31, description="side of both convolutions' kernels, in pixels of their inputs")
    strides: list[Annotated[int, Field(ge=1, le=16)]] = Field(
        min_length=2, max_length=2, description="strides of the two convolutions, in pixels of their inputs"
    )
    types: int = Field(ge=1, le=1024, description="number of primary capsules at each position of the feature maps")
    primary_size: int = Field(ge=1, le=256, description="dimensions of a primary capsule")
    middle: int = Field(ge=0, le=1024, description="capsules of a layer between primary and class capsules; 0: none")
    middle_size: int = Field(ge=1, le=256, description="dimensions of a capsule of the middle layer")
    class_size: int = Field(ge=1, le=256, description="dimensions of a class capsule")
    classes: int = Field(ge=2, le=1000, description="number of class capsules")
    transformations: Literal["normal", "uniform"] = younger(
        default="normal",
        description="initial transformations: normal with sd 0.1 (Sabour et al.), or uniform within 1 / sqrt(m) of 0, "
        "where m is the number of capsules in the layer below (document 001's code)",
    )
    iterations: int = Field(ge=0, le=100, description="iterations of routing by agreement; 0: unweighted sums of votes")
    counting: Literal["sums", "updates"] = Field(
        description="n iterations: n sums of votes (Sabour et al.), or n weight updates and n + 1 sums (document 001)"
    )
    reconstruction: Literal["none", "summed", "mean"] = Field(
        description="squared pixel errors in the loss: none, their sum (Sabour et al.), or their mean (document 001)"
    )
    reconstruction_weight: float = Field(ge=0, le=1000, description="weight of the reconstruction loss")
    decoder: list[Annotated[int, Field(ge=1, le=65_536)]] = Field(description="units of the decoder's hidden layers")
    present_margin: float = Field(gt=0, lt=1, description="margin m+: a present class has loss 0 from this length on")
    absent_margin: float = Field(gt=0, lt=1, description="margin m-: an absent class has loss 0 up to this length")
    absent_weight: float = Field(ge=0, le=100, description="weight lambda of the loss of absent classes")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.absent_margin >= self.present_margin:
            raise ValueError(f"absent_margin must be below present_margin ({self.present_margin})")
        return self


class CapsNetRun(ClassifierRun):
    """A run of CapsNet."""

    variant: Literal["capsnet"]
    augmentation: AugmentationParams
    model: CapsNetModelParams


class InferCondition(Section):
    """The energy that iterative inference minimises (`experiments/iterative_inference.py`)."""

    output: Literal["predicted", "free"] = Field(description="class capsules: predicted from below, or free (inferred)")
    rectified: bool = younger(default=True, description="whether the first layer has a ReLU (document 001's code: no)")
    label: Literal["clamped", "free"] = Field(
        description="clamped: class capsules have target length 1 for the image's class, 0 for others; free: no targets"
    )
    penalty: Literal["none", "L1", "L2"] = Field(description="L1: class capsules' lengths; L2: half their squares")
    weight: float = Field(ge=0, le=1000, description="weight of the penalty; 0 if penalty is none")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.penalty == "none") != (self.weight == 0):
            raise ValueError("weight must be 0 if penalty is none, and above 0 otherwise")
        return self

    @property
    def name(self) -> str:
        """The condition's name in results, for example "free-clamped-L1-0.5-unrectified"."""
        weight = [] if self.penalty == "none" else [f"{self.weight:g}"]
        return "-".join([self.output, self.label, self.penalty, *weight, *["unrectified"] * (not self.rectified)])


class InferParams(Section):
    """One study of iterative inference in a trained capsule network, document 001, section 3.1 and appendix C."""

    run: Name = Field(description="a key of `runs` whose variant is capsnet")
    images: int = Field(ge=1, le=10_000_000, description="number of test images (the first ones), used as one batch")
    conditions: list[InferCondition] = Field(
        min_length=1, description="energies to minimise; each inference starts at the forward pass"
    )
    steps: int = Field(ge=1, le=100_000, description="gradient steps for each energy")
    rate: float = Field(gt=0, le=1, description="step size")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_once([condition.name for condition in self.conditions])
        return self
