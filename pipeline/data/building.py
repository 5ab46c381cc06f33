"""Builds data sets from downloaded files: reads and checks them, centres images on the canvas, and splits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from pipeline.data import cifar, norb, toys
from pipeline.data.datasets import OWN_IMAGES, PARTS, Dataset, DatasetError, load_dataset
from pipeline.data.formats import FormatError, read_digits, read_idx
from pipeline.data.settings import DatasetParams
from pipeline.data.sources import NORB_TESTING, NORB_TRAINING

POSED_TEST_INSTANCES = (3, 5)
"""Test instances when smallNORB's test part is the whole data set; its instances 0, 1 and 2 are for training."""
_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


@dataclass(frozen=True)
class _Published:
    """A data set as published.

    Attributes:
        images: `[N, C, side, side]` uint8, or a function that returns the images of given indices `[n]`.
        side: height and width in pixels.
        test: size of the official test part, which comes last; 0 if there is none.
        factors: other properties of each image, by name, `[N]` each.
    """

    label: str
    images: NDArray[np.uint8] | Callable[[NDArray[np.int64]], NDArray[np.uint8]]
    labels: NDArray[np.int64]
    side: int
    test: int
    classes: tuple[str, ...] = field(default=_DIGITS)
    factors: dict[str, NDArray[np.int64]] = field(default_factory=dict)


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
        DatasetError: more images are requested than there are, the canvas is smaller than the images, or no training
            image is left of a class of own images.
        FormatError: a file is missing, damaged or in another format.
    """
    published = _READERS.get(params.source, _own_images)(raw)
    side, label = published.side, published.label
    if params.canvas < side:
        raise DatasetError(
            f"datasets.{name}: canvas {params.canvas} is too small for the images of {label}, which have {side}x{side} "
            f"pixels: set {side} or more"
        )
    split = _split(name, params, published)
    if params.source not in _READERS:
        _check_classes(name, published, split["train"])
    if callable(published.images):
        kept, places = np.unique(np.concatenate([split[part] for part in PARTS]), return_inverse=True)
        images, labels = published.images(kept), published.labels[kept]
        factors = {factor: values[kept] for factor, values in published.factors.items()}
        split = dict(zip(PARTS, np.split(places, np.cumsum([len(split[part]) for part in PARTS[:-1]])), strict=True))
    else:
        images, labels, factors = published.images, published.labels, published.factors
    return Dataset(
        name=name,
        label=label if params.canvas == side else f"{label}, {params.canvas}x{params.canvas}",
        images=_centred(images, params.canvas),
        labels=labels,
        factors=dict(factors),
        split=split,
        classes=published.classes,
    )


def _centred(images: NDArray[np.uint8], canvas: int) -> NDArray[np.uint8]:
    """Images `[N, C, H, H]` centred on a black canvas; an odd pixel is added at the bottom and on the right."""
    free = canvas - images.shape[-1]
    before, after = free // 2, free - free // 2
    return np.pad(images, ((0, 0), (0, 0), (before, after), (before, after))) if free else images


def _split(name: str, params: DatasetParams, published: _Published) -> dict[str, NDArray[np.int64]]:
    count = len(published.labels)
    if params.split_seed is None:
        return _as_published(name, params, published)
    random = np.random.default_rng(params.split_seed)
    pool = random.permutation(count - published.test)
    if published.test:
        test = len(pool) + random.permutation(published.test)
        _check_enough(name, {"train": params.train, "validation": params.validation}, len(pool), "training", published)
        _check_enough(name, {"test": params.test}, len(test), "test", published)
    else:
        test = pool[::-1]
        wanted = {"train": params.train, "validation": params.validation, "test": params.test}
        _check_enough(name, wanted, count, "", published)
    return {
        "train": pool[params.validation : params.validation + params.train],
        "validation": pool[: params.validation],
        "test": test[: params.test],
    }


def _as_published(name: str, params: DatasetParams, published: _Published) -> dict[str, NDArray[np.int64]]:
    """The published order: the first training images, the last ones for validation, the first test images.

    Without an official test part, the images just before those for validation are for testing.
    """
    pool = len(published.labels) - published.test
    wanted = {"train": params.train, "validation": params.validation}
    if published.test:
        _check_enough(name, wanted, pool, "training", published)
        _check_enough(name, {"test": params.test}, published.test, "test", published)
        test = np.arange(pool, pool + params.test)
    else:
        _check_enough(name, {**wanted, "test": params.test}, pool, "", published)
        test = np.arange(pool - params.validation - params.test, pool - params.validation)
    return {"train": np.arange(params.train), "validation": np.arange(pool - params.validation, pool), "test": test}


def _check_enough(name: str, wanted: dict[str, int], available: int, kind: str, published: _Published) -> None:
    total = sum(wanted.values())
    if total > available:
        asked = " + ".join(f"{part} {count}" for part, count in wanted.items())
        total_shown = f" = {total}" if len(wanted) > 1 else ""
        images = f"{kind} images".strip()
        raise DatasetError(
            f"datasets.{name}: {asked}{total_shown} requested, but {published.label} has {available} {images}"
        )


def _check_classes(name: str, published: _Published, train: NDArray[np.int64]) -> None:
    """Check that every class has a training image; small sets can lose one to the other parts."""
    missing = sorted(set(range(len(published.classes))) - set(published.labels[train].tolist()))
    if missing:
        names = ", ".join(repr(published.classes[label]) for label in missing[:5])
        raise DatasetError(f"datasets.{name}: no training image is of the class {names}: set another split_seed")


def _enlarge(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """scikit-learn's digits `[N, 8, 8]` (0 to 16) in MNIST's layout: `[N, 28, 28]`, the digit in the middle 20x20.

    Cubic interpolation keeps strokes sharp. It overshoots, so pixels that are black by linear interpolation stay black.
    """
    # Two black pixels on each side let strokes fade out at the edge: 12 pixels become 30, and the middle 28 are kept.
    padded = functional.pad(torch.from_numpy(images).double(), (2, 2, 2, 2))[:, None]
    cubic, linear = (
        functional.interpolate(padded, scale_factor=2.5, mode=mode, align_corners=False)
        for mode in ("bicubic", "bilinear")
    )
    enlarged = (cubic * (linear > 0) * (255 / 16)).round().clamp(0, 255)
    return enlarged[:, 0, 1:-1, 1:-1].to(torch.uint8).numpy()


def _digits(raw: Path) -> _Published:
    images, labels = read_digits(raw / "digits.csv.gz")
    return _Published("digits (scikit-learn)", _enlarge(images)[:, None], labels, side=28, test=0)


def _idx_pairs(raw: Path, label: str, classes: tuple[str, ...]) -> _Published:
    """The four files of MNIST and of data sets in the same format."""
    images: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.uint8]] = []
    for part in ("train", "t10k"):
        pixels_path, labels_path = raw / f"{part}-images-idx3-ubyte.gz", raw / f"{part}-labels-idx1-ubyte.gz"
        pixels, numbers = read_idx(pixels_path), read_idx(labels_path)
        if pixels.ndim != 3 or numbers.shape != pixels.shape[:1]:
            raise DatasetError(
                f"{pixels_path} has the shape {pixels.shape} and {labels_path} the shape {numbers.shape}: "
                "they do not belong together"
            )
        height, width = pixels.shape[1:]
        if height != width or (images and pixels.shape[1:] != images[0].shape[1:]):
            raise DatasetError(f"{pixels_path} has images of {height}x{width} pixels: not one square size")
        if len(numbers) and numbers.max() >= len(classes):
            raise DatasetError(f"{labels_path} has the label {numbers.max()}, expected 0 to {len(classes) - 1}")
        images.append(pixels)
        labels.append(numbers)
    whole = np.concatenate(images)[:, None]
    return _Published(label, whole, np.concatenate(labels).astype(np.int64), whole.shape[-1], len(labels[1]), classes)


def _cifar10(raw: Path) -> _Published:
    path = raw / "cifar-10-python.tar.gz"
    images, labels = cifar.read_cifar10(path)
    if len(images) <= cifar.TEST:
        raise DatasetError(f"{path} has {len(images)} images; the last {cifar.TEST} should be for the test")
    return _Published("CIFAR-10", images, labels, cifar.SIZE, cifar.TEST, cifar.CLASSES)


def _norb(label: str, train: norb.NorbPart, test: norb.NorbPart) -> _Published:
    return _Published(
        label,
        np.concatenate([train.images, test.images]),
        np.concatenate([train.category, test.category]),
        norb.SIZE,
        len(test.images),
        norb.CATEGORIES,
        {name: np.concatenate([train.factors[name], test.factors[name]]) for name in train.factors},
    )


def _smallnorb(raw: Path) -> _Published:
    return _norb("smallNORB", *(norb.read_smallnorb(raw, prefix) for prefix in (NORB_TRAINING, NORB_TESTING)))


def _smallnorb48(raw: Path) -> _Published:
    train, test = (norb.read_smallnorb48(raw / f"{part}.npz", posed=part == "test") for part in ("train", "test"))
    return _norb("smallNORB (JPEG-derived)", train, test)


def _smallnorb48_posed(raw: Path) -> _Published:
    """The official test part alone, for studies of viewpoints: the training part's viewpoints are unknown."""
    whole = norb.read_smallnorb48(raw / "test.npz", posed=True)
    is_test = np.isin(whole.factors["instance"], POSED_TEST_INSTANCES)
    train, test = (_of_part(whole, chosen) for chosen in (~is_test, is_test))
    return _norb("smallNORB test part by instance (JPEG-derived)", train, test)


def _of_part(part: norb.NorbPart, chosen: NDArray[np.bool_]) -> norb.NorbPart:
    factors = {name: values[chosen] for name, values in part.factors.items()}
    return norb.NorbPart(part.images[chosen], part.category[chosen], factors)


def _toys(_: Path) -> _Published:
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
    return _Published("toys (stand-in)", images, category, toys.SIZE, test, norb.CATEGORIES, factors)


def _own_images(raw: Path) -> _Published:
    """What the stage `own_images` wrote."""
    path = raw / OWN_IMAGES
    if not path.is_file():
        raise FormatError(f"{path} is missing: run the own_images stage first")
    own = load_dataset(path)
    return _Published(own.label, own.images, own.labels, own.images.shape[-1], len(own.split["test"]), own.classes)


_READERS: dict[str, Callable[[Path], _Published]] = {
    "digits": _digits,
    "mnist": lambda raw: _idx_pairs(raw, "MNIST", _DIGITS),
    "fashion-mnist": lambda raw: _idx_pairs(raw, "Fashion-MNIST", _CLOTHES),
    "cifar10": _cifar10,
    "smallnorb": _smallnorb,
    "smallnorb48": _smallnorb48,
    "smallnorb48-posed": _smallnorb48_posed,
    "toys": _toys,
}
