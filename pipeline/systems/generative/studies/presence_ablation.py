"""What each setting contributes to presences that carry information: a run trained with some settings changed.

Bounds are not compared, as in `sensitivity`. Whether presences are silent is measured as in `evaluation.presences`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from pipeline.settings import Name, Section
from pipeline.systems.generative.settings import GenerativeRun

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from pipeline.data.datasets import Dataset
    from pipeline.params import Params
    from pipeline.probes.settings import EvaluateParams
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context
    from pipeline.systems.generative.model.generative_model import GenerativeModel


PROBED = ("t0_sampled", "t0", "t0_A0")
"""The features that are probed, on clean images."""


class PresenceAblationParams(Section):
    """A run trained with some settings changed: what each contributes to presences that carry information."""

    run: Name = Field(description="a key of `runs` whose variant is generative")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, at most")
    replicas: int = Field(ge=1, le=1000, description="seeds trained")
    conditions: dict[Name, dict[str, int | float | str | dict[str, int] | None]] = Field(
        min_length=1,
        description="for each condition, the settings of the run's model that it changes; none for the unchanged run",
    )


SETTINGS = PresenceAblationParams


def check(params: Params, where: str, study: PresenceAblationParams) -> None:
    """ValueError if the run is of the wrong kind, or a condition does not give a valid model."""
    params.check_changes_of_model(where, study.run, "generative", study.conditions)


def measure(context: Context) -> Outcome:
    """Train and probe the run of an entry of `presence_ablation` in every condition."""
    from pipeline.learning.runs import of_kind
    from pipeline.results.spread import stack_replicas
    from pipeline.systems.generative.model.generative_model import GenerativeModel

    settings: PresenceAblationParams = context.settings
    unchanged = context.params.runs[settings.run]
    assert isinstance(unchanged, GenerativeRun)  # params.yaml was checked
    dataset, tables = context.dataset(unchanged.dataset), {}
    for condition in settings.conditions:
        trained = context.train(condition, changed(unchanged, settings, condition))
        tables[condition] = stack_replicas(
            [
                probe(model, dataset, context.params.evaluate, context.device)
                for model in of_kind(GenerativeModel, trained.models)
            ]
        )
    return outcome(tables)


def changed(run: GenerativeRun, study: PresenceAblationParams, condition: str) -> GenerativeRun:
    """A run with the replicas and epochs of an ablation, and the settings of one of its conditions.

    What a condition counts in epochs is in those of the run, and is shortened with it.
    """
    model = run.model.changed(study.conditions[condition])
    shorter = run.model_copy(update={"model": model}).with_epochs(study.epochs)
    return shorter.model_copy(update={"replicas": study.replicas})


def probe(model: GenerativeModel, dataset: Dataset, evaluate: EvaluateParams, device: torch.device) -> pd.DataFrame:
    """Columns metric, measured: accuracies of probes on clean images by their features, the pixel error, and the
    measures of `presence_measures`, all on test images.
    """
    import pandas as pd

    from pipeline.probes.generalisation import rotation_probes
    from pipeline.probes.metrics import metrics_on_test_images
    from pipeline.systems.generative.evaluation.presences import presence_measures

    probes = rotation_probes(model, dataset, 0.0, evaluate, device, sampled=True).set_index("features")["accuracy"]
    metrics = metrics_on_test_images(model, dataset, evaluate.seed, device).set_index("metric")["value"]
    measured = {name: float(probes[name]) for name in PROBED} | {"pixel_error": float(metrics["pixel_error"])}
    measured |= presence_measures(model, dataset.part("test")[0], evaluate.seed, device)
    return pd.DataFrame(list(measured.items()), columns=["metric", "measured"])


def outcome(tables: Mapping[str, pd.DataFrame]) -> Outcome:
    """What was measured in every condition.

    Args:
        tables: by condition, columns replica, metric, measured.
    """
    import pandas as pd

    from pipeline.results.outcome import MOST_HEADLINES, Outcome
    from pipeline.results.spread import nest

    table = pd.concat([each.assign(condition=name) for name, each in tables.items()], ignore_index=True)
    values = nest(table, ["condition", "metric"], "measured")
    headline = [f"condition.{name}.{metric}" for name in values for metric in ("t0_sampled", "presence_information")]
    numbers = {"condition": values}
    return Outcome("presence_ablation", table, numbers, tuple(headline[:MOST_HEADLINES]))
