"""CIFAR-10 (Krizhevsky 2009): 60,000 colour images of 32x32 pixels, read without running code from its files.

The files are pickles, and unpickling can call any function that a pickle names. Here only the three names that numpy
arrays need are allowed, and even these are replaced by classes that just store their arguments. The result consists of
plain numbers, strings, lists and bytes, from which the images are taken.
"""

from __future__ import annotations

import io
import lzma
import pickle
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.data.formats import FormatError, check_there

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIZE = 32
"""Height and width in pixels."""
TEST = 10_000
"""Images of the test part, which come last."""

_FOLDER = "cifar-10-batches-py"
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_PIXELS = 3 * SIZE * SIZE
_LARGEST = 64 * 1024 * 1024
"""Maximum size of a batch in bytes; the real ones have 31 million."""


class _Array:
    """Stands in for a numpy array: keeps the state that the pickle gives it."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Type:
    """Stands in for a numpy dtype: keeps its name."""

    def __init__(self, name: Any = None, *_: Any) -> None:
        self.name = name

    def __setstate__(self, _: Any) -> None:
        pass


def _reconstruct(*_: Any) -> _Array:
    return _Array()


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Raise UnpicklingError for any name that arrays do not need."""
        stand_ins = {"_reconstruct": _reconstruct, "ndarray": _Array, "dtype": _Type}
        if module in ("numpy", "numpy.core.multiarray", "numpy._core.multiarray") and name in stand_ins:
            return stand_ins[name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_cifar10(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images `[60000, 3, 32, 32]` (red, green, blue) and labels `[60000]`; the last 10,000 are the test part.

    Args:
        path: `cifar-10-python.tar.gz`.

    Raises:
        FormatError: the file is missing, damaged, or has other content, such as a pickle that calls other functions.
    """
    check_there(path)
    images, labels = [], []
    try:
        with tarfile.open(path, "r:gz") as archive:
            for name in _BATCHES:
                where = f"{path}: {_FOLDER}/{name}"
                pixels, numbers = _batch(where, _member(archive, where, f"{_FOLDER}/{name}"))
                images.append(pixels)
                labels.append(numbers)
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    return np.concatenate(images).reshape(-1, 3, SIZE, SIZE), np.concatenate(labels)


def _member(archive: tarfile.TarFile, where: str, name: str) -> bytes:
    try:
        member = archive.getmember(name)
    except KeyError:
        raise FormatError(f"{where} is missing: this is not the Python archive of CIFAR-10") from None
    file = archive.extractfile(member) if member.isfile() and member.size <= _LARGEST else None
    if file is None:
        raise FormatError(f"{where} is not a file of {_LARGEST} bytes at most")
    return file.read()


def _batch(where: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images `[n, 3072]` and labels `[n]` of one file. Python 2 wrote it: its strings come as bytes."""
    try:
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    # All exceptions: pickle raises many kinds on damaged data.
    except Exception as error:
        raise FormatError(f"{where} is not a batch of CIFAR-10: {error or type(error).__name__}") from None
    data, labels = (batch.get(key) if isinstance(batch, dict) else None for key in (b"data", b"labels"))
    pixels = _bytes_of(data)
    if pixels is None or pixels.shape[1] != _PIXELS:
        raise FormatError(f"{where} holds no images of {_PIXELS} bytes each")
    if (
        not isinstance(labels, list)
        or len(labels) != len(pixels)
        or not all(type(label) is int and 0 <= label < len(CLASSES) for label in labels)
    ):
        raise FormatError(f"{where} does not hold a label from 0 to {len(CLASSES) - 1} for each of its images")
    return pixels, np.array(labels, np.int64)


def _bytes_of(array: Any) -> NDArray[np.uint8] | None:
    """The uint8 array `[n, m]` from a stand-in's state (version, shape, type, order, content), or None."""
    match getattr(array, "state", None):
        case (_, (int(rows), int(columns)), _Type(name=b"u1" | "u1"), False | 0, bytes(content)) if min(
            rows, columns
        ) > 0 and rows * columns == len(content):
            return np.frombuffer(content, np.uint8).reshape(rows, columns)
    return None
