"""A run's settings as a study trains it: with one thing changed, for its own epochs and replicas.

Only settings: nothing here needs torch, so that `params` can refuse values that would make no model, and reports can
ask what was trained.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.params import (
        AblationParams,
        GenerativeModelParams,
        GenerativeRun,
        MatrixCapsulesModelParams,
        MatrixCapsulesRun,
        Run,
        SensitivityParams,
        SweepParams,
        ViewpointParams,
    )

AnyRun = TypeVar("AnyRun", bound="Run")

SCHEDULE = ("temperature_epochs", "seeding_epoch", "early_epochs", "ramp_epochs")
"""Times in training, in epochs, that a generative model has among its settings."""


def with_epochs(run: AnyRun, epochs: int) -> AnyRun:
    """`run` trained for `epochs`, its model's schedule shortened or stretched in proportion.

    A schedule left as it was would end after a short training: its model would never have been coupled in full.
    """
    times = _rescheduled(run, epochs)
    changes = {
        "training": run.training.model_copy(update={"epochs": epochs}),
        "model": run.model.model_copy(update=times),
    }
    return cast("AnyRun", run.model_copy(update=changes))


def _rescheduled(run: Run, epochs: int) -> dict[str, float]:
    """The times among a model's settings, in epochs, of a training of so many epochs."""
    if run.variant == "generative":
        share = epochs / run.training.epochs
        # What is to happen at all happens at the end of the first epoch or later.
        times = {name: getattr(run.model, name) for name in SCHEDULE}
        return {name: max(round(time * share), min(time, 1)) for name, time in times.items()}
    if run.variant == "matrix_capsules":
        return {"margin_epochs": run.model.margin_epochs * epochs / run.training.epochs}
    return {}


def changed_model(model: MatrixCapsulesModelParams, changes: Mapping[str, object]) -> MatrixCapsulesModelParams:
    """The model with some settings changed, by name.

    Raises:
        ValidationError: they make no model.
    """
    return type(model).model_validate({**model.model_dump(), **changes})


def varied_model(model: GenerativeModelParams, name: str, value: float) -> GenerativeModelParams:
    """The model with one hyperparameter set to `value`, and what moves along with it.

    `pose_sd_start` moves with `pose_sd_floor` by the same ratio: a floor above the start makes no model, and one near
    it leaves the sds no way to shrink. `final_temperature` moves with `temperature` likewise: a temperature that holds
    only when training starts is no other temperature.

    Raises:
        ValidationError: the value makes no model.
    """
    changes = {name: value}
    if name == "pose_sd_floor":
        changes["pose_sd_start"] = model.pose_sd_start * value / model.pose_sd_floor
    if name == "temperature":
        changes["final_temperature"] = model.final_temperature * value / model.temperature
    return type(model).model_validate({**model.model_dump(), **changes})


def swept(run: Run, angle: float, sweep: SweepParams) -> Run:
    """A run as the sweep trains it: on rotations within +-`angle` degrees, with the sweep's replicas and its share of
    the run's own epochs: systems differ in how long they have to learn.
    """
    augmentation = run.augmentation.model_copy(update={"rotation": float(angle)})
    changes = {"replicas": sweep.replicas, "augmentation": augmentation}
    return with_epochs(run, math.ceil(run.training.epochs * sweep.training_share)).model_copy(update=changes)


def varied(run: GenerativeRun, name: str, value: float, sensitivity: SensitivityParams) -> GenerativeRun:
    """A run with one hyperparameter set to `value`, with the sensitivity study's replicas and epochs."""
    shorter = with_epochs(run, sensitivity.epochs)
    model = varied_model(shorter.model, name, value)
    return shorter.model_copy(update={"replicas": sensitivity.replicas, "model": model})


def ablated(run: MatrixCapsulesRun, ablation: AblationParams) -> MatrixCapsulesRun:
    """A run with the settings, replicas and epochs of an ablation."""
    shorter = with_epochs(run, ablation.epochs)
    model = changed_model(shorter.model, ablation.model)
    return shorter.model_copy(update={"replicas": ablation.replicas, "model": model})


def viewed(run: AnyRun, study: ViewpointParams) -> AnyRun:
    """A run as a study of viewpoints trains it: on the study's data, and to the end of its epochs, for where two
    networks are to be compared is found afterwards.
    """
    longer = with_epochs(run, study.epochs)
    training = longer.training.model_copy(update={"patience": study.epochs})
    changes = {"dataset": study.dataset, "replicas": study.replicas, "training": training}
    return cast("AnyRun", longer.model_copy(update=changes))
