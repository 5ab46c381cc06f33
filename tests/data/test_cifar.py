"""CIFAR-10: an archive as Python 2 wrote it is read to the byte, and no pickle gets anything to run."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.data.cifar import CLASSES, read_cifar10
from pipeline.data.formats import FormatError

RANDOM = np.random.default_rng(0)
NAMES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def string(content: bytes) -> bytes:
    """A string of Python 2: opcode U or T, its length, its bytes."""
    return b"U" + bytes([len(content)]) + content if len(content) < 256 else b"T" + size(len(content)) + content


def size(number: int) -> bytes:
    return number.to_bytes(4, "little")


def batch(pixels: np.ndarray, labels: list[int], kind: bytes = b"u1") -> bytes:
    """What Python 2 pickled: {'data': an array, 'labels': a list}, opcode by opcode."""
    rows, columns = pixels.shape
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + string(kind) + b"K\x00K\x01\x87R(K\x03" + string(b"|") + b"NNN"
    dtype += 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"
    state = (
        b"(K\x01J" + size(rows) + b"J" + size(columns) + b"\x86" + dtype + b"\x89" + string(pixels.tobytes()) + b"tb"
    )
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + string(b"data") + made + state + string(b"labels") + numbers + b"u."


def write(path: Path, members: dict[str, bytes], folder: str = "cifar-10-batches-py") -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def good() -> tuple[dict[str, bytes], np.ndarray, list[int]]:
    pixels = RANDOM.integers(0, 256, (12, 3072), np.uint8)
    labels = RANDOM.integers(0, 10, 12).tolist()
    members = {name: batch(pixels[2 * i : 2 * i + 2], labels[2 * i : 2 * i + 2]) for i, name in enumerate(NAMES)}
    return members, pixels, labels


def test_the_hand_made_pickle_is_what_it_should_be() -> None:
    """Read by Python's own machine, which trusts it, it is the array."""
    pixels = RANDOM.integers(0, 256, (2, 3072), np.uint8)
    content = batch(pixels, [3, 9]).replace(b"numpy.core.multiarray", b"numpy._core.multiarray")
    found = pickle.loads(content, encoding="bytes")
    np.testing.assert_array_equal(found[b"data"], pixels)
    assert found[b"labels"] == [3, 9]


def test_an_archive_is_read_to_the_byte_the_test_batch_last(tmp_path: Path) -> None:
    members, pixels, labels = good()
    shuffled = dict(sorted(members.items(), reverse=True))
    images, numbers = read_cifar10(write(tmp_path / "c.tar.gz", {"readme.html": b"hello", **shuffled}))
    assert (images.shape, images.dtype, numbers.dtype) == ((12, 3, 32, 32), np.uint8, np.int64)
    np.testing.assert_array_equal(images.reshape(12, -1), pixels)
    assert numbers.tolist() == labels
    # Red, then green, then blue, each row by row.
    assert images[5, 1, 2, 3] == pixels[5, 1024 + 2 * 32 + 3]
    assert len(CLASSES) == 10


def test_arrays_pickled_by_python_3_are_read_too(tmp_path: Path) -> None:
    members, pixels, labels = good()
    again = {
        name: pickle.dumps({b"data": pixels[2 * i : 2 * i + 2], b"labels": labels[2 * i : 2 * i + 2]}, protocol=4)
        for i, name in enumerate(members)
    }
    np.testing.assert_array_equal(read_cifar10(write(tmp_path / "c.tar.gz", again))[0].reshape(12, -1), pixels)


class Malicious:
    """Unpickled by whoever trusts it, this makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


def test_a_malicious_pickle_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    members, _, _ = good()
    members["data_batch_3"] = pickle.dumps({b"data": Malicious(tmp_path / "ran"), b"labels": [1, 2]})
    with pytest.raises(FormatError, match=r"data_batch_3 is not a batch of CIFAR-10: it asks for \w+\.system"):
        read_cifar10(write(tmp_path / "c.tar.gz", members))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "asked",
    [b"cbuiltins\neval\n", b"cnumpy\nload\n", b"cnumpy.core.multiarray\nfromfile\n", b"cnumpy\nndarray.tofile\n"],
)
def test_nothing_but_arrays_can_be_asked_for(tmp_path: Path, asked: bytes) -> None:
    members, _, _ = good()
    members["test_batch"] = b"\x80\x02" + asked + string(b"x") + b"\x85R."
    with pytest.raises(FormatError, match="test_batch is not a batch of CIFAR-10: it asks for"):
        read_cifar10(write(tmp_path / "c.tar.gz", members))


PIXELS = RANDOM.integers(0, 256, (2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (batch(PIXELS, [1, 2])[:-100], "is not a batch of CIFAR-10"),
        (b"hello", "is not a batch of CIFAR-10"),
        (b"", "is not a batch of CIFAR-10"),
        (pickle.dumps([1, 2]), "holds no images of 3072 bytes"),
        (pickle.dumps({b"labels": [1, 2]}), "holds no images of 3072 bytes"),
        (pickle.dumps({b"data": [1, 2], b"labels": [1, 2]}), "holds no images of 3072 bytes"),
        (batch(PIXELS[:, :-1], [1, 2]), "holds no images of 3072 bytes"),
        (batch(PIXELS, [1, 2], kind=b"i1"), "holds no images of 3072 bytes"),
        (batch(PIXELS, [1]), "does not hold a label from 0 to 9 for each"),
        (batch(PIXELS, [1, 10]), "does not hold a label from 0 to 9 for each"),
    ],
)
def test_foreign_batches_are_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    members, _, _ = good()
    members["data_batch_2"] = content
    with pytest.raises(FormatError, match=rf"c\.tar\.gz: cifar-10-batches-py/data_batch_2 {reason}"):
        read_cifar10(write(tmp_path / "c.tar.gz", members))


def test_foreign_archives_are_refused_by_name(tmp_path: Path) -> None:
    members, _, _ = good()
    path = tmp_path / "c.tar.gz"
    with pytest.raises(FormatError, match=r"c\.tar\.gz is missing: run the download stage"):
        read_cifar10(path)
    del members["data_batch_4"]
    with pytest.raises(FormatError, match=r"c\.tar\.gz: cifar-10-batches-py/data_batch_4 is missing"):
        read_cifar10(write(path, members))
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"hello", b""):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"c\.tar\.gz is damaged"):
            read_cifar10(path)


def test_a_link_in_place_of_a_batch_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz") as archive:
        entry = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(FormatError, match="data_batch_1 is not a file"):
        read_cifar10(tmp_path / "c.tar.gz")
