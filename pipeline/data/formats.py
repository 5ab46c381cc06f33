"""Readers of the formats that data sets are published in. Any deviation from the format is an error.

No size that a file states is trusted: it is compared with the file first, and no more than that is unpacked.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError

AFFNIST_SIZE = 40
"""Height and width of an affNIST image in pixels."""

LARGEST = 1 << 29
"""Most bytes of a file's content, unpacked; the largest published one, smallNORB's images, has 448 million."""
DIMENSIONS = 8
"""Most dimensions of an array in a file."""

_DEFLATED = 1032  # times as long as a compressed file can be what it unpacks to
_BLOCK = 1 << 20
_LARGEST_MAT = 1 << 26  # bytes; a batch of affNIST holds 16 million of pixels, and little else
_MAT_HEADER = 128
_MAT_COMPRESSED = 15
_MAT_CONTAINERS = (1, 2, 3)  # cells, structs, objects
_IDX_BYTES = 0x08  # the idx format's code for unsigned bytes
_DIGITS_SIZE = 8
_DIGITS_INK = 16
_DIGITS_LARGEST = 1_000_000  # bytes; the published table has 264,712


class FormatError(UserError):
    """A file is missing, damaged, or not in the expected format. The message names it."""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of unsigned bytes in a gzip'd idx file (the format of MNIST), with the shape it states.

    Raises:
        FormatError: the file is missing, not gzip'd, cut short, too long, or not idx of unsigned bytes.
    """
    with unpacked(path) as file:
        begin = file.read(4)
        if len(begin) < 4 or begin[:2] != b"\0\0":
            raise FormatError(f"{path} is not an idx file (it starts with {begin.hex(' ') or 'nothing'})")
        kind, dimensions = begin[2], begin[3]
        if kind != _IDX_BYTES or not 1 <= dimensions <= DIMENSIONS:
            raise FormatError(
                f"{path} holds idx data of type 0x{kind:02x} in {dimensions} dimensions, expected bytes (0x08) in 1 to "
                f"{DIMENSIONS}"
            )
        header = file.read(4 * dimensions)
        if len(header) < 4 * dimensions:
            raise FormatError(f"{path} ends in its header: it has {4 + len(header)} bytes unpacked")
        shape = tuple(np.frombuffer(header, ">u4").tolist())
        return read_elements(path, file, 4 + len(header), shape, np.dtype(np.uint8), "idx data")


def read_elements(
    path: Path, file: io.BufferedIOBase, start: int, shape: tuple[int, ...], element: np.dtype[Any], what: str
) -> NDArray[Any]:
    """The rest of an unpacked file: an array of a shape that its header states.

    Args:
        file: the open file, just after its header.
        start: bytes of the header.
        what: the kind of data, for messages.

    Raises:
        FormatError: it has another size than stated, or such a size is impossible; then nothing is read.
    """
    expected = start + math.prod(shape) * element.itemsize
    most = min(LARGEST, _DEFLATED * path.stat().st_size)
    # An empty array may still have dimensions that are beyond numpy.
    if max(expected - start, math.prod(max(each, 1) for each in shape) * element.itemsize) > most:
        raise FormatError(f"{path} claims {what} of shape {shape}, more than it can hold ({most} bytes)")
    array = np.empty(math.prod(shape), element)
    content = memoryview(array.view(np.uint8).data)
    found = 0
    while count := file.readinto(content[found : found + _BLOCK]):
        found += count
    beyond = len(file.read(1))
    if found < len(content) or beyond:
        size = f"{'at least ' if beyond else ''}{start + found + beyond} bytes unpacked"
        raise FormatError(f"{path} has {size}, expected {expected} for {what} of shape {shape}")
    return array.reshape(shape)


def read_digits(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """scikit-learn's handwritten digits: images `[N, 8, 8]` with values 0 to 16, and labels `[N]`.

    Args:
        path: scikit-learn's data file, a gzip'd table; each line has 64 pixels and a label.

    Raises:
        FormatError: the file is missing, damaged, or holds anything else.
    """
    try:
        text = gunzip(path, _DIGITS_LARGEST).decode("ascii")
        if not text.strip():
            raise ValueError("it is empty")
        table = np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2)
    except ValueError as error:
        raise FormatError(f"{path} is not a table of numbers: {error}") from None
    pixels, labels = table[:, :-1], table[:, -1]
    whole = np.array_equal(table, np.round(table))
    if pixels.shape[1] != _DIGITS_SIZE**2 or not whole or pixels.min() < 0 or pixels.max() > _DIGITS_INK:
        raise FormatError(f"{path} does not hold 8x8 images with values 0 to 16, each with a label")
    if labels.min() < 0 or labels.max() > 9:
        raise FormatError(f"{path} has labels from {labels.min():g} to {labels.max():g}, expected 0 to 9")
    return pixels.reshape(-1, _DIGITS_SIZE, _DIGITS_SIZE).astype(np.uint8), labels.astype(np.int64)


def read_affnist(
    path: Path, batches: int | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Images `[N, 40, 40]`, labels `[N]` and batch numbers `[N]` of affNIST's Matlab files.

    Args:
        path: a `.mat` file, or a zip archive of numbered `.mat` files.
        batches: how many of the archive's files to read, in numerical order; all by default.

    Raises:
        FormatError: the file is missing, damaged, or holds anything else.
    """
    parts = []
    for number, (where, content) in enumerate(_mat_files(path), start=1):
        if batches is not None and number > batches:
            break
        images, labels = _affnist_batch(where, content)
        parts.append((images, labels, np.full(len(labels), number, np.int64)))
    if not parts:
        raise FormatError(f"{path} holds no .mat file")
    images, labels, numbers = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return images, labels, numbers


def _affnist_batch(where: str, content: bytes) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    from scipy.io import loadmat

    try:
        record = loadmat(io.BytesIO(_without_compression(content)), variable_names=["affNISTdata"])["affNISTdata"][0, 0]
        pixels, labels = record["image"], record["label_int"].ravel()
    # All exceptions: scipy's parser raises many kinds on damaged files.
    except Exception as error:
        raise FormatError(f"{where} is not an affNIST file: {error or type(error).__name__}") from None
    if pixels.dtype != np.uint8 or pixels.shape != (AFFNIST_SIZE**2, len(labels)):
        raise FormatError(
            f"{where}: expected {len(labels)} images of 1600 bytes, one per column, found {pixels.dtype} {pixels.shape}"
        )
    # One image per column, its pixels row by row.
    return np.ascontiguousarray(pixels.T).reshape(-1, AFFNIST_SIZE, AFFNIST_SIZE), labels.astype(np.int64)


def _without_compression(content: bytes) -> bytes:
    """A Matlab file with its variables unpacked: scipy would unpack any amount. Raises ValueError, zlib.error."""
    order = "<" if content[_MAT_HEADER - 2 : _MAT_HEADER] == b"IM" else ">"
    parts, left, place = [content[:_MAT_HEADER]], _LARGEST_MAT, _MAT_HEADER
    while place + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, place)
        end = place + 8 + size
        if kind == _MAT_COMPRESSED:
            inflater = zlib.decompressobj()
            parts.append(inflater.decompress(content[place + 8 : end], max(left, 1)))
            if not inflater.eof:
                raise ValueError(f"a variable is cut short, or has more than {_LARGEST_MAT} bytes unpacked")
        else:
            parts.append(content[place:end])
        _check_count(parts[-1], order)
        left -= len(parts[-1])
        place = end
    return b"".join(parts)


def _check_count(variable: bytes, order: str) -> None:
    """Raise ValueError if a variable of structs or cells claims more than it can hold: scipy would go through them."""
    if len(variable) < 32 or variable[16 if order == "<" else 19] not in _MAT_CONTAINERS:
        return
    (size,) = struct.unpack_from(f"{order}I", variable, 28)
    shape = np.frombuffer(variable[32 : 32 + size // 4 * 4], f"{order}i4").tolist()
    if math.prod(shape) > len(variable) // 8 or min(shape, default=0) < 0:
        raise ValueError(f"it claims structs or cells of shape {tuple(shape)}")


def _mat_files(path: Path) -> Iterator[tuple[str, bytes]]:
    check_there(path)
    if path.suffix != ".zip":
        _check_mat(str(path), path.stat().st_size)
        yield str(path), path.read_bytes()
        return
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if info.filename.endswith(".mat")]
            for info in sorted(infos, key=lambda info: _number(info.filename)):
                if "__MACOSX" not in info.filename:
                    _check_mat(where := f"{path}: {info.filename}", info.file_size)
                    yield where, archive.read(info)
    except FormatError:
        raise
    # All exceptions: zipfile raises many kinds on damaged files.
    except Exception as error:
        raise FormatError(f"{path} is damaged: {error or type(error).__name__}") from None


def _check_mat(where: str, size: int) -> None:
    if size > _LARGEST_MAT:
        raise FormatError(f"{where} has {size} bytes, more than a file of affNIST ({_LARGEST_MAT})")


def _number(name: str) -> tuple[int, str]:
    """A sort key that puts 2.mat before 10.mat."""
    digits = re.findall(r"\d+", Path(name).name)
    return int(digits[-1]) if digits else 0, name


@contextmanager
def unpacked(path: Path) -> Iterator[gzip.GzipFile]:
    """A gzip'd file, opened to be read unpacked. Raises `FormatError` if it is missing, unreadable or damaged."""
    check_there(path)
    try:
        with gzip.open(path, "rb") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{path} is damaged: {error}") from None
    except OSError as error:
        raise FormatError(f"{path} cannot be read: {error.strerror or error}") from None


def gunzip(path: Path, most: int) -> bytes:
    """The content of a gzip'd file. Raises `FormatError` as `unpacked`, or if it has more than `most` bytes."""
    with unpacked(path) as file:
        content = file.read(min(most, _DEFLATED * path.stat().st_size) + 1)
    if len(content) > most:
        raise FormatError(f"{path} has more than {most} bytes unpacked")
    return content


def check_there(path: Path) -> None:
    """Raise `FormatError` if a downloaded file is missing."""
    if not path.is_file():
        raise FormatError(f"{path} is missing: run the download stage of its source first")
