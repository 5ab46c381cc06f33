"""smallNORB: stereo pairs of fifty toys from many viewpoints, as published and as a smaller copy.

There are five categories of ten instances each, five instances for training and five for the test, at 18 azimuths, 9
elevations and 6 lightings: 24,300 pairs of 96x96 pixels in either part (LeCun, Huang & Bottou 2004).
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
"""What the labels 0 to 4 stand for."""

TRAIN_INSTANCES = (4, 6, 7, 8, 9)
TEST_INSTANCES = (0, 1, 2, 3, 5)
"""The published split."""

UNKNOWN = -1
"""A factor that is not known of an image."""

_ELEMENTS = {0x1E3D4C55: "u1", 0x1E3D4C54: "<i4"}
"""Kinds of elements of the binary matrix format, by magic number."""
_BLOCK = 1000


Part = tuple[NDArray[np.uint8], NDArray[np.int64], dict[str, NDArray[np.int64]]]
"""The training or the test part: images `[N, 2, 48, 48]`, left before right; categories `[N]`, indices into
`CATEGORIES`; and factors `[N]` by name: instance (0 to 9), azimuth and elevation (degrees), lighting (0 to 5), each
`UNKNOWN` where it is not known.
"""


def read_matrix(path: Path) -> NDArray[Any]:
    """The array in a gzip'd file of NORB's binary matrix format: bytes or 32-bit integers, in the shape it states.

    A magic number for the kind of elements, the number of dimensions, these (three at least, of which any in excess
    mean nothing), then the elements; all little endian.
    """
    with gzip.open(path) as file:
        content = file.read()
    magic, dimensions = np.frombuffer(content, "<u4", 2).tolist()
    shape = np.frombuffer(content, "<u4", dimensions, offset=8)
    return np.frombuffer(content, _ELEMENTS[magic], offset=8 + 4 * max(dimensions, 3)).reshape(shape)


def halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images `[..., 2 H, 2 W]` at half their size `[..., H, W]`: means of 2x2 pixels, halves rounded up."""
    *rest, height, width = images.shape
    small = np.empty((*rest, height // 2, width // 2), np.uint8)
    for start in range(0, len(images), _BLOCK):  # a sum takes twice the memory
        block = images[start : start + _BLOCK].astype(np.uint16)
        total = block[..., ::2, ::2] + block[..., 1::2, ::2] + block[..., ::2, 1::2] + block[..., 1::2, 1::2]
        small[start : start + _BLOCK] = (total + 2) // 4
    return small


def read_smallnorb(raw: Path, prefix: str) -> Part:
    """One part from its three official files, halved to 48x48 pixels as in document 004, section 5.

    Args:
        raw: folder of the files.
        prefix: what their names begin with, before `-dat.mat.gz` and the like.
    """
    images, category, info = (read_matrix(raw / f"{prefix}-{kind}.mat.gz") for kind in ("dat", "cat", "info"))
    instance, elevation, azimuth, lighting = info.T
    numbers = {"instance": instance, "elevation": elevation, "azimuth": azimuth, "lighting": lighting}
    return _part(halved(images), category, numbers)


def read_smallnorb48(path: Path) -> Part:
    """One part of the smaller copy: decoded from JPEG copies of the official images in their order, and halved.

    Args:
        path: its npz file; that of the training part lacks the viewpoint and the lighting, which are thus `UNKNOWN`.
    """
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    return _part(arrays.pop("images"), arrays.pop("category"), arrays)


def _part(images: NDArray[np.uint8], category: NDArray[Any], numbers: dict[str, NDArray[Any]]) -> Part:
    """A part with its factors from smallNORB's numbers: elevation 0 to 8 is 30 to 70 degrees, azimuth 0 to 34 is 0 to
    340 degrees.
    """
    known = {name: values.astype(np.int64) for name, values in numbers.items()}
    unknown = np.full(len(category), UNKNOWN)
    factors = {
        "instance": known["instance"],
        "azimuth": 10 * known["azimuth"] if "azimuth" in known else unknown,
        "elevation": 30 + 5 * known["elevation"] if "elevation" in known else unknown,
        "lighting": known.get("lighting", unknown),
    }
    return images, category.astype(np.int64), factors
