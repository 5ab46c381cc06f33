"""Builds data sets from downloaded files: reads them, centres images on the canvas, and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.data.datasets import PARTS, Dataset, DatasetError, reading
from pipeline.data.published import READERS, Content, own_images
from pipeline.data.settings import DatasetParams


def build_dataset(name: str, params: DatasetParams, raw: Path) -> Dataset:
    """Read a data set's downloaded files and split it.

    The official test part is kept separate; if there is none (digits), test images are taken from the whole set. Every
    part is shuffled with `split_seed`, so that its first images are a random sample of it. Keeping fewer training
    images does not change the validation and test images.

    Factors: smallNORB and toys have `instance` (0 to 9), `azimuth` and `elevation` (degrees) and `lighting` (0 to 5),
    -1 where unknown; the category is the label.

    Args:
        name: key of the data set in params.yaml.
        raw: folder of the source's downloaded files.

    Raises:
        DatasetError: a file is missing or damaged, more images are requested than there are, the canvas is smaller than
            the images, or no training image is left of a class.
    """
    with reading(raw, stage="download"):
        content = READERS.get(params.source, own_images)(raw)
    split = _split(name, params, content)
    missing = set(range(len(content.classes))) - set(content.labels[split["train"]].tolist())
    if missing and params.source not in READERS:  # small sets can lose a class to the other parts
        names = ", ".join(repr(content.classes[label]) for label in sorted(missing)[:5])
        raise DatasetError(f"datasets.{name}: no training image is of the class {names}: set another split_seed")
    images, labels, factors = content.images, content.labels, content.factors
    if callable(images):
        kept, places = np.unique(np.concatenate([split[part] for part in PARTS]), return_inverse=True)
        images, labels = images(kept), labels[kept]
        factors = {factor: values[kept] for factor, values in factors.items()}
        split = dict(zip(PARTS, np.split(places, np.cumsum([len(split[part]) for part in PARTS[:-1]])), strict=True))
    side, canvas = images.shape[-1], params.canvas
    if canvas < side:
        raise DatasetError(f"datasets.{name}: canvas {canvas} is too small for images of {side}x{side} pixels")
    free = canvas - side
    margin = (free // 2, free - free // 2)  # an odd pixel is added at the bottom and on the right
    return Dataset(
        name=name,
        label=content.label if canvas == side else f"{content.label}, {canvas}x{canvas}",
        images=np.pad(images, ((0, 0), (0, 0), margin, margin)) if free else images,
        labels=labels,
        factors=factors,
        split=split,
        classes=content.classes,
    )


def _split(name: str, params: DatasetParams, content: Content) -> dict[str, NDArray[np.int64]]:
    """The indices of each part. Without a seed they are in published order: the first training images, the last ones
    for validation, the first test images; where no official test part is, those just before validation are for testing.
    """
    pool_size, train, validation = len(content.labels) - content.test, params.train, params.validation
    try:
        params.check_counts(f"datasets.{name}", content.label, pool_size, content.test)
    except ValueError as error:
        raise DatasetError(str(error)) from None
    if params.split_seed is None:
        begin = pool_size if content.test else pool_size - validation - params.test
        return {
            "train": np.arange(train),
            "validation": np.arange(pool_size - validation, pool_size),
            "test": np.arange(begin, begin + params.test),
        }
    random = np.random.default_rng(params.split_seed)
    pool = random.permutation(pool_size)
    test = pool_size + random.permutation(content.test) if content.test else pool[::-1]
    return {
        "train": pool[validation : validation + train],
        "validation": pool[:validation],
        "test": test[: params.test],
    }
