"""A run's settings with one thing changed: how long it trains, or one hyperparameter.

Only settings: nothing here needs torch, so that `params` can refuse values that would make no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipeline.params import GenerativeModelParams, GenerativeRun, MatrixCapsulesModelParams, Run

SCHEDULE = ("temperature_epochs", "seeding_epoch", "early_epochs", "ramp_epochs")
"""Times in training, in epochs, that a generative model has among its settings."""


def with_epochs(run: Run, epochs: int) -> Run:
    """`run` trained for `epochs`, its model's schedule shortened or stretched in proportion.

    A schedule left as it was would end after a short training: its model would never have been coupled in full.
    """
    changes: dict[str, object] = {"training": run.training.model_copy(update={"epochs": epochs})}
    if run.variant == "generative":
        changes["model"] = _rescheduled(run, epochs)
    if run.variant == "matrix_capsules":
        margin_epochs = run.model.margin_epochs * epochs / run.training.epochs
        changes["model"] = run.model.model_copy(update={"margin_epochs": margin_epochs})
    return run.model_copy(update=changes)


def _rescheduled(run: GenerativeRun, epochs: int) -> GenerativeModelParams:
    share = epochs / run.training.epochs
    times = {name: getattr(run.model, name) for name in SCHEDULE}
    # What is to happen at all happens at the end of the first epoch or later.
    return run.model.model_copy(update={name: max(round(time * share), min(time, 1)) for name, time in times.items()})


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
