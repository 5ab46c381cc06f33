"""Settings of iterative inference."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline.settings import Name, Section


class InferCondition(Section):
    """The energy that iterative inference minimises (`pipeline/systems/capsnet/inference/predictive_coding.py`)."""

    output: Literal["predicted", "free"] = Field(
        description="class capsules: the last layer's predictions, or free variables"
    )
    label: Literal["clamped", "free"] = Field(description="clamped: the class is the target of class capsules' lengths")
    penalty: Literal["none", "L1", "L2"] = Field(
        description="penalty on class capsules: none, their lengths, or half their squared lengths"
    )
    weight: float = Field(ge=0, le=1000, description="weight of the penalty; 0 if penalty is none")

    @model_validator(mode="after")
    def _consistent(self) -> InferCondition:
        if (self.penalty == "none") != (self.weight == 0):
            raise ValueError("weight must be 0 if penalty is none, and above 0 otherwise")
        return self


class InferParams(Section):
    """One study of iterative inference in a trained capsule network, document 001, section 3.1 and appendix C."""

    run: Name = Field(description="a key of `runs` whose variant is capsnet")
    images: int = Field(
        ge=1,
        le=10_000_000,
        description="test images (the first ones) for inference, in one batch; the forward pass is measured on all",
    )
    conditions: list[InferCondition] = Field(min_length=1, description="energies to minimise, one after another")
    steps: int = Field(ge=1, le=100_000, description="gradient steps")
    rate: float = Field(gt=0, le=1, description="step size")
