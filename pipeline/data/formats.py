"""Readers of the formats that data sets are published in. Any deviation from the format is an error."""

from __future__ import annotations

import gzip
import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UserError

AFFNIST_SIZE = 40
"""Height and width of an affNIST image in pixels."""

_IDX_BYTES = 0x08  # the idx format's code for unsigned bytes
_DIGITS_SIZE = 8
_DIGITS_INK = 16


class FormatError(UserError):
    """A file is missing, damaged, or not in the expected format. The message names it."""


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array of unsigned bytes in a gzip'd idx file (the format of MNIST), with the shape it states.

    Raises:
        FormatError: the file is missing, not gzip'd, cut short, too long, or not idx of unsigned bytes.
    """
    content = gunzip(path)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise FormatError(f"{path} is not an idx file (it starts with {content[:4].hex(' ') or 'nothing'})")
    kind, dimensions = content[2], content[3]
    if kind != _IDX_BYTES or dimensions == 0:
        raise FormatError(
            f"{path} holds idx data of type 0x{kind:02x} in {dimensions} dimensions, expected bytes (0x08)"
        )
    start = 4 + 4 * dimensions
    shape = tuple(np.frombuffer(content[4:start], ">u4").tolist()) if len(content) >= start else ()
    expected = start + math.prod(shape)
    if len(shape) != dimensions or len(content) != expected:
        raise FormatError(
            f"{path} has {len(content)} bytes unpacked, expected {expected} for idx data of shape {shape}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_digits(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """scikit-learn's handwritten digits: images `[N, 8, 8]` with values 0 to 16, and labels `[N]`.

    Args:
        path: scikit-learn's data file, a gzip'd table; each line has 64 pixels and a label.

    Raises:
        FormatError: the file is missing, damaged, or holds anything else.
    """
    try:
        table = np.loadtxt(io.StringIO(gunzip(path).decode("ascii")), delimiter=",", ndmin=2)
    except ValueError as error:
        raise FormatError(f"{path} is not a table of numbers: {error}") from None
    pixels, labels = table[:, :-1], table[:, -1]
    whole = np.array_equal(table, np.round(table))
    if pixels.shape[1] != _DIGITS_SIZE**2 or not whole or pixels.min() < 0 or pixels.max() > _DIGITS_INK:
        raise FormatError(f"{path} does not hold 8x8 images with values 0 to 16, each with a label")
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
        record = loadmat(io.BytesIO(content), variable_names=["affNISTdata"])["affNISTdata"][0, 0]
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


def _mat_files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.suffix != ".zip":
        yield str(path), _read(path)
        return
    check_there(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".mat") and "__MACOSX" not in name]
            for name in sorted(names, key=_number):
                yield f"{path}: {name}", archive.read(name)
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{path} is damaged: {error}") from None


def _number(name: str) -> tuple[int, str]:
    """A sort key that puts 2.mat before 10.mat."""
    digits = re.findall(r"\d+", Path(name).name)
    return int(digits[-1]) if digits else 0, name


def gunzip(path: Path) -> bytes:
    """The content of a gzip'd file. Raises `FormatError` if it is missing or damaged."""
    try:
        return gzip.decompress(_read(path))
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise FormatError(f"{path} is damaged: {error}") from None


def _read(path: Path) -> bytes:
    check_there(path)
    return path.read_bytes()


def check_there(path: Path) -> None:
    """Raise `FormatError` if a downloaded file is missing."""
    if not path.is_file():
        raise FormatError(f"{path} is missing: run the download stage of its source first")
