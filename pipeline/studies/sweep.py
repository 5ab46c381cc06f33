"""Train and test models on images rotated by at most some angle, for several angles (document 000, Figure 4)."""

from typing import Annotated

from pydantic import AfterValidator, Field

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.settings import Angles, Name, Section, check_once
from pipeline.shared_params import SharedParams


class SweepParams(Section):
    """Training and testing on images rotated by at most some angle, for several angles (document 000, Figure 4)."""

    angles: Angles = Field(description="degrees: for each angle, training and tests use rotations in [-angle, +angle]")
    runs: Annotated[list[Name], AfterValidator(check_once)] = Field(
        min_length=1, description="keys of `runs`, which are trained again at each angle"
    )
    replicas: int = Field(ge=1, le=1000, description="replicas trained at each angle, at most as many as the run has")
    training_share: float = Field(gt=0, le=1, description="number of epochs at each angle, divided by the run's epochs")


SETTINGS = SweepParams
ONE_SECTION = True
"""All items share the settings of the section."""


def check(params: SharedParams, where: str, study: SweepParams) -> None:
    """Raise `ValueError` if a run is unknown, or of a system that the sweep cannot train."""
    from pipeline.systems import SWEPT

    for name in study.runs:
        params.run_of(f"{where}.runs", name, *SWEPT)


def measure(context: Context) -> Outcome:
    """Train a run on rotated images, and probe it on such images. `context.entry` has the run's name and the angle."""
    from pipeline.learning.model import EvaluationInputs
    from pipeline.probes import sweep as probes
    from pipeline.systems import SYSTEMS

    params, study, angle = context.params, context.settings, float(context.entry.axes["angle"])
    run = probes.swept(params.runs[context.entry.axes["run"]], angle, study.replicas, study.training_share)
    trained, models = context.train(None, run, key="run")
    dataset, device = context.dataset(run.dataset), context.device
    inputs = EvaluationInputs(models, dataset, run, params, device, context.label)
    system = SYSTEMS[run.variant]
    module = system.part("sweep") if system.has("sweep") else probes
    return module.sweep(inputs, trained)
