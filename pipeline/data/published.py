"""What the files of each source hold, read by the library made for their format.

The hash of each file was checked when it was downloaded (`data.sources`), so its content is taken as it is.
"""

from __future__ import annotations

import gzip
import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from pipeline.data import norb, toys
from pipeline.data.datasets import OWN_IMAGES, load_dataset
from pipeline.data.sources import NORB_TESTING, NORB_TRAINING

POSED_TEST_INSTANCES = (3, 5)
"""Test instances when smallNORB's test part is the whole data set; its instances 0, 1 and 2 are for training."""
_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


@dataclass(frozen=True)
class Content:
    """A data set as published.

    Attributes:
        images: `[N, C, side, side]` uint8, or a function that returns the images of given indices `[n]`.
        labels: `[N]`.
        test: size of the official test part, which comes last; 0 if there is none.
        factors: other properties of each image, by name, `[N]` each.
    """

    label: str
    images: NDArray[np.uint8] | Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    labels: NDArray[np.int64]
    test: int
    classes: tuple[str, ...] = _DIGITS
    factors: dict[str, NDArray[np.int64]] = field(default_factory=dict)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of unsigned bytes in a gzip'd idx file (the format of MNIST), with the shape it states.

    Two zero bytes, the kind of elements, the number of dimensions, these as big-endian integers, then the elements.
    """
    with gzip.open(path) as file:
        content = file.read()
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _mnist(raw: Path, label: str = "MNIST", classes: tuple[str, ...] = _DIGITS) -> Content:
    """The four files of MNIST and of data sets in the same format."""
    images = [read_idx(raw / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k")]
    labels = [read_idx(raw / f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")]
    return Content(
        label, np.concatenate(images)[:, None], np.concatenate(labels).astype(np.int64), len(labels[1]), classes
    )


def _digits(raw: Path) -> Content:
    """scikit-learn's handwritten digits: a table whose lines have 64 pixels (0 to 16) and a label."""
    with gzip.open(raw / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",")
    images = _enlarge(table[:, :-1].reshape(-1, 8, 8))
    return Content("digits (scikit-learn)", images[:, None], table[:, -1].astype(np.int64), test=0)


def _enlarge(images: NDArray[np.float64]) -> NDArray[np.uint8]:
    """scikit-learn's digits `[N, 8, 8]` (0 to 16) in MNIST's layout: `[N, 28, 28]`, the digit in the middle 20x20.

    Cubic interpolation keeps strokes sharp. It overshoots, so pixels that are black by linear interpolation stay black.
    """
    # Two black pixels on each side let strokes fade out at the edge: 12 pixels become 30, and the middle 28 are kept.
    padded = functional.pad(torch.from_numpy(images), (2, 2, 2, 2))[:, None]
    cubic, linear = (
        functional.interpolate(padded, scale_factor=2.5, mode=mode, align_corners=False)
        for mode in ("bicubic", "bilinear")
    )
    enlarged = (cubic * (linear > 0) * (255 / 16)).round().clamp(0, 255)
    return enlarged[:, 0, 1:-1, 1:-1].to(torch.uint8).numpy()


class _Arrays(pickle.Unpickler):
    """Makes arrays and nothing else: what comes through a DVC remote may be another file than the one downloaded."""

    def find_class(self, module: str, name: str) -> Any:
        """Raise UnpicklingError for any name that arrays do not need."""
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _cifar10(raw: Path) -> Content:
    """CIFAR-10 (Krizhevsky 2009): 60,000 colour images of 32x32 pixels. Python 2 pickled them: strings are bytes."""
    batches = {}
    with tarfile.open(raw / "cifar-10-python.tar.gz", "r:gz") as archive:
        for member in archive:
            name = Path(member.name).name
            file = archive.extractfile(member) if name in _CIFAR10_BATCHES else None
            if file is not None:
                batches[name] = _Arrays(file, encoding="bytes").load()
    images = np.concatenate([batches[name][b"data"] for name in _CIFAR10_BATCHES]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([batches[name][b"labels"] for name in _CIFAR10_BATCHES])
    return Content("CIFAR-10", images, labels, len(batches["test_batch"][b"labels"]), _CIFAR10)


def _norb(label: str, train: norb.Part, test: norb.Part) -> Content:
    images, labels = (np.concatenate([train[place], test[place]]) for place in (0, 1))
    factors = {name: np.concatenate([train[2][name], test[2][name]]) for name in train[2]}
    return Content(label, images, labels, len(test[1]), norb.CATEGORIES, factors)


def _smallnorb(raw: Path) -> Content:
    return _norb("smallNORB", *(norb.read_smallnorb(raw, prefix) for prefix in (NORB_TRAINING, NORB_TESTING)))


def _smallnorb48(raw: Path) -> Content:
    train, test = (norb.read_smallnorb48(raw / f"{part}.npz") for part in ("train", "test"))
    return _norb("smallNORB (JPEG-derived)", train, test)


def _smallnorb48_posed(raw: Path) -> Content:
    """The official test part alone, for studies of viewpoints: the training part's viewpoints are unknown."""
    images, labels, factors = norb.read_smallnorb48(raw / "test.npz")
    is_test = np.isin(factors["instance"], POSED_TEST_INSTANCES)
    train, test = (
        (images[mask], labels[mask], {name: values[mask] for name, values in factors.items()})
        for mask in (~is_test, is_test)
    )
    return _norb("smallNORB test part by instance (JPEG-derived)", train, test)


def _toys(_: Path) -> Content:
    """All combinations of instance, category, elevation, azimuth and lighting, smallNORB's training instances first."""
    instances = norb.TRAIN_INSTANCES + norb.TEST_INSTANCES
    counts = (len(norb.CATEGORIES), len(toys.ELEVATIONS), len(toys.AZIMUTHS), toys.LIGHTINGS)
    grid = np.indices((len(instances), *counts)).reshape(1 + len(counts), -1)
    instance = np.array(instances)[grid[0]]
    category, elevation, azimuth, lighting = grid[1:]

    def images(chosen: NDArray[np.int64]) -> NDArray[np.uint8]:
        return toys.render(category[chosen], instance[chosen], azimuth[chosen], elevation[chosen], lighting[chosen])

    factors = {
        "instance": instance,
        "azimuth": np.array(toys.AZIMUTHS)[azimuth],
        "elevation": np.array(toys.ELEVATIONS)[elevation],
        "lighting": lighting,
    }
    test = int(np.isin(instance, norb.TEST_INSTANCES).sum())
    return Content("toys (stand-in)", images, category, test, norb.CATEGORIES, factors)


def own_images(raw: Path) -> Content:
    """What the stage `own_images` wrote."""
    own = load_dataset(raw / OWN_IMAGES, stage="own_images")
    return Content(own.label, own.images, own.labels, len(own.split["test"]), own.classes)


READERS: dict[str, Callable[[Path], Content]] = {
    "digits": _digits,
    "mnist": _mnist,
    "fashion-mnist": lambda raw: _mnist(raw, "Fashion-MNIST", _CLOTHES),
    "cifar10": _cifar10,
    "smallnorb": _smallnorb,
    "smallnorb48": _smallnorb48,
    "smallnorb48-posed": _smallnorb48_posed,
    "toys": _toys,
}
"""The function that reads the folder of each published source."""
