"""Stores a data set (images, labels, factors of variation and a fixed split) in one npz file without pickled objects.

Images are in the order of their source. The split holds indices of images, in increasing order or shuffled with a seed.
The data set `toys` stores only the images in the split. Other data sets can store images outside the split, too.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.files import write_arrays

PARTS = ("train", "validation", "test")

OWN_IMAGES = "images.npz"
"""Name of the file with the user's own images, in a raw data folder. It has a `Dataset` without validation images."""

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""N images `[N, C, S, S]` (C channels of S x S pixels) and their classes `[N]`."""

_FORMAT, _FACTORS = "capsules data set 1", "factors/"


@dataclass(frozen=True)
class Dataset:
    """Images with labels and a fixed split.

    Attributes:
        name: its key in `datasets` of params.yaml, or in `own_images`.
        label: its display name. It contains "(stand-in)" if the images are rendered instead of downloaded.
        images: N images of C channels, `[N, C, H, W]` uint8.
        labels: `[N]` int64.
        factors: arrays `[N]` of other properties of the images, by name.
        split: int64 indices of images, by part (`PARTS`). The parts do not overlap.
        classes: display names of the labels 0, 1, ...
    """

    name: str
    label: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    factors: dict[str, NDArray[Any]]
    split: dict[str, NDArray[np.int64]]
    classes: tuple[str, ...] = ()

    def part(self, name: str) -> Labelled:
        """Images and labels of one of `PARTS`, in the order of the split."""
        chosen = self.split[name]
        return self.images[chosen], self.labels[chosen]


def save_dataset(path: Path, dataset: Dataset) -> None:
    """Write a data set to one npz file, atomically. Equal data sets give equal bytes. UserError if writing fails."""
    texts = {"format": _FORMAT, "name": dataset.name, "label": dataset.label, "classes": dataset.classes}
    arrays: dict[str, NDArray[Any]] = {name: np.array(text, dtype=str) for name, text in texts.items()}
    arrays |= {"images": dataset.images, "labels": dataset.labels}
    arrays |= {f"split/{part}": dataset.split[part] for part in PARTS}
    arrays |= {f"{_FACTORS}{name}": dataset.factors[name] for name in sorted(dataset.factors)}
    write_arrays(path, arrays)


def load_dataset(path: Path, stage: str = "preprocess") -> Dataset:
    """Load a data set. Raises `UserError`, which names the `stage` to run, if the file is missing or damaged."""
    with reading(path, stage), path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        arrays = dict(stored)
        if str(arrays["format"]) != _FORMAT:
            raise ValueError(f"it is no {_FORMAT!r}")
        return Dataset(
            name=str(arrays["name"]),
            label=str(arrays["label"]),
            images=arrays["images"],
            labels=arrays["labels"],
            factors={name[len(_FACTORS) :]: arrays[name] for name in arrays if name.startswith(_FACTORS)},
            split={part: arrays[f"split/{part}"] for part in PARTS},
            classes=tuple(arrays["classes"].tolist()),
        )


def pixel_bytes(path: Path) -> int:
    """Bytes that a data set's images take in memory, as stated in its npz file. 0 if the file cannot be read."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.getinfo("images.npy").file_size
    except (OSError, KeyError, zipfile.BadZipFile):
        return 0  # `load_dataset` then raises the error


@contextmanager
def reading(path: Path, stage: str | None = None) -> Iterator[None]:
    """Turn any error of the `with` block into a `UserError` that names the file and, if given, the `stage` to run. If
    the user may not read the file, the stage is not named. A `UserError` is not changed. A `MemoryError` also becomes a
    `UserError`, because a damaged file header can cause it.
    """
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{error.filename} is missing{f': run the {stage} stage first' if stage else ''}") from None
    except PermissionError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    # All exceptions are caught, because libraries raise exceptions of many types if a file is damaged.
    except Exception as error:
        advice = f"delete it and run the {stage} stage again" if stage else "it is damaged, or of another kind"
        raise UserError(f"{path} cannot be read ({str(error) or type(error).__name__}): {advice}") from error
