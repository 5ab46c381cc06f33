"""Test errors of classifiers: from the middle of an image, and from many crops of it (document 004, section 4.1)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data.datasets import Dataset
from pipeline.layers.images import centre_crop, crops
from pipeline.models.classifier import Classifier
from pipeline.params import CropParams

BATCH = 64


def crop_places(side: int, crop: int) -> list[tuple[int, int]]:
    """Upper left corners of 13 crops: the middle first, then a grid of nine that spans the image, and four between."""
    free = side - crop
    whole = [(round(free * row / 2), round(free * column / 2)) for row in range(3) for column in range(3)]
    between = [(round(free * row / 4), round(free * column / 4)) for row in (1, 3) for column in (1, 3)]
    middle = (free // 2, free // 2)
    return [middle, *(place for place in whole if place != middle), *between]


@torch.no_grad()
def scores(model: Classifier, images: Tensor) -> Tensor:
    """Of images `[N, C, s, s]` in [0, 1] of the size that the model sees: `[N, n]`, on the device of the model."""
    device = next(model.parameters()).device
    return torch.cat([model.scores(batch.to(device)) for batch in images.split(BATCH)])


def seen(images: NDArray[np.uint8], augmentation: CropParams) -> Tensor:
    """What a classifier is tested on: the middle of images `[N, C, S, S]`, in [0, 1]."""
    return centre_crop(torch.from_numpy(images), augmentation.crop).float() / 255


def crop_scores(model: Classifier, images: NDArray[np.uint8], augmentation: CropParams) -> Tensor:
    """Scores of each of the crops, `[crops, N, n]`."""
    pixels, size = torch.from_numpy(images), augmentation.crop
    found = []
    for place in crop_places(images.shape[-1], size):
        where = torch.tensor(place).expand(len(pixels), 2)
        found.append(torch.cat([scores(model, part.float() / 255) for part in _cut(pixels, size, where)]))
    return torch.stack(found)


def _cut(pixels: Tensor, size: int, places: Tensor) -> list[Tensor]:
    return [crops(part, size, place) for part, place in zip(pixels.split(512), places.split(512), strict=True)]


def test_errors(model: Classifier, dataset: Dataset, augmentation: CropParams) -> pd.DataFrame:
    """Shares of test images that are misclassified, columns metric and value: by the middle crop, by activations
    averaged over 13 crops, and, on the middle, for every value of every factor known.

    Capsules' activations are averaged, as the document has it; of networks with logits, probabilities are.
    """
    images, labels = dataset.part("test")
    each = crop_scores(model, images, augmentation)
    voted = each.mean(0) if model.scores_are_activations else each.softmax(-1).mean(0)
    wrong = (each[0].argmax(-1).cpu().numpy() != labels).astype(float)
    rows = [("centre", wrong.mean()), ("crops", float((voted.argmax(-1).cpu().numpy() != labels).mean()))]
    for factor, values in dataset.factors.items():
        own = values[dataset.split["test"]]
        rows += [(f"{factor}-{value}", wrong[own == value].mean()) for value in np.unique(own[own >= 0])]
    return pd.DataFrame(rows, columns=["metric", "value"])
