"""The results of the conditions of document 004, Table 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from pipeline.classification.classifier import Classifier
from pipeline.classification.errors import classification_errors
from pipeline.data.datasets import Dataset
from pipeline.learning.gradient import Trained
from pipeline.learning.replicas import count_parameters
from pipeline.learning.runs import of_kind
from pipeline.learning.summary import best_rows
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest, spread, stack_replicas
from pipeline.studies.context import Context
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.matrix_capsules.studies.settings import AblationParams


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
    table = pd.concat([each.table for each in measured.values()], ignore_index=True)
    names = [name for name, each in measured.items() for _ in range(len(each.table))]
    table.insert(0, "condition", names)
    headline = tuple(f"condition.{name}.test.centre" for name in measured)[:MOST_HEADLINES]
    numbers = {"condition": {name: each.numbers for name, each in measured.items()}}
    return Outcome("ablation", table, numbers, headline)
