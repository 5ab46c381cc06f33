"""CIFAR-10 (Krizhevsky 2009): 60,000 colour images of 32x32 pixels, read without running code from its files.

The files are pickles, and unpickling can call any function that a pickle names. Here only the three names that numpy
arrays need are allowed, and even these are replaced by classes that just store their arguments. The result consists of
plain numbers, strings, lists and bytes, from which the images are taken. Neither the pickles nor the archive can ask
for more memory than the limits below.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.data.formats import FormatError, gunzip

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
_UNPACKED = 256 * 1024 * 1024
"""Maximum size of the archive unpacked; the real one has 186 million."""
_MEMORISED, _TUPLES = 1_000_000, 1000
"""Most objects that a pickle may remember, and most tuples; the real ones have some 10,000 and ten."""
_TAR_BLOCK = 512


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
    members = _members(path, gunzip(path, _UNPACKED))
    images, labels = [], []
    for name in _BATCHES:
        where = f"{path}: {_FOLDER}/{name}"
        if f"{_FOLDER}/{name}" not in members:
            raise FormatError(f"{where} is missing: this is not the Python archive of CIFAR-10")
        content = members[f"{_FOLDER}/{name}"]
        if content is None or len(content) > _LARGEST:
            raise FormatError(f"{where} is not a file of {_LARGEST} bytes at most")
        pixels, numbers = _batch(where, bytes(content))
        images.append(pixels)
        labels.append(numbers)
    return np.concatenate(images).reshape(-1, 3, SIZE, SIZE), np.concatenate(labels)


def _members(path: Path, archive: bytes) -> dict[str, memoryview | None]:
    """The content of each file in a tar archive by name; None for what is not a file.

    Python's `tarfile` reads many extensions of the format. Some of its versions never end with a damaged one of these.

    Raises:
        FormatError: it is cut short, or a header is damaged.
    """
    found: dict[str, memoryview | None] = {}
    start = 0
    while start < len(archive):
        header = archive[start : start + _TAR_BLOCK]
        if not any(header):
            return found
        blank = header[:148] + b" " * 8 + header[156:]  # its checksum is that of itself with spaces in its place
        checksum, size = (_octal(header[place:end]) for place, end in ((148, 156), (124, 136)))
        start += _TAR_BLOCK
        if checksum != sum(blank) or size is None or start + size > len(archive):
            raise FormatError(f"{path} is damaged: a header of the archive is wrong, or the archive is cut short")
        name = header[:100].partition(b"\0")[0].decode("ascii", "replace")
        found[name] = memoryview(archive)[start : start + size] if header[156:157] in b"0\0" else None
        start += -(-size // _TAR_BLOCK) * _TAR_BLOCK
    raise FormatError(f"{path} is damaged: the archive has no end")


def _octal(digits: bytes) -> int | None:
    digits = digits.strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else None


def _batch(where: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images `[n, 3072]` and labels `[n]` of one file. Python 2 wrote it: its strings come as bytes."""
    try:
        _check_operations(content)
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


def _check_operations(pickled: bytes) -> None:
    """Raise UnpicklingError for what is dangerous even if it calls nothing: Python would allocate what an operation of
    some bytes asks for, and crash on the hash of a million nested tuples.
    """
    tuples = 0
    for operation, argument, _ in pickletools.genops(pickled):
        tuples += "TUPLE" in operation.name
        remembers = operation.name in ("PUT", "BINPUT", "LONG_BINPUT")
        if tuples > _TUPLES or operation.name == "BYTEARRAY8" or (remembers and int(argument or 0) > _MEMORISED):
            raise pickle.UnpicklingError(f"it uses {operation.name} in an unusual way")


def _bytes_of(array: Any) -> NDArray[np.uint8] | None:
    """The uint8 array `[n, m]` from a stand-in's state (version, shape, type, order, content), or None."""
    match getattr(array, "state", None):
        case (_, (int(rows), int(columns)), _Type(name=b"u1" | "u1"), False | 0, bytes(content)) if min(
            rows, columns
        ) > 0 and rows * columns == len(content):
            return np.frombuffer(content, np.uint8).reshape(rows, columns)
    return None
