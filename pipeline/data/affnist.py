"""affNIST's own test images."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.data.datasets import Dataset
from pipeline.data.formats import read_affnist

_DIGITS = tuple("0123456789")


def build_affnist(raw: Path, versions: int = 32) -> Dataset:
    """The official affNIST test images, 40x40 pixels, all of them in the test part.

    Args:
        raw: folder with affNIST's `test_batches.zip`.
        versions: how many of the 32 random versions of each MNIST test digit to read; 10,000 images each. The factor
            `version` counts them from 1.

    Raises:
        FormatError: the file is missing, damaged or in another format.
    """
    images, labels, version = read_affnist(raw / "test_batches.zip", versions)
    none = np.empty(0, np.int64)
    split = {"train": none, "validation": none, "test": np.arange(len(labels))}
    return Dataset("affnist", "affNIST", images[:, None], labels, {"version": version}, split, _DIGITS)
