"""Train and test on rotations within one angle (document 000, Figure 4)."""

from typing import Annotated

from pydantic import AfterValidator, Field

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.settings import Angles, Name, Section, check_once
from pipeline.shared_params import SharedParams


class SweepParams(Section):
    """Training and testing on rotations up to an angle, document 000, Figure 4."""

    angles: Angles = Field(description="degrees: train and test for each, with rotations uniform in [-angle, +angle]")
    runs: Annotated[list[Name], AfterValidator(check_once)] = Field(
        min_length=1, description="keys of `runs` that the sweep starts from"
    )
    replicas: int = Field(ge=1, le=1000, description="seeds trained at each angle, at most a run's own")
    training_share: float = Field(gt=0, le=1, description="epochs at each angle / the run's own epochs")


SETTINGS = SweepParams
ONE_SECTION = True
"""All items share the settings of the section."""


def check(params: SharedParams, where: str, study: SweepParams) -> None:
    """ValueError if a run is of a system that the sweep cannot train."""
    from pipeline.systems import SWEPT

    for name in study.runs:
        params.run_of(f"{where}.runs", name, *SWEPT)


def measure(context: Context) -> Outcome:
    """Train a run on images rotated within an angle, and probe it on such images. The item gives run and angle."""
    from pipeline.learning.model import EvaluationInputs
    from pipeline.probes import sweep as probes
    from pipeline.systems import SYSTEMS

    params, study, angle = context.params, context.settings, float(context.axes["angle"])
    run = probes.swept(params.runs[context.axes["run"]], angle, study.replicas, study.training_share)
    trained, models = context.train(None, run, key="run")
    sections = {"evaluate": params.evaluate, "failures": params.section("failures")}
    dataset, device = context.dataset(run.dataset), context.device
    inputs = EvaluationInputs(models, dataset, run, sections, lambda: None, device, context.label)
    system = SYSTEMS[run.variant]
    module = system.part("sweep") if system.has("sweep") else probes
    return module.sweep(inputs, trained)
