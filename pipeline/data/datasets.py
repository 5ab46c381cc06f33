"""Data sets: images, labels, factors and a fixed split, in one file that is safe to open.

Images keep their published order and bytes; the split consists of indices into them, drawn with a seed. For rendered
data sets, only the images of the split are rendered.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError
from pipeline.files import read_arrays, write_arrays
from pipeline.memory import available_bytes

PARTS = ("train", "validation", "test")

OWN_IMAGES = "images.npz"
"""The file of the user's own images among the raw data: a data set without validation images, not yet split."""

_FORMAT = "capsules data set 1"


class DatasetError(UserError):
    """More images were requested than there are, or a data set's file is missing, damaged or in another format."""


@dataclass(frozen=True)
class Dataset:
    """Images with labels and a fixed split.

    Attributes:
        name: its key in `datasets` of params.yaml.
        label: its display name, which also says if it is a stand-in.
        images: `[N, C, H, W]` uint8.
        labels: `[N]` int64.
        factors: other properties of each image, by name, `[N]` each.
        split: indices of the images in each of `PARTS`, int64; the parts do not overlap.
        classes: display names of the labels 0, 1, ...
    """

    name: str
    label: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    factors: dict[str, NDArray[Any]]
    split: dict[str, NDArray[np.int64]]
    classes: tuple[str, ...] = ()

    def part(self, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Images and labels of one of `PARTS`, in the order of the split."""
        chosen = self.split[name]
        return self.images[chosen], self.labels[chosen]


def save_dataset(path: Path, dataset: Dataset) -> None:
    """Write a data set as one compressed npz without pickles, atomically; equal data sets give equal bytes.

    Raises:
        FileWriteError: the file could not be written, for example because the disk is full.
    """
    arrays: dict[str, NDArray[Any]] = {
        "format": np.array(_FORMAT),
        "name": np.array(dataset.name),
        "label": np.array(dataset.label),
        "classes": np.array(dataset.classes, dtype=str),
        "images": dataset.images,
        "labels": dataset.labels,
    }
    arrays |= {f"split/{part}": dataset.split[part] for part in PARTS}
    arrays |= {f"factors/{name}": dataset.factors[name] for name in sorted(dataset.factors)}
    write_arrays(path, arrays)


def load_dataset(path: Path) -> Dataset:
    """Read what `save_dataset` wrote.

    Raises:
        DatasetError: the file is missing, unreadable, damaged, not a data set, or larger than the memory that is free.
            The message names it.
    """
    try:
        if not path.is_file():
            raise DatasetError(f"{path} is missing: run the preprocess stage first")
        arrays = read_arrays(path, available_bytes())
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from None
    except MemoryError as error:
        raise DatasetError(f"{path} does not fit into memory: {error}") from None
    except ValueError as error:
        raise DatasetError(f"{path} is damaged ({error}): delete it and run preprocess again") from None
    foreign = "is not a data set of this pipeline"
    try:
        if str(arrays.pop("format")) != _FORMAT:
            raise ValueError("another format")
        dataset = Dataset(
            name=str(arrays["name"]),
            label=str(arrays["label"]),
            images=arrays["images"],
            labels=arrays["labels"],
            factors=_under("factors/", arrays),
            split=_under("split/", arrays),
            classes=tuple(arrays["classes"].tolist()),
        )
        _check(dataset)
    except KeyError as error:
        raise DatasetError(f"{path} {foreign} (it lacks {error}): delete it and run preprocess again") from None
    except ValueError as error:
        raise DatasetError(f"{path} {foreign} ({error}): delete it and run preprocess again") from None
    return dataset


def pixel_bytes(path: Path) -> int:
    """The size of a data set's images in memory, from the header of its file; 0 if it is missing or damaged."""
    try:
        if not path.is_file():  # reading a pipe would wait for ever
            return 0
        with zipfile.ZipFile(path) as archive:
            return archive.getinfo("images.npy").file_size
    # All exceptions: zipfile raises many kinds on damaged files.
    except Exception:
        return 0  # `load_dataset` says what is wrong


def _under(folder: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(folder): array for name, array in arrays.items() if name.startswith(folder)}


def _check(dataset: Dataset) -> None:
    """Raise ValueError if the arrays of a data set do not match."""
    if dataset.labels.ndim != 1 or dataset.labels.dtype.kind not in "iu":
        raise ValueError(f"labels are {dataset.labels.dtype} {dataset.labels.shape}")
    count = len(dataset.labels)
    if dataset.images.dtype != np.uint8 or dataset.images.ndim != 4 or len(dataset.images) != count:
        raise ValueError(f"images are {dataset.images.dtype} {dataset.images.shape} for {count} labels")
    if set(dataset.split) != set(PARTS):
        raise ValueError(f"its split has the parts {', '.join(sorted(dataset.split)) or 'none'}")
    for part, chosen in dataset.split.items():
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise ValueError(f"its part {part} is {chosen.dtype} {chosen.shape}, not a list of indices")
    for name, values in dataset.factors.items():
        if values.shape[:1] != (count,):
            raise ValueError(f"its factor {name} is {values.dtype} {values.shape} for {count} labels")
    indices = np.concatenate([dataset.split[part] for part in PARTS])
    if len(np.unique(indices)) != len(indices) or (len(indices) and not 0 <= indices.min() <= indices.max() < count):
        raise ValueError("its split repeats images or has indices out of range")
