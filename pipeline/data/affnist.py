"""Reads the official test images of affNIST: MNIST digits with random affine warps."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np

from pipeline.data.datasets import Labelled, reading

AFFNIST_SIZE = 40
"""Height and width of an affNIST image in pixels."""


def read_affnist(raw: Path, versions: int) -> Labelled:
    """Read N official affNIST images `[N, 1, 40, 40]` and their classes `[N]` from `raw/test_batches.zip`.

    The archive has 32 numbered Matlab files. Each file has one randomly warped version of each of the 10,000 MNIST test
    digits. The first `versions` files are read. Raises `UserError` if the archive is missing or damaged.
    """
    from scipy.io import loadmat

    images, labels = [], []
    path = raw / "test_batches.zip"
    with reading(path, stage="download"), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".mat") and "__MACOSX" not in name]
        # Files are sorted by number, so that 2.mat comes before 10.mat.
        for name in sorted(names, key=lambda name: int(re.findall(r"\d+", name)[-1]))[:versions]:
            record = loadmat(io.BytesIO(archive.read(name)))["affNISTdata"][0, 0]
            # Each column is an image, whose pixels are listed row by row.
            images.append(record["image"].T.reshape(-1, 1, AFFNIST_SIZE, AFFNIST_SIZE))
            labels.append(record["label_int"].ravel().astype(np.int64))
    return np.concatenate(images), np.concatenate(labels)
