"""Free-form variational optimisation of test images under a trained run (document 000, section 2.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from pipeline.settings import Angles, Name, Section, Seed
from pipeline.systems.generative.settings import Engine, GenerativeRun

if TYPE_CHECKING:
    from pipeline.params import Params
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context


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
        "objects are not refined; they only show what such noise does to accuracy, other restarts perturb poses only",
    )
    seed: Seed = Field(description="seed of the rotations, of the presence noise and of restarts")

    @model_validator(mode="after")
    def _consistent(self) -> OptimiseParams:
        if self.chosen not in self.engines:
            raise ValueError(f"chosen must be one of {sorted(self.engines)}")
        return self


SETTINGS = OptimiseParams


def check(params: Params, where: str, study: OptimiseParams) -> None:
    """ValueError if the run's model cannot be optimised, or has too few replicas."""
    run = params.run_of(f"{where}.run", study.run, "generative")
    assert isinstance(run, GenerativeRun)
    if run.model.slots != "own" or run.model.pose_posterior != "delta":
        raise ValueError(f"{where}.run: '{study.run}' must have slots: own and pose_posterior: delta")
    if study.replicas > run.replicas:
        raise ValueError(f"{where}.replicas: '{study.run}' has {run.replicas}")


def measure(context: Context) -> Outcome:
    """Optimise test images of an entry of `optimise` under its trained run; the bound is tracked after each round."""
    from pipeline.systems.generative.experiments import test_time_inference

    return test_time_inference.measure(context)
