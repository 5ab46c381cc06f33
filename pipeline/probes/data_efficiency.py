"""How much a model needs: its test error when it is trained on a share of the images, with as many steps as on all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pandas as pd
import torch

from pipeline.classification.classifier import Classifier
from pipeline.classification.errors import classification_errors
from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model
from pipeline.learning.settings import CropParams, RunSettings
from pipeline.probes.features import metrics_on_test_images
from pipeline.probes.generalisation import rotation_probes
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest

if TYPE_CHECKING:
    from pipeline.studies.data_efficiency import DataEfficiencyParams

AnyRun = TypeVar("AnyRun", bound=RunSettings)

ITSELF = "itself"
"""What classifies, where the model does; else it is a linear probe on features of that name."""
_FEWEST = 10
"""Validation images that stay, at least."""


def share_of(dataset: Dataset, share: float) -> Dataset:
    """The data set with a share of its training images and of its validation images, as many of every class.

    The first ones of each class in the order of the split, so that a smaller share is a part of a larger one. Test
    images stay.
    """
    if share == 1:
        return dataset
    split = dict(dataset.split)
    for part, fewest in (("train", 1), ("validation", _FEWEST)):
        indices = split[part]
        labels = pd.Series(dataset.labels[indices])
        # Of an image among those of its class, from 0 to 1
        place = labels.groupby(labels).cumcount() / labels.map(labels.value_counts())
        split[part] = indices[(place < max(share, min(1.0, fewest / len(indices)))).to_numpy()]
    return replace(dataset, split=split)


def with_share(run: AnyRun, settings: DataEfficiencyParams, images: int, whole: int) -> AnyRun:
    """The run for a share of the training images: as many steps as the study's epochs have with all, or, so that epochs
    are whole, a few more.

    Args:
        images: training images of the share; a batch has no more.
        whole: all training images. An epoch takes as many whole batches as there are.
    """
    batch = min(run.training.batch_size, images)
    steps = settings.epochs * (whole // min(run.training.batch_size, whole))
    longer = run.with_epochs(math.ceil(steps / (images // batch)))
    changes = {"patience": longer.training.epochs, "batch_size": batch}
    training = longer.training.model_copy(update=changes)
    return longer.model_copy(update={"replicas": settings.replicas, "training": training})


def errors_of(
    model: Model, run: RunSettings, dataset: Dataset, evaluate: EvaluateParams, device: torch.device
) -> pd.DataFrame:
    """The error on test images, a row for each way to classify: columns features, error.

    Args:
        dataset: what the model was trained on; probes are fit on its training images.
    """
    if isinstance(model, Classifier) and isinstance(run.augmentation, CropParams):
        errors = classification_errors(model, dataset, run.augmentation, many_crops=False)
        error = float(errors.set_index("metric")["value"]["centre"])
    else:
        metrics = metrics_on_test_images(model, dataset, evaluate.seed, device).set_index("metric")["value"]
        if "accuracy" not in metrics:
            probes = rotation_probes(model, dataset, 0.0, evaluate, device)
            return pd.DataFrame({"features": probes["features"], "error": 1 - probes["accuracy"]})
        error = 1 - float(metrics["accuracy"])
    return pd.DataFrame({"features": [ITSELF], "error": [error]})


def outcome(tables: Mapping[float, pd.DataFrame], images: Mapping[float, int]) -> Outcome:
    """The errors at every share.

    Args:
        tables: by share, columns replica, features, error.
        images: training images, by share.
    """
    table = pd.concat(
        [each.assign(share=f"{share:g}", images=images[share]) for share, each in tables.items()], ignore_index=True
    )
    errors = nest(table, ["share", "features"], "error")
    headline = [f"share.{share}.{features}" for share, each in errors.items() for features in each]
    numbers = {"share": errors, "images": {f"{share:g}": count for share, count in images.items()}}
    return Outcome("data_efficiency", table, numbers, tuple(headline[:MOST_HEADLINES]))
