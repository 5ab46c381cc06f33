"""Measures test errors of classifiers, on central crops and with scores averaged over crops (document 004, section 5).

Shapes: N images of C channels and S x S pixels, crops of s x s pixels, n classes.
"""

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from pipeline.classification.classifier import Classifier
from pipeline.data.datasets import Dataset
from pipeline.layers.images import centre_crop
from pipeline.learning.model import EvaluationInputs
from pipeline.learning.runs import of_kind
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, stack_replicas

BATCH = 64


def crop_places(side: int, crop: int) -> list[tuple[int, int]]:
    """Upper left corners (row, column) of 13 crops: one in the middle, eight at the image's edges, four in between."""
    free = side - crop
    ends, quarters = (0, free // 2, free), (free // 4, free - free // 4)
    around = [(row, column) for row in ends for column in ends if (row, column) != (free // 2, free // 2)]
    return [(free // 2, free // 2), *around, *((row, column) for row in quarters for column in quarters)]


@torch.no_grad()
def scores(model: Classifier, images: Tensor) -> Tensor:
    """Scores `[N, n]` of cropped images `[N, C, s, s]` in [0, 1], computed in batches on the model's device."""
    device = next(model.parameters()).device
    return torch.cat([model.scores(batch.to(device)) for batch in images.split(BATCH)])


def seen(images: NDArray[np.uint8], crop: int) -> Tensor:
    """Central crops `[N, C, s, s]` in [0, 1] of uint8 images `[N, C, S, S]`. Classifiers are tested on these crops."""
    return centre_crop(torch.from_numpy(images), crop).float() / 255


def crop_scores(model: Classifier, images: NDArray[np.uint8], crop: int, many: bool = True) -> Tensor:
    """Scores `[crops, N, n]` of 13 crops of each uint8 image, or only of the central crop if `many` is false."""
    pixels, places = torch.from_numpy(images), crop_places(images.shape[-1], crop)[: None if many else 1]
    bar = tqdm(places, desc="crops", unit="crop", leave=False, disable=not many)
    return torch.stack([scores(model, pixels[..., y : y + crop, x : x + crop].float() / 255) for y, x in bar])


def evaluate(inputs: EvaluationInputs) -> Outcome:
    """Measure test errors of all replicas. The table has the columns replica, test (metric), accuracy (1 - error)."""
    models, dataset = of_kind(Classifier, inputs.models), inputs.dataset
    crop = inputs.run.augmentation.seen_size(dataset.images.shape[-1])
    replicas = tqdm(models, desc=inputs.title, unit="network")
    errors = stack_replicas([classification_errors(model, dataset, crop) for model in replicas])
    # dvc.yaml plots these two columns, `test` and `accuracy`, for every system.
    table = errors.rename(columns={"metric": "test"})
    table["accuracy"] = 1 - table.pop("value")
    return Outcome("classification", table, {"test": nest(errors, ["metric"], "value")}, ("test.centre", "test.crops"))


def classification_errors(model: Classifier, dataset: Dataset, crop: int, many_crops: bool = True) -> pd.DataFrame:
    """Test errors (shares of misclassified images), one row per metric. `centre` is the error on central crops, and
    `<factor>-<value>` is the same for images whose factor has this value. With `many_crops`, `crops` is the error after
    averaging over 13 crops of an image: the activations (as in the document), or the softmax if scores are logits.
    """
    images, labels = dataset.part("test")
    each = crop_scores(model, images, crop, many_crops)
    wrong = (each[0].argmax(-1).cpu().numpy() != labels).astype(float)
    rows = [("centre", wrong.mean())]
    if many_crops:
        voted = each.mean(0) if model.scores_are_activations else each.softmax(-1).mean(0)
        rows.append(("crops", (voted.argmax(-1).cpu().numpy() != labels).mean()))
    for factor, values in dataset.factors.items():
        own = values[dataset.split["test"]]
        rows += [(f"{factor}-{value}", wrong[own == value].mean()) for value in np.unique(own[own >= 0])]
    return pd.DataFrame(rows, columns=["metric", "value"])
