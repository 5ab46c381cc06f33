"""Settings of iterative inference."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from pipeline.settings import Name, Section


class InferCondition(Section):
    """What iterative inference descends (`pipeline/systems/capsnet/predictive_coding.py`)."""

    output: Literal["predicted", "free"] = Field(
        description="class capsules: what the last layer predicts, or activities of their own"
    )
    label: Literal["clamped", "free"] = Field(description="whether lengths of class capsules have the class for target")
    penalty: Literal["none", "L1", "L2"] = Field(description="on class capsules: none, lengths, half their squares")
    weight: float = Field(ge=0, le=1000, description="factor on the penalty; 0 where there is none")

    @model_validator(mode="after")
    def _consistent(self) -> InferCondition:
        if (self.penalty == "none") != (self.weight == 0):
            raise ValueError("weight must be 0 where penalty is none, and nowhere else")
        return self


class InferParams(Section):
    """One study of iterative inference in a trained capsule network, document 001, section 3.1 and appendix C."""

    run: Name = Field(description="a key of `runs` whose variant is capsnet")
    images: int = Field(
        ge=1, description="test images (the first ones), inferred as one batch; the forward pass is measured on all"
    )
    conditions: list[InferCondition] = Field(min_length=1, description="what is descended, one after another")
    steps: int = Field(ge=1, le=100_000, description="gradient steps")
    rate: float = Field(gt=0, le=1, description="of a step")
