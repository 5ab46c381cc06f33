"""smallNORB: stereo pairs of fifty toys from many viewpoints, as published and as a smaller copy.

There are five categories of ten instances each, five instances for training and five for the test, at 18 azimuths, 9
elevations and 6 lightings: 24,300 pairs of 96x96 pixels in either part (LeCun, Huang & Bottou 2004).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.data.formats import DIMENSIONS, LARGEST, FormatError, check_there, read_elements, unpacked
from pipeline.files import read_arrays

CATEGORIES = ("animal", "human", "airplane", "truck", "car")
"""What the labels 0 to 4 stand for."""

TRAIN_INSTANCES = (4, 6, 7, 8, 9)
TEST_INSTANCES = (0, 1, 2, 3, 5)
"""The published split."""

SIZE = 48
"""Pixels a side once halved."""

UNKNOWN = -1
"""A factor that is not known of an image."""

_ELEMENTS: dict[int, np.dtype[Any]] = {0x1E3D4C55: np.dtype("u1"), 0x1E3D4C54: np.dtype("<i4")}
_OTHERS = {
    0x1E3D4C51: "single precision numbers",
    0x1E3D4C52: "a packed matrix",
    0x1E3D4C53: "double precision numbers",
    0x1E3D4C56: "16-bit integers",
}
_STORED_DIMENSIONS = 3
"""At least as many are written down, whatever their number."""

_BLOCK = 1000
_LARGEST = {"category": 4, "instance": 9, "elevation": 8, "azimuth": 34, "lighting": 5}


@dataclass(frozen=True)
class NorbPart:
    """The training or the test part.

    Attributes:
        images: `[N, 2, 48, 48]`, left before right.
        category: `[N]`, an index into `CATEGORIES`.
        factors: instance (0 to 9), azimuth and elevation (degrees), lighting (0 to 5), `[N]` each; `UNKNOWN` where so.
    """

    images: NDArray[np.uint8]
    category: NDArray[np.int64]
    factors: dict[str, NDArray[np.int64]]


def read_matrix(path: Path) -> NDArray[Any]:
    """The array in a gzip'd file of NORB's binary matrix format: bytes or 32-bit integers, in the shape it states.

    A magic number for the kind of elements, the number of dimensions, these (three at least, of which any in excess
    mean nothing), then the elements; all little endian.

    Raises:
        FormatError: the file is missing, not gzip'd, cut short, too long, or of another kind.
    """
    with unpacked(path) as file:
        begin = file.read(8)
        magic, dimensions = (int.from_bytes(begin[start : start + 4], "little") for start in (0, 4))
        if magic not in _ELEMENTS:
            other = _OTHERS.get(magic)
            what = f"holds {other}, expected bytes or 32-bit integers" if other else "is not a matrix file of NORB"
            raise FormatError(f"{path} {what} (it starts with {begin[:4].hex(' ') or 'nothing'})")
        stored = max(dimensions, _STORED_DIMENSIONS)
        header = file.read(4 * stored) if 1 <= dimensions <= DIMENSIONS else b""
        if not 1 <= dimensions <= DIMENSIONS or len(header) < 4 * stored:
            raise FormatError(
                f"{path} ends in its header, or claims {dimensions} dimensions, expected 1 to {DIMENSIONS}"
            )
        shape = tuple(np.frombuffer(header, "<u4", dimensions).tolist())
        return read_elements(path, file, 8 + len(header), shape, _ELEMENTS[magic], "a matrix")


def halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images `[..., 2 H, 2 W]` at half their size `[..., H, W]`: means of 2x2 pixels, halves rounded up."""
    *rest, height, width = images.shape
    small = np.empty((*rest, height // 2, width // 2), np.uint8)
    for start in range(0, len(images), _BLOCK):  # a sum takes twice the memory
        block = images[start : start + _BLOCK].astype(np.uint16)
        total = block[..., ::2, ::2] + block[..., 1::2, ::2] + block[..., ::2, 1::2] + block[..., 1::2, 1::2]
        small[start : start + _BLOCK] = (total + 2) // 4
    return small


def read_smallnorb(raw: Path, prefix: str) -> NorbPart:
    """One part from its three official files, halved to 48x48 pixels as in document 004, section 5.

    Args:
        raw: folder of the files.
        prefix: what their names begin with, before `-dat.mat.gz` and the like.

    Raises:
        FormatError: a file is missing, damaged, or does not belong to the others.
    """
    paths = {kind: raw / f"{prefix}-{kind}.mat.gz" for kind in ("dat", "cat", "info")}
    category, info = _integers(paths["cat"]), _integers(paths["info"])
    images = read_matrix(paths["dat"])
    count = len(images)
    wanted = {"dat": (count, 2, 2 * SIZE, 2 * SIZE), "cat": (count,), "info": (count, 4)}
    for kind, array in (("dat", images), ("cat", category), ("info", info)):
        if array.shape != wanted[kind]:
            raise FormatError(f"{paths[kind]} has the shape {array.shape}, expected {wanted[kind]}")
    if images.dtype != np.uint8:
        raise FormatError(f"{paths['dat']} holds {images.dtype} numbers, expected bytes")
    instance, elevation, azimuth, lighting = info.T
    numbers = {"instance": instance, "azimuth": azimuth, "elevation": elevation, "lighting": lighting}
    return NorbPart(halved(images), category, _factors(paths["info"], {"category": category, **numbers}))


def read_smallnorb48(path: Path, posed: bool) -> NorbPart:
    """One part of the smaller copy: decoded from JPEG copies of the official images in their order, and halved.

    Args:
        path: its npz file.
        posed: whether it must tell the viewpoint and the lighting; otherwise these are `UNKNOWN`.

    Raises:
        FormatError: the file is missing, damaged, or holds anything else.
    """
    check_there(path)
    names = ("category", "instance", *(("elevation", "azimuth", "lighting") if posed else ()))
    try:
        arrays = read_arrays(path, LARGEST)
        images, numbers = arrays["images"], {name: arrays[name] for name in names}
    except KeyError as error:
        raise FormatError(f"{path} is not smallNORB at 48x48 pixels: it lacks {error}") from None
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, MemoryError) as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    count = len(images) if images.ndim else 0
    if images.dtype != np.uint8 or images.shape != (count, 2, SIZE, SIZE):
        raise FormatError(f"{path} holds images {images.dtype} {images.shape}, expected bytes [N, 2, {SIZE}, {SIZE}]")
    for name, values in numbers.items():
        if values.shape != (count,) or values.dtype.kind not in "iu":
            raise FormatError(f"{path}: {name} is {values.dtype} {values.shape}, expected {count} whole numbers")
    whole = {name: values.astype(np.int64) for name, values in numbers.items()}
    return NorbPart(images, whole["category"], _factors(path, whole))


def _integers(path: Path) -> NDArray[np.int64]:
    return read_matrix(path).astype(np.int64)


def _factors(path: Path, numbers: dict[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
    """What smallNORB's numbers mean: elevation 0 to 8 is 30 to 70 degrees, azimuth 0 to 34 is 0 to 340 degrees."""
    for name, values in numbers.items():
        if len(values) and not 0 <= values.min() <= values.max() <= _LARGEST[name]:
            raise FormatError(f"{path}: {name} goes from {values.min()} to {values.max()}, not 0 to {_LARGEST[name]}")
    unknown = np.full(len(numbers["category"]), UNKNOWN)
    return {
        "instance": numbers["instance"],
        "azimuth": 10 * numbers["azimuth"] if "azimuth" in numbers else unknown,
        "elevation": 30 + 5 * numbers["elevation"] if "elevation" in numbers else unknown,
        "lighting": numbers.get("lighting", unknown),
    }
