"""What a condition of document 004, Table 1, comes to."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.classification.classifier import Classifier
from pipeline.classification.errors import classification_errors
from pipeline.data.datasets import Dataset
from pipeline.learning.gradient import Trained
from pipeline.learning.replicas import count_parameters
from pipeline.learning.summary import best_rows
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, spread, stack_replicas
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.matrix_capsules.studies.settings import AblationParams


def ablated(run: MatrixCapsulesRun, study: AblationParams) -> MatrixCapsulesRun:
    """A run with the settings, replicas and epochs of an ablation."""
    shorter = run.with_epochs(study.epochs)
    return shorter.model_copy(update={"replicas": study.replicas, "model": shorter.model.changed(study.model)})


def outcome(models: Sequence[Classifier], trained: Trained, dataset: Dataset, run: MatrixCapsulesRun) -> Outcome:
    """Test errors of all replicas by the middle crop, their best validation accuracies, and how long it took."""
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
    headline = ("test.centre", "validation.accuracy", "train.accuracy")
    return Outcome("ablation", table, numbers, headline, trained={"run": run.model_dump(mode="json")})
