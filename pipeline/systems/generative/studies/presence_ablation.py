"""How settings of a model affect the information that its presences carry about the image.

`evaluation.presences` measures this information. Bounds are not compared, because some settings change the likelihood.
"""

from pydantic import Field

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.settings import Name, Section
from pipeline.shared_params import SharedParams
from pipeline.systems.generative.settings import GenerativeRun


class PresenceAblationParams(Section):
    """An ablation study: the information that presences carry is compared between settings of a run's model."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    epochs: int = Field(ge=1, le=10_000, description="maximum number of passes over the training images")
    replicas: int = Field(ge=1, le=1000, description="number of replicas trained in each condition")
    conditions: dict[Name, dict[str, int | float | str | dict[str, int] | None]] = Field(
        min_length=1,
        description="changed settings of the run's model, by condition; empty for the unchanged run",
    )


SETTINGS = PresenceAblationParams


def check(params: SharedParams, where: str, study: PresenceAblationParams) -> None:
    """Require a generative run, and changes that are valid and have an effect. Otherwise raise ValueError."""
    params.check_changes_of_model(where, study.run, "generative", study.conditions)


def measure(context: Context) -> Outcome:
    """Train the study's run under every condition. Measure probes, pixel errors and the information in presences."""
    from pipeline.systems.generative.evaluation.presences import presence_measures
    from pipeline.systems.generative.experiments import conditions

    settings: PresenceAblationParams = context.settings
    run, seed = context.params.runs[settings.run], context.params.evaluate.seed
    assert isinstance(run, GenerativeRun)  # `check` has verified this
    images = context.dataset(run.dataset).part("test")[0]
    models = {condition: (condition, run.model.with_changes(of)) for condition, of in settings.conditions.items()}
    return conditions.measure(
        context,
        "presence_ablation",
        "condition",
        models,
        probed=("t0_binary", "t0_sampled", "t0", "t0_A0"),
        headline=("t0_binary", "binary_information"),
        more=lambda model: presence_measures(model, images, seed),
    )
