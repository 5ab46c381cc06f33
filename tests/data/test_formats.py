"""Readers: what is right is read to the byte, what is not is refused by name."""

from __future__ import annotations

import gzip
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from sklearn.datasets import load_digits

from pipeline.data.formats import FormatError, read_affnist, read_digits, read_idx
from pipeline.data.sources import fetch

RANDOM = np.random.default_rng(0)


def idx_bytes(array: np.ndarray, kind: int = 0x08) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, kind, array.ndim, *array.shape) + array.tobytes()


def write_gz(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


@pytest.mark.parametrize("shape", [(7,), (3, 4, 5), (0, 4, 5)])
def test_idx_is_read_to_the_byte(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = RANDOM.integers(0, 256, shape, np.uint8)
    found = read_idx(write_gz(tmp_path / "a.gz", idx_bytes(array)))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, array)


IDX = idx_bytes(RANDOM.integers(0, 256, (3, 4, 5), np.uint8))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (IDX[:-1], "75 bytes unpacked, expected 76"),
        (IDX + b"\0", "77 bytes unpacked, expected 76"),
        (IDX[:9], "9 bytes unpacked"),
        (b"", "not an idx file"),
        (b"PK\3\4 something else", r"not an idx file \(it starts with 50 4b 03 04\)"),
        (idx_bytes(np.zeros(3, ">f4"), 0x0D), "type 0x0d"),
        (struct.pack(">BBBB", 0, 0, 8, 0), "0 dimensions"),
    ],
)
def test_foreign_idx_is_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    path = write_gz(tmp_path / "images.gz", content)
    with pytest.raises(FormatError, match=f"images.gz.*{reason}"):
        read_idx(path)


@pytest.mark.parametrize("damage", ["cut", "plain", "flipped", "empty"])
def test_damaged_gzip_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    good = gzip.compress(IDX)
    middle = len(good) // 2
    content = {
        "cut": good[:-20],
        "plain": IDX,
        "flipped": good[:middle] + bytes([good[middle] ^ 0xFF]) + good[middle + 1 :],
        "empty": b"",
    }[damage]
    path = tmp_path / "images.gz"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"images\.gz"):
        read_idx(path)


def test_a_missing_file_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.gz is missing: run the download stage"):
        read_idx(tmp_path / "none.gz")


def test_digits_are_scikit_learns(tmp_path: Path) -> None:
    (path,) = fetch("digits", tmp_path / "raw", tmp_path / "partial")
    images, labels = read_digits(path)
    expected = load_digits()
    np.testing.assert_array_equal(images, expected.images)
    np.testing.assert_array_equal(labels, expected.target)


@pytest.mark.parametrize(
    "content",
    [
        *("", "\n", "a,b,c\n", "1,2,3\n", ",".join(["17"] * 65) + "\n", ",".join(["0.5"] * 65) + "\n", "1,2\n1\n"),
        *("1," * 64 + label + "\n" for label in ("10", "-1", "inf", "nan", "1e30")),
    ],
)
def test_foreign_digits_are_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(FormatError, match=r"digits\.csv\.gz"):
        read_digits(write_gz(tmp_path / "digits.csv.gz", content.encode()))


def write_mat(path: Path, images: np.ndarray, labels: np.ndarray) -> Path:
    """A file as affNIST's are: a struct with one image a column, among other fields."""
    columns = images.reshape(len(images), -1).T
    savemat(path, {"affNISTdata": {"weight": 1.0, "image": columns, "label_int": labels[None]}}, do_compression=True)
    return path


def affnist_images(count: int) -> tuple[np.ndarray, np.ndarray]:
    return RANDOM.integers(0, 256, (count, 40, 40), np.uint8), RANDOM.integers(0, 10, count).astype(np.uint8)


def test_affnist_mat_is_read_to_the_byte(tmp_path: Path) -> None:
    images, labels = affnist_images(5)
    found = read_affnist(write_mat(tmp_path / "1.mat", images, labels))
    np.testing.assert_array_equal(found[0], images)
    np.testing.assert_array_equal(found[1], labels)
    np.testing.assert_array_equal(found[2], [1] * 5)
    assert (found[0].dtype, found[1].dtype) == (np.uint8, np.int64)


def test_affnist_batches_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    batches = {number: affnist_images(2) for number in (10, 2, 1)}
    with zipfile.ZipFile(tmp_path / "test_batches.zip", "w") as archive:
        for number, (images, labels) in batches.items():
            archive.write(write_mat(tmp_path / "a.mat", images, labels), f"test_batches/{number}.mat")
        archive.writestr("__MACOSX/test_batches/._1.mat", b"")
    images, _, numbers = read_affnist(tmp_path / "test_batches.zip")
    np.testing.assert_array_equal(images, np.concatenate([batches[number][0] for number in (1, 2, 10)]))
    np.testing.assert_array_equal(numbers, [1, 1, 2, 2, 3, 3])
    assert len(read_affnist(tmp_path / "test_batches.zip", batches=2)[0]) == 4


@pytest.mark.parametrize("damage", ["text", "cut", "wrong size", "other", "empty zip", "cut zip"])
def test_foreign_affnist_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / ("a.zip" if "zip" in damage else "a.mat")
    images, labels = affnist_images(3)
    match damage:
        case "text":
            path.write_text("MATLAB? no")
        case "cut":
            content = write_mat(path, images, labels).read_bytes()
            path.write_bytes(content[: len(content) // 2])
        case "wrong size":
            write_mat(path, images[:, :28, :28], labels)
        case "other":
            savemat(path, {"something": np.zeros(3)})
        case "empty zip":
            zipfile.ZipFile(path, "w").close()
        case "cut zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("1.mat", RANDOM.bytes(1000))
            path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(FormatError, match=r"a\.(mat|zip)"):
        read_affnist(path)
