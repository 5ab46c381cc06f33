"""Iterative inference over all layers of a trained capsule network (document 001)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from pipeline.settings import Name, Section

if TYPE_CHECKING:
    from pipeline.params import Params
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context


class InferCondition(Section):
    """The energy that iterative inference minimises (`experiments/iterative_inference.py`)."""

    output: Literal["predicted", "free"] = Field(description="class capsules: the last layer's predictions, or free")
    label: Literal["clamped", "free"] = Field(description="clamped: the class is the target of class capsules' lengths")
    penalty: Literal["none", "L1", "L2"] = Field(description="none, class capsules' lengths, or half their squares")
    weight: float = Field(ge=0, le=1000, description="weight of the penalty; 0 if penalty is none")

    @model_validator(mode="after")
    def _consistent(self) -> InferCondition:
        if (self.penalty == "none") != (self.weight == 0):
            raise ValueError("weight must be 0 if penalty is none, and above 0 otherwise")
        return self


class InferParams(Section):
    """One study of iterative inference in a trained capsule network, document 001, section 3.1 and appendix C."""

    run: Name = Field(description="a key of `runs` whose variant is capsnet")
    images: int = Field(ge=1, le=10_000_000, description="test images (the first ones) for inference, in one batch")
    conditions: list[InferCondition] = Field(min_length=1, description="energies to minimise, one after another")
    steps: int = Field(ge=1, le=100_000, description="gradient steps")
    rate: float = Field(gt=0, le=1, description="step size")


SETTINGS = InferParams


def check(params: Params, where: str, study: InferParams) -> None:
    """ValueError if the run is of the wrong kind."""
    params.run_of(f"{where}.run", study.run, "capsnet")


def measure(context: Context) -> Outcome:
    """Infer the activities of the trained networks of an entry of `infer`; `UserError` where that diverges."""
    from pipeline.systems.capsnet.experiments.iterative_inference import sparsity_of_inference
    from pipeline.systems.capsnet.model.capsnet import CapsNet

    settings: InferParams = context.settings
    dataset = context.evaluated(context.params.runs[settings.run].dataset)
    models = context.models(settings.run, CapsNet)
    return sparsity_of_inference(models, dataset, settings, context.device, context.label)
