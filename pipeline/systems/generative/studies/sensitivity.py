"""The effect of hyperparameters on trained models (document 000, appendix B).

Models are compared by probes and by pixel error. Their bounds are not comparable, because these hyperparameters change
the likelihood.
"""

from typing import Annotated

from pydantic import Field

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.settings import Name, Section
from pipeline.shared_params import SharedParams
from pipeline.systems.generative.settings import GenerativeRun


class SensitivityHyperparameters(Section):
    """Values to try for each hyperparameter, besides the run's own. `GenerativeModelParams.varied` sets them."""

    pose_sd_floor: list[Annotated[float, Field(gt=0, le=10)]] = Field(
        description="minimum sd c_ij of a part's pose; pose_sd_start and inactive_pose_sd scale with it"
    )
    pixel_sd: list[Annotated[float, Field(gt=0, le=1)]] = Field(description="sd of a pixel around its rendered value")
    temperature: list[Annotated[float, Field(gt=0, le=10)]] = Field(description="temperature of the relaxed presences")


class SensitivityParams(Section):
    """One study of the hyperparameters that document 000, appendix B, calls fairly important."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    epochs: int = Field(ge=1, le=10_000, description="maximum number of passes over the training images")
    replicas: int = Field(ge=1, le=1000, description="number of replicas trained at each value")
    hyperparameters: SensitivityHyperparameters


SETTINGS = SensitivityParams
ONE_SECTION = True
"""All items share the settings of the section. Each item is a hyperparameter."""


def check(params: SharedParams, where: str, study: SensitivityParams) -> None:
    """Require a generative run, and values that give valid models. Otherwise raise ValueError."""
    run = params.run_of(f"{where}.run", study.run, "generative")
    assert isinstance(run, GenerativeRun)
    for name, values in study.hyperparameters.model_dump().items():
        for value in values:
            with params.named(f"{where}.hyperparameters.{name}"):
                run.model.varied(name, value)


def measure(context: Context) -> Outcome:
    """Train the study's run with its own and other values of a hyperparameter. Measure probes and pixel errors."""
    from pipeline.systems.generative.experiments import conditions

    settings: SensitivityParams = context.settings
    run, name = context.params.runs[settings.run], context.item
    assert isinstance(run, GenerativeRun)  # `check` has verified this
    own = getattr(run.model, name)
    # The model with the run's own value is the same for all hyperparameters. If the item of another hyperparameter has
    # already trained it, the checkpoint of that training is loaded, and the epochs of that training are logged again.
    values = [*dict.fromkeys(value for value in getattr(settings.hyperparameters, name) if value != own), own]
    models = {f"{value:g}": (f"{name}={value:g}", run.model.varied(name, value)) for value in values}
    return conditions.measure(
        context, "sensitivity", "value", models, probed=("t0", "t0_A0"), headline=("t0", "pixel_error"), own=own
    )
