"""Holds out the images with one value of a factor for validation, such as one toy in each class of smallNORB.

smallNORB's test images show other toys than its training images. Random validation images show the same toys as the
training images. Therefore the error on random validation images is far below the test error.
"""

from dataclasses import replace

import numpy as np

from pipeline.data.datasets import Dataset, Labelled
from pipeline.data.settings import HoldoutParams
from pipeline.errors import UserError

KNOWN = "known"
"""Key under which `hold_out` returns images withheld from training: a random share of those not for validation."""

_SEED = 0
"""Seed for drawing `KNOWN` images and watched test images. Runs with equal settings draw the same images."""


def watch_tests(dataset: Dataset, count: int) -> dict[str, Labelled]:
    """A dictionary with up to `count` random test images and their classes under `test`. Empty if `count` is 0."""
    images, labels = dataset.part("test")
    chosen = np.random.default_rng(_SEED).permutation(len(labels))[:count]
    return {"test": (images[chosen], labels[chosen])} if count else {}


def hold_out(dataset: Dataset, holdout: HoldoutParams) -> tuple[Dataset, dict[str, Labelled]]:
    """Split the training and validation images of a data set anew, by the value of a factor of variation.

    Images whose factor is `holdout.value` are for validation. A random share (`holdout.known_share`) of the others is
    withheld. All remaining images are for training. Returns the data set with this split, and a dictionary with the
    withheld images and their classes under the key `KNOWN`. The dictionary is empty if no image is withheld.

    Raises `UserError` if the data set lacks the factor, if the factor is unknown for an image, if no image has the
    value, or if no image remains for training.
    """
    pool, factor = np.concatenate([dataset.split["train"], dataset.split["validation"]]), holdout.factor
    if factor not in dataset.factors:
        known = ", ".join(sorted(dataset.factors)) or "none"
        raise UserError(f"holdout.factor: {dataset.label} has no {factor} (its factors: {known})")
    values = dataset.factors[factor][pool]
    if unknown := int((values < 0).sum()):
        raise UserError(f"holdout.factor: the {factor} is unknown of {unknown:,} of {len(pool):,} images")
    held = values == holdout.value
    there = f"{dataset.label} has {factor} {', '.join(str(value) for value in np.unique(values))}"
    if not held.any():
        raise UserError(f"holdout.value: no training image has {factor} {holdout.value} ({there})")
    others = pool[~held]
    count = round(holdout.known_share * len(others))
    if count == len(others):
        raise UserError(f"holdout: of {len(pool):,} images, none is left to train on ({there})")
    is_known = np.zeros(len(others), bool)
    is_known[np.random.default_rng(_SEED).permutation(len(others))[:count]] = True
    split = {**dataset.split, "train": others[~is_known], "validation": pool[held]}
    chosen = others[is_known]
    watched = {KNOWN: (dataset.images[chosen], dataset.labels[chosen])} if count else {}
    return replace(dataset, split=split), watched
