"""Validation on held-out values of a factor, such as toys of smallNORB that training never sees.

Test images of smallNORB show other toys than training images. Random validation images show known toys, so that their
error is far below the test error.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.data.datasets import Dataset, Labelled
from pipeline.data.settings import HoldoutParams
from pipeline.errors import UserError

KNOWN = "known"
"""Name of the images that are measured, not trained on, and whose values of the factor occur in training."""

_SEED = 0
"""Seed that draws known images and watched test images, which are the same for all runs with equal settings."""


def watch_tests(dataset: Dataset, count: int) -> dict[str, Labelled]:
    """`count` random test images and their classes (all if there are fewer), named `test`; empty if `count` is 0."""
    images, labels = dataset.part("test")
    chosen = np.random.default_rng(_SEED).permutation(len(labels))[:count]
    return {"test": (images[chosen], labels[chosen])} if count else {}


def hold_out(dataset: Dataset, holdout: HoldoutParams) -> tuple[Dataset, dict[str, Labelled]]:
    """Split the training and validation images of a data set anew, by the value of a factor of variation.

    Returns:
        the data set, with the images of `holdout.value` for validation and the others for training; and a random share
        of the others, removed from training: images and classes named `KNOWN`; empty if `known_share` gives none.

    Raises `UserError` if the factor is unknown for any image, no image has the value, or none is left to train on.
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
