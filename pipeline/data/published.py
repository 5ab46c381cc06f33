"""Builds data sets from raw data: reads the images, centres them on a canvas and splits them.

The functions that read downloaded files do not check their content, because `data.sources` checks the hash of each file
when it is downloaded.

smallNORB (LeCun, Huang & Bottou 2004) has stereo pairs of fifty toys: ten instances of each of five categories. Of each
category, five instances are for training and five for the test. Each toy is shown at 18 azimuths, 9 elevations and 6
lightings. So each part has 24,300 pairs of 96x96 pixels. `smallnorb48` is a copy with 48x48 pixels.
"""

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

from pipeline.data import toys
from pipeline.data.datasets import OWN_IMAGES, PARTS, Dataset, load_dataset, reading
from pipeline.data.settings import DatasetParams
from pipeline.data.sources import NORB_TESTING, NORB_TRAINING
from pipeline.errors import UserError

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
"""Names of the labels 0 to 4."""

TRAIN_INSTANCES = (4, 6, 7, 8, 9)
TEST_INSTANCES = (0, 1, 2, 3, 5)
"""Instances of the published training and test parts."""

Arrays = dict[str, NDArray[Any]]
"""One part of smallNORB: `images` `[N, 2, 48, 48]` (N pairs, left before right), `category` `[N]` (an index into
`CATEGORIES`) and, if known, `instance`, `elevation`, `azimuth` and `lighting` `[N]`, as coded in the published files.
"""

_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


@dataclass(frozen=True)
class Content:
    """A data set as published.

    Attributes:
        images: N images of C channels, `[N, C, side, side]` uint8, or a function that maps n indices to these n images.
        labels: `[N]`.
        test: number of images in the official test part, 0 if there is none. The test images are the last of `images`.
        factors: arrays `[N]` of other properties of the images, by name.
    """

    label: str
    images: NDArray[np.uint8] | Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    labels: NDArray[np.int64]
    test: int
    classes: tuple[str, ...] = _DIGITS
    factors: dict[str, NDArray[np.int64]] = field(default_factory=dict)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of unsigned bytes in a gzip'd idx file (the format of MNIST), in the shape that the file states.

    Format: 2 zero bytes, element type and number of dimensions (a byte each), dimensions (big-endian uint32), elements.
    """
    with gzip.open(path) as file:
        content = file.read()
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _mnist(raw: Path, label: str = "MNIST", classes: tuple[str, ...] = _DIGITS) -> Content:
    """The four files of MNIST, or of another data set in the same format."""
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

    Cubic interpolation keeps strokes sharp, but overshoots. So pixels are set to 0 where linear interpolation gives 0.
    """
    # Two black pixels on each side let strokes fade out at the edge. 12 pixels become 30. The middle 28 are kept.
    padded = functional.pad(torch.from_numpy(images), (2, 2, 2, 2))[:, None]
    cubic, linear = (
        functional.interpolate(padded, scale_factor=2.5, mode=mode, align_corners=False)
        for mode in ("bicubic", "bilinear")
    )
    enlarged = (cubic * (linear > 0) * (255 / 16)).round().clamp(0, 255)
    return enlarged[:, 0, 1:-1, 1:-1].to(torch.uint8).numpy()


class _Arrays(pickle.Unpickler):
    """Unpickles only arrays, because a file from a DVC remote may not be the downloaded file whose hash was checked."""

    def find_class(self, module: str, name: str) -> Any:
        """Raise UnpicklingError for any name that arrays do not need."""
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _cifar10(raw: Path) -> Content:
    """CIFAR-10 (Krizhevsky 2009): 60,000 colour images of 32x32 pixels, pickled by Python 2, so keys are bytes."""
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


def read_matrix(path: Path) -> NDArray[Any]:
    """The array of bytes or int32 in a gzip'd file of NORB's binary matrix format, in the shape that the file states.

    Format, all little-endian: a magic number for the element type, the number of dimensions, the size of each
    (never fewer than three numbers), the elements. All but the elements are uint32.
    """
    with gzip.open(path) as file:
        content = file.read()
    magic, dimensions = np.frombuffer(content, "<u4", 2).tolist()
    element = {0x1E3D4C55: "u1", 0x1E3D4C54: "<i4"}[magic]
    shape = np.frombuffer(content, "<u4", dimensions, offset=8)
    return np.frombuffer(content, element, offset=8 + 4 * max(dimensions, 3)).reshape(shape)


def halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images `[..., 2 H, 2 W]` at half their size, `[..., H, W]`: means of 2x2 pixels, rounded (0.5 upwards)."""
    *rest, height, width = images.shape
    total = images.reshape(*rest, height // 2, 2, width // 2, 2).sum(axis=(-3, -1), dtype=np.uint16)
    return ((total + 2) // 4).astype(np.uint8)


def _norb(label: str, train: Arrays, test: Arrays) -> Content:
    """Join both parts. Codes become degrees: elevations 0 to 8 become 30 to 70, azimuths 0 to 34 become 0 to 340."""
    factors = {}
    for name, first, step in (("instance", 0, 1), ("azimuth", 0, 10), ("elevation", 30, 5), ("lighting", 0, 1)):
        unknown = np.full(len(train["category"]), -1)  # the training part of smallnorb48 lacks some factors
        of_train = first + step * train[name].astype(np.int64) if name in train else unknown
        factors[name] = np.concatenate([of_train, first + step * test[name].astype(np.int64)])
    images, labels = (np.concatenate([train[name], test[name]]) for name in ("images", "category"))
    return Content(label, images, labels.astype(np.int64), len(test["category"]), CATEGORIES, factors)


def _smallnorb(raw: Path) -> Content:
    """Read the official files, three per part. Images are halved to 48x48 pixels as in document 004, section 5."""

    def part(prefix: str) -> Arrays:
        images, category, info = (read_matrix(raw / f"{prefix}-{kind}.mat.gz") for kind in ("dat", "cat", "info"))
        numbers = dict(zip(("instance", "elevation", "azimuth", "lighting"), info.T, strict=True))
        return {"images": halved(images), "category": category, **numbers}

    return _norb("smallNORB", part(NORB_TRAINING), part(NORB_TESTING))


def _smallnorb48(raw: Path) -> Content:
    """Read the smaller copy: JPEG images in official order. Viewpoint and lighting of training images are unknown."""
    train, test = (dict(np.load(raw / f"{part}.npz")) for part in ("train", "test"))
    return _norb("smallNORB (JPEG-derived)", train, test)


def _smallnorb48_posed(raw: Path) -> Content:
    """Split the smaller copy's test part (all factors known): instances 0, 1, 2 for training, 3 and 5 for the test."""
    arrays = dict(np.load(raw / "test.npz"))
    is_test = np.isin(arrays["instance"], (3, 5))
    train, test = ({name: values[mask] for name, values in arrays.items()} for mask in (~is_test, is_test))
    return _norb("smallNORB test part by instance (JPEG-derived)", train, test)


def _toys(_: Path) -> Content:
    """All combinations of instance, category, elevation, azimuth and lighting. The training instances come first."""
    instances = TRAIN_INSTANCES + TEST_INSTANCES
    counts = (len(CATEGORIES), len(toys.ELEVATIONS), len(toys.AZIMUTHS), len(toys.LIGHTINGS))
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
    test = int(np.isin(instance, TEST_INSTANCES).sum())
    return Content("toys (stand-in)", images, category, test, CATEGORIES, factors)


def _own_images(raw: Path) -> Content:
    """The images that the stage `own_images` wrote."""
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
"""Functions that read a folder of raw data, by the name of the source."""


def build_dataset(name: str, params: DatasetParams, raw: Path) -> Dataset:
    """Read the data set `datasets.<name>` of params.yaml from the folder `raw`, centre its images, and split it.

    Test images come from the official test part. If there is none, as for digits, they come from the whole set. With a
    `split_seed`, each part is a random sample. Validation and test images do not depend on `params.train`.

    smallNORB and toys have the factors `instance` (0 to 9), `azimuth` and `elevation` (degrees) and `lighting` (0 to
    5). An unknown value is -1. The label is the category.

    Raises:
        UserError: a file of the folder `raw` is missing or damaged, more images are requested than there are, or a
            class of own images has no training image left.
    """
    with reading(raw, stage="download"):
        content = READERS.get(params.source, _own_images)(raw)
    split = _split(name, params, content)
    missing = set(range(len(content.classes))) - set(content.labels[split["train"]].tolist())
    if missing and params.source not in READERS:  # all images of a small class may be in other parts
        names = ", ".join(repr(content.classes[label]) for label in sorted(missing)[:5])
        raise UserError(f"datasets.{name}: no training image is of the class {names}: change split_seed")
    images, labels, factors = content.images, content.labels, content.factors
    if callable(images):
        kept, places = np.unique(np.concatenate([split[part] for part in PARTS]), return_inverse=True)
        images, labels = images(kept), labels[kept]
        factors = {factor: values[kept] for factor, values in factors.items()}
        split = dict(zip(PARTS, np.split(places, np.cumsum([len(split[part]) for part in PARTS[:-1]])), strict=True))
    canvas = params.canvas
    free = canvas - images.shape[-1]
    margin = (free // 2, free - free // 2)  # if `free` is odd, the larger margins are at the bottom and right
    return Dataset(
        name=name,
        label=f"{content.label}, {canvas}x{canvas}" if free else content.label,
        images=np.pad(images, ((0, 0), (0, 0), margin, margin)) if free else images,
        labels=labels,
        factors=factors,
        split=split,
        classes=content.classes,
    )


def _split(name: str, params: DatasetParams, content: Content) -> dict[str, NDArray[np.int64]]:
    """The indices of each part. They are drawn at random if there is a seed. Without a seed, images are taken in order.
    Of the images outside the official test part, the first are for training and the last for validation. The test
    takes the first images of the official test part or, without such a part, the images just before validation.
    """
    pool_size, train, validation = len(content.labels) - content.test, params.train, params.validation
    try:
        params.check_counts(f"datasets.{name}", content.label, pool_size, content.test)
    except ValueError as error:
        raise UserError(str(error)) from None
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
