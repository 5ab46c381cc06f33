"""Data efficiency: the test error of a model trained on a share of the images, for as many steps as on all images."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, TypeVar

from pydantic import Field, model_validator

from pipeline.context import Context
from pipeline.data.datasets import Dataset
from pipeline.learning.settings import RunSettings
from pipeline.probes.settings import EvaluateParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.settings import Name, Section
from pipeline.shared_params import SharedParams

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from pipeline.learning.model import Model

AnyRun = TypeVar("AnyRun", bound=RunSettings)

LONGEST = 10_000
"""Limit of `epochs` / share, which is about the number of epochs of a training on the share."""
ITSELF = "itself"
"""Entry of the column `features` if the model itself classifies. Other entries name the features of linear probes."""
_FEWEST = 10
"""Smallest number of validation images of a share, unless the whole data set has fewer."""


class DataEfficiencyParams(Section):
    """Training on shares of the images, with as many steps as on all of them."""

    run: Name = Field(description="a key of `runs`")
    shares: list[Annotated[float, Field(gt=0, le=1)]] = Field(
        min_length=1, description="shares of the training and validation images, the same share of every class"
    )
    epochs: int = Field(ge=1, le=1000, description="number of passes over all images; smaller shares get as many steps")
    replicas: int = Field(ge=1, le=1000, description="number of replicas trained on each share")

    @model_validator(mode="after")
    def _consistent(self) -> DataEfficiencyParams:
        if sorted(set(self.shares)) != self.shares:
            raise ValueError("shares must increase")
        if self.epochs / self.shares[0] > LONGEST:
            raise ValueError(f"{self.epochs} epochs / {self.shares[0]:g} of the images are more than {LONGEST} epochs")
        return self


SETTINGS = DataEfficiencyParams


def check(params: SharedParams, where: str, study: DataEfficiencyParams) -> None:
    """Raise `ValueError` if there is no run `study.run`."""
    params.run_of(f"{where}.run", study.run)


def measure(context: Context) -> Outcome:
    """Train the run of an entry of `data_efficiency` on each share of its images, and test it on all test images."""
    import pandas as pd

    from pipeline.results.spread import nest, stack_replicas

    settings: DataEfficiencyParams = context.settings
    unchanged = context.params.runs[settings.run]
    dataset = context.dataset(unchanged.dataset)
    tables, images = [], {}
    for share in settings.shares:
        part = share_of(dataset, share)
        count = images[f"{share:g}"] = len(part.split["train"])
        run = with_share(unchanged, settings, count, len(dataset.split["train"]))
        _, models = context.train(f"share={share:g}", run, part, key=f"{share:g}")
        errors = [errors_of(model, run, part, context.params.evaluate, context.device) for model in models]
        tables.append(stack_replicas(errors).assign(share=f"{share:g}", images=count))
    table = pd.concat(tables, ignore_index=True)
    found = nest(table, ["share", "features"], "error")
    headline = [f"share.{share}.{features}" for share, each in found.items() for features in each]
    return Outcome("data_efficiency", table, {"share": found, "images": images}, tuple(headline[:MOST_HEADLINES]))


def share_of(dataset: Dataset, share: float) -> Dataset:
    """The data set with a share of its training and validation images, the same share of every class.

    The result has the first images of each class, in the order of the split, so a larger share contains every smaller
    one. It has at least `_FEWEST` validation images (or all, if there are fewer), and all test images.
    """
    import pandas as pd

    if share == 1:
        return dataset
    split = dict(dataset.split)
    for part, fewest in (("train", 1), ("validation", _FEWEST)):
        indices = split[part]
        labels = pd.Series(dataset.labels[indices])
        # The rank of each image in its class, divided by the size of the class.
        place = labels.groupby(labels).cumcount() / labels.map(labels.value_counts())
        split[part] = indices[(place < max(share, min(1.0, fewest / len(indices)))).to_numpy()]
    return replace(dataset, split=split)


def with_share(run: AnyRun, settings: DataEfficiencyParams, images: int, whole: int) -> AnyRun:
    """The run's settings for a share of the training images. Training takes as many steps as `settings.epochs` epochs
    of all images, rounded up to whole epochs of the share. It does not stop early.

    Args:
        images: number of training images of the share. It limits the batch size.
        whole: number of all training images. An epoch leaves out an incomplete last batch.
    """
    batch = min(run.training.batch_size, images)
    steps = settings.epochs * (whole // min(run.training.batch_size, whole))
    longer = run.with_epochs(math.ceil(steps / (images // batch)))
    training = longer.training.model_copy(update={"patience": longer.training.epochs, "batch_size": batch})
    return longer.model_copy(update={"replicas": settings.replicas, "training": training})


def errors_of(
    model: Model, run: RunSettings, dataset: Dataset, evaluate: EvaluateParams, device: torch.device
) -> pd.DataFrame:
    """Errors on test images: one row if the model itself classifies, else one row per probe. Columns: features, error.

    Args:
        dataset: the data set that the model was trained on. Probes are fitted to its training images.
    """
    import pandas as pd

    from pipeline.classification.classifier import Classifier
    from pipeline.classification.errors import classification_errors
    from pipeline.probes.features import metrics_on_test_images
    from pipeline.probes.generalisation import rotation_probes

    if isinstance(model, Classifier):
        crop = run.augmentation.seen_size(dataset.images.shape[-1])
        errors = classification_errors(model, dataset, crop, many_crops=False).set_index("metric")
        return pd.DataFrame({"features": [ITSELF], "error": [float(errors["value"]["centre"])]})
    metrics = metrics_on_test_images(model, dataset, evaluate.seed, device)
    if "accuracy" in metrics:
        return pd.DataFrame({"features": [ITSELF], "error": [1 - metrics["accuracy"]]})
    probes = rotation_probes(model, dataset, 0.0, evaluate, device)
    return pd.DataFrame({"features": probes["features"], "error": 1 - probes["accuracy"]})
