"""What a condition of document 004, Table 1, comes to."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.data.datasets import Dataset
from pipeline.learning.gradient import Trained
from pipeline.learning.replicas import count_parameters
from pipeline.learning.summary import best_rows
from pipeline.models.classifier import Classifier
from pipeline.outcome import Outcome
from pipeline.params import CropParams
from pipeline.studies.classification import classification_errors
from pipeline.studies.summary import nest, spread, stack_replicas


def outcome(models: Sequence[Classifier], trained: Trained, dataset: Dataset, augmentation: CropParams) -> Outcome:
    """Test errors of all replicas by the middle crop, their best validation accuracies, and how long it took."""
    errors = [classification_errors(model, dataset, augmentation, many_crops=False) for model in models]
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
    return Outcome(table, numbers)
