"""Validation by what images show: of smallNORB, toys that training never sees.

The test images of smallNORB show other toys than the training images. A random share of the training images shows the
same toys as the others, and the error on it is far lower than the test error.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.data.datasets import Dataset
from pipeline.data.settings import HoldoutParams
from pipeline.errors import UserError

KNOWN = "known"
"""The name of images like those trained on."""

_SEED = 0
"""Draws the known and the watched images, which are thus the same for all runs with equal settings."""


class HoldoutError(UserError):
    """The images that a run holds out are not there, or nothing is left to train on."""


def watch_tests(dataset: Dataset, count: int) -> dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """`count` test images and their classes, drawn at random, or all if there are fewer, under the name `test`; nothing
    if `count` is 0.
    """
    if not count:
        return {}
    images, labels = dataset.part("test")
    chosen = np.random.default_rng(_SEED).permutation(len(labels))[:count]
    return {"test": (images[chosen], labels[chosen])}


def hold_out(
    dataset: Dataset, holdout: HoldoutParams
) -> tuple[Dataset, dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]]:
    """Split a data set's images for training and validation anew, by a factor.

    Returns:
        the data set, its validation images those of the factor's value, its training images the others; and images and
        classes taken out of these, under the name `KNOWN`, where `known_share` is not 0.

    Raises:
        HoldoutError: the factor is not known of these images, none has this value, or none is left to train on.
    """
    pool = np.concatenate([dataset.split["train"], dataset.split["validation"]])
    if holdout.factor not in dataset.factors:
        known = ", ".join(sorted(dataset.factors)) or "none"
        raise HoldoutError(f"holdout.factor: {dataset.label} has no {holdout.factor} (its factors: {known})")
    values = dataset.factors[holdout.factor][pool]
    unknown = int((values < 0).sum())
    if unknown:
        raise HoldoutError(
            f"holdout.factor: the {holdout.factor} is unknown of {unknown:,} of {len(pool):,} images of {dataset.label}"
        )
    held = values == holdout.value
    there = ", ".join(str(value) for value in np.unique(values))
    if not held.any():
        raise HoldoutError(
            f"holdout.value: no training image of {dataset.label} has {holdout.factor} {holdout.value} (there are "
            f"{there})"
        )
    others = pool[~held]
    count = round(holdout.known_share * len(others))
    if count == len(others):
        raise HoldoutError(
            f"holdout: of the {len(pool):,} images of {dataset.label}, none is left to train on ({holdout.factor}: "
            f"{there})"
        )
    is_known = np.zeros(len(others), bool)
    is_known[np.random.default_rng(_SEED).permutation(len(others))[:count]] = True
    split = {**dataset.split, "train": others[~is_known], "validation": pool[held]}
    chosen = others[is_known]
    watched = {KNOWN: (dataset.images[chosen], dataset.labels[chosen])} if count else {}
    return replace(dataset, split=split), watched
