"""Test errors of classifiers: from the middle of an image, and from many crops of it (document 004, section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data.datasets import Dataset
from pipeline.layers.images import centre_crop
from pipeline.models.classifier import Classifier
from pipeline.models.matrix_capsules import MatrixCapsules
from pipeline.outcome import Outcome
from pipeline.params import CropParams
from pipeline.studies import vote_distances
from pipeline.studies.summary import nest, spread, stack_replicas

BATCH = 64
VOTED = 500
"""Test images whose votes are looked at (the first ones)."""


def crop_places(side: int, crop: int) -> list[tuple[int, int]]:
    """Upper left corners of 13 crops: the middle first, then a grid of nine that spans the image, and four between."""
    free = side - crop
    ends, quarters = (0, free // 2, free), (free // 4, free - free // 4)
    around = [(row, column) for row in ends for column in ends if (row, column) != (free // 2, free // 2)]
    return [(free // 2, free // 2), *around, *((row, column) for row in quarters for column in quarters)]


Done = Callable[[int], object]
"""Hears of so many more steps done, such as a progress bar's `update`."""


def unheard(steps: int) -> None:
    """For work that nobody watches."""


@torch.no_grad()
def scores(model: Classifier, images: Tensor, done: Done = unheard) -> Tensor:
    """Of images `[N, C, s, s]` in [0, 1] of the size that the model sees: `[N, n]`, on the device of the model.

    Args:
        done: hears of the images of each batch.
    """
    device = next(model.parameters()).device
    found = []
    for batch in images.split(BATCH):
        found.append(model.scores(batch.to(device)))
        done(len(batch))
    return torch.cat(found)


def seen(images: NDArray[np.uint8], augmentation: CropParams) -> Tensor:
    """What a classifier is tested on: the middle of images `[N, C, S, S]`, in [0, 1]."""
    return centre_crop(torch.from_numpy(images), augmentation.crop).float() / 255


def crop_scores(
    model: Classifier, images: NDArray[np.uint8], augmentation: CropParams, many: bool = True, done: Done = unheard
) -> Tensor:
    """Scores of each of the crops, or of the middle one alone, `[crops, N, n]`."""
    pixels, size = torch.from_numpy(images), augmentation.crop
    places = crop_places(images.shape[-1], size)[: None if many else 1]
    return torch.stack([scores(model, pixels[..., y : y + size, x : x + size].float() / 255, done) for y, x in places])


def evaluate(models: Sequence[Classifier], dataset: Dataset, augmentation: CropParams, done: Done = unheard) -> Outcome:
    """Test errors of all replicas; of capsules also where the votes for classes go, and pictures of that."""
    errors = stack_replicas([classification_errors(model, dataset, augmentation, done=done) for model in models])
    numbers: dict[str, Any] = {"test": nest(errors, ["metric"], "value")}
    arrays: dict[str, NDArray[Any]] = {}
    capsules = [model for model in models if isinstance(model, MatrixCapsules)]
    if capsules:
        images, labels = dataset.part("test")
        images, labels = images[:VOTED], labels[:VOTED]
        pixels = seen(images, augmentation)
        found = [vote_distances.distances(model, pixels) for model in capsules]
        rows = [vote_distances.concentration(*each, labels) for each in found]
        numbers["voted_images"] = len(images)
        numbers["votes"] = {
            name: {str(t + 1): spread(row[name][t] for row in rows) for t in range(len(rows[0][name]))}
            for name in rows[0]
        }
        chosen = _examples(capsules[0], pixels, labels)
        arrays = vote_distances.histograms(*found[0], chosen)
        arrays |= {"images": images[chosen], "labels": labels[chosen]}
        arrays["scores"] = scores(capsules[0], pixels[chosen]).cpu().numpy()
    return Outcome(errors, numbers, arrays)


def _examples(model: Classifier, pixels: Tensor, labels: NDArray[np.int64], right: int = 2) -> list[int]:
    """The first images of different classes that are recognised, and the first that is not."""
    chosen: list[int] = []
    correct = scores(model, pixels).argmax(-1).cpu().numpy() == labels
    for place in np.flatnonzero(correct):
        if len(chosen) < right and labels[place] not in labels[chosen]:
            chosen.append(int(place))
    return chosen + np.flatnonzero(~correct)[:1].tolist()


def classification_errors(
    model: Classifier, dataset: Dataset, augmentation: CropParams, many_crops: bool = True, done: Done = unheard
) -> pd.DataFrame:
    """Shares of test images that are misclassified, columns metric and value: by the middle crop, in all and for every
    value of every factor known, and, with `many_crops`, by activations averaged over 13 crops.

    Capsules' activations are averaged, as the document has it; of networks with logits, probabilities are.
    """
    images, labels = dataset.part("test")
    each = crop_scores(model, images, augmentation, many_crops, done)
    wrong = (each[0].argmax(-1).cpu().numpy() != labels).astype(float)
    rows = [("centre", wrong.mean())]
    if many_crops:
        voted = each.mean(0) if model.scores_are_activations else each.softmax(-1).mean(0)
        rows.append(("crops", (voted.argmax(-1).cpu().numpy() != labels).mean()))
    for factor, values in dataset.factors.items():
        own = values[dataset.split["test"]]
        rows += [(f"{factor}-{value}", wrong[own == value].mean()) for value in np.unique(own[own >= 0])]
    return pd.DataFrame(rows, columns=["metric", "value"])
