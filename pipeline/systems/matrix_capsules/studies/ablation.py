"""Train and test matrix capsules with something changed (document 004, Table 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from pipeline.settings import Name, Section
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun

if TYPE_CHECKING:
    import pandas as pd

    from pipeline.classification.classifier import Classifier
    from pipeline.data.datasets import Dataset
    from pipeline.learning.train import Trained
    from pipeline.params import Params
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context


class AblationParams(Section):
    """Conditions of document 004, Table 1: a run of matrix capsules, trained with some settings changed in each."""

    run: Name = Field(description="a key of `runs` whose variant is matrix_capsules")
    epochs: int = Field(ge=1, le=10_000, description="passes over the training images, at most")
    replicas: int = Field(ge=1, le=1000, description="seeds trained")
    conditions: dict[Name, dict[str, bool | int | float | str | list[int] | dict[str, float]]] = Field(
        min_length=1,
        description="for each condition, the settings of the run's model that it changes; none for the unchanged run",
    )


SETTINGS = AblationParams


def check(params: Params, where: str, study: AblationParams) -> None:
    """ValueError if the run is of the wrong kind, or a condition does not give a valid model."""
    params.check_changes_of_model(where, study.run, "matrix_capsules", study.conditions)


class Measured(NamedTuple):
    """What was measured of one condition.

    Attributes:
        table: test errors; columns replica, metric, value.
        numbers: test errors on the middle crop, accuracies at the best epoch, sizes, and the seconds of
            training.
    """

    table: pd.DataFrame
    numbers: dict[str, Any]


def measure(context: Context) -> Outcome:
    """Train and test the run of an entry of `ablation` in every condition."""
    from pipeline.learning.runs import of_kind
    from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules

    settings: AblationParams = context.settings
    unchanged = context.params.runs[settings.run]
    assert isinstance(unchanged, MatrixCapsulesRun)  # params.yaml was checked
    dataset, measured = context.dataset(unchanged.dataset), {}
    for condition in settings.conditions:
        run = ablated(unchanged, settings, condition)
        trained, models = context.train(condition, run)
        measured[condition] = errors_of(of_kind(MatrixCapsules, models), trained, dataset, run)
    return outcome(measured)


def ablated(run: MatrixCapsulesRun, study: AblationParams, condition: str) -> MatrixCapsulesRun:
    """A run with the replicas and epochs of an ablation, and the settings of one of its conditions."""
    changed = run.model_copy(update={"model": run.model.changed(study.conditions[condition])})
    return changed.with_epochs(study.epochs).model_copy(update={"replicas": study.replicas})


def errors_of(models: Sequence[Classifier], trained: Trained, dataset: Dataset, run: MatrixCapsulesRun) -> Measured:
    """Test errors of all replicas of a condition, their best validation accuracies, and how long it took."""
    from pipeline.classification.errors import classification_errors
    from pipeline.learning.model import count_parameters
    from pipeline.learning.summary import best_rows
    from pipeline.results.spread import nest, spread, stack_replicas

    errors = [classification_errors(model, dataset, run.augmentation, many_crops=False) for model in models]
    table = stack_replicas(errors)
    best = best_rows(trained)
    numbers = {
        "test": nest(table, ["metric"], "value"),
        "validation": {"accuracy": spread(row["validation_accuracy"] for row in best)},
        "train": {"accuracy": spread(row["train_accuracy"] for row in best)},
        "best_epoch": spread(trained.best_epoch),
        "parameters": count_parameters(models[0]),
        "seconds": round(trained.seconds, 2),
    }
    return Measured(table, numbers)


def outcome(measured: Mapping[str, Measured]) -> Outcome:
    """What was measured of every condition, by its name."""
    import pandas as pd

    from pipeline.results.outcome import MOST_HEADLINES, Outcome

    table = pd.concat([each.table for each in measured.values()], ignore_index=True)
    names = [name for name, each in measured.items() for _ in range(len(each.table))]
    table.insert(0, "condition", names)
    headline = tuple(f"condition.{name}.test.centre" for name in measured)[:MOST_HEADLINES]
    numbers = {"condition": {name: each.numbers for name, each in measured.items()}}
    return Outcome("ablation", table, numbers, headline)
