"""smallNORB: the official matrix files by hand-made bytes, the smaller copy, and what becomes of their numbers."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from pipeline.data.formats import FormatError
from pipeline.data.norb import UNKNOWN, halved, read_matrix, read_smallnorb, read_smallnorb48

RANDOM = np.random.default_rng(0)
BYTES = b"\x55\x4c\x3d\x1e"
INTEGERS = b"\x54\x4c\x3d\x1e"


def whole(number: int) -> bytes:
    return number.to_bytes(4, "little")


def write_gz(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content, 1))
    return path


def matrix(array: np.ndarray) -> bytes:
    """As the files are: the dimensions filled up with ones to three."""
    magic = BYTES if array.dtype == np.uint8 else INTEGERS
    shape = [*array.shape, 1, 1][: max(3, array.ndim)]
    return magic + whole(array.ndim) + b"".join(map(whole, shape)) + array.tobytes()


def test_bytes_are_read_in_the_shape_stated(tmp_path: Path) -> None:
    content = BYTES + whole(3) + whole(1) + whole(2) + whole(3) + b"\x00\x01\x02\xfd\xfe\xff"
    found = read_matrix(write_gz(tmp_path / "a.gz", content))
    np.testing.assert_array_equal(found, [[[0, 1, 2], [253, 254, 255]]])
    assert found.dtype == np.uint8


def test_integers_are_little_endian_and_a_vector_has_three_dimensions_written_down(tmp_path: Path) -> None:
    content = INTEGERS + whole(1) + whole(2) + whole(7) + whole(9) + b"\x01\x02\x00\x00" + b"\xff\xff\xff\xff"
    np.testing.assert_array_equal(read_matrix(write_gz(tmp_path / "a.gz", content)), [513, -1])


def test_four_dimensions_are_read(tmp_path: Path) -> None:
    array = RANDOM.integers(0, 256, (2, 3, 4, 5), np.uint8)
    np.testing.assert_array_equal(read_matrix(write_gz(tmp_path / "a.gz", matrix(array))), array)


GOOD = matrix(np.arange(6, dtype=np.uint8).reshape(2, 3))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GOOD[:-1], r"25 bytes unpacked, expected 26 for a matrix of shape \(2, 3\)"),
        (GOOD + b"\0", r"27 bytes unpacked, expected 26 for a matrix of shape \(2, 3\)"),
        (GOOD[:15], "ends in its header"),
        (GOOD[:4], "ends in its header, or claims 0 dimensions"),
        (BYTES + whole(0) + 3 * whole(1), "claims 0 dimensions"),
        (BYTES + whole(2**31) + 3 * whole(1), "claims 2147483648 dimensions"),
        (b"", r"is not a matrix file of NORB \(it starts with nothing\)"),
        (b"PK\3\4" + GOOD[4:], r"is not a matrix file of NORB \(it starts with 50 4b 03 04\)"),
        (BYTES[::-1] + GOOD[4:], "is not a matrix file of NORB"),
        (b"\x51" + GOOD[1:], "holds single precision numbers, expected bytes or 32-bit integers"),
        (b"\x52" + GOOD[1:], "holds a packed matrix"),
        (b"\x53" + GOOD[1:], "holds double precision numbers"),
        (b"\x56" + GOOD[1:], "holds 16-bit integers"),
    ],
)
def test_foreign_matrices_are_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(FormatError, match=f"a.mat.gz.*{reason}"):
        read_matrix(write_gz(tmp_path / "a.mat.gz", content))


def test_damaged_and_missing_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"none\.gz is missing: run the download stage"):
        read_matrix(tmp_path / "none.gz")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(GOOD)[:-9])
    with pytest.raises(FormatError, match=r"cut\.gz is damaged"):
        read_matrix(tmp_path / "cut.gz")


def test_halving_takes_means_of_two_by_two() -> None:
    """1 + 2 + 3 + 4 = 10, 2.5 up to 3; 5 of 4 down to 1; 255 stays; 6 of 4, 1.5 up to 2."""
    image = np.array([[1, 2, 0, 1], [3, 4, 4, 0], [255, 255, 3, 1], [255, 255, 2, 0]], np.uint8)
    np.testing.assert_array_equal(halved(image[None]), [[[3, 1], [255, 2]]])
    images = RANDOM.integers(0, 256, (1234, 2, 4, 6), np.uint8)  # more than are taken at once
    expected = np.floor(images.reshape(1234, 2, 2, 2, 3, 2).mean(axis=(3, 5)) + 0.5)
    np.testing.assert_array_equal(halved(images), expected)
    assert halved(images).dtype == np.uint8


INFO = np.array([[4, 0, 0, 0], [6, 8, 34, 5], [9, 3, 12, 2]], np.int32)


def official(folder: Path, **changes: np.ndarray) -> np.ndarray:
    """The three files of a part of three pairs; returns the images."""
    images = RANDOM.integers(0, 256, (3, 2, 96, 96), np.uint8)
    arrays = {"dat": images, "cat": np.array([4, 0, 2], np.int32), "info": INFO, **changes}
    for kind, array in arrays.items():
        write_gz(folder / f"x-{kind}.mat.gz", matrix(array))
    return images


def test_a_part_has_its_images_halved_and_its_factors_in_degrees(tmp_path: Path) -> None:
    images = official(tmp_path)
    part = read_smallnorb(tmp_path, "x")
    np.testing.assert_array_equal(part.images, halved(images))
    assert part.images.shape == (3, 2, 48, 48)
    np.testing.assert_array_equal(part.category, [4, 0, 2])
    assert {name: values.tolist() for name, values in part.factors.items()} == {
        "instance": [4, 6, 9],
        "azimuth": [0, 340, 120],
        "elevation": [30, 70, 45],
        "lighting": [0, 5, 2],
    }
    assert {values.dtype for values in (part.category, *part.factors.values())} == {np.dtype(np.int64)}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cat": np.zeros(2, np.int32)}, r"x-cat\.mat\.gz has the shape \(2,\), expected \(3,\)"),
        ({"info": INFO[:, :3]}, r"x-info\.mat\.gz has the shape \(3, 3\), expected \(3, 4\)"),
        ({"dat": np.zeros((3, 96, 96), np.uint8)}, r"x-dat\.mat\.gz has the shape \(3, 96, 96\), expected \(3, 2, 96"),
        ({"dat": np.zeros((3, 2, 96, 96), np.int32)}, r"x-dat\.mat\.gz holds int32 numbers, expected bytes"),
        ({"cat": np.array([0, 5, 1], np.int32)}, r"x-info\.mat\.gz: category goes from 0 to 5, not 0 to 4"),
        ({"info": INFO * [1, 2, 1, 1]}, r"x-info\.mat\.gz: elevation goes from 0 to 16, not 0 to 8"),
        ({"info": INFO - [0, 0, 0, 1]}, r"x-info\.mat\.gz: lighting goes from -1 to 4, not 0 to 5"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path, changes: dict[str, np.ndarray], reason: str) -> None:
    changes = {kind: array.astype(np.int32) if array.dtype == np.int64 else array for kind, array in changes.items()}
    official(tmp_path, **changes)
    with pytest.raises(FormatError, match=reason):
        read_smallnorb(tmp_path, "x")


def small_arrays() -> dict[str, np.ndarray]:
    columns = np.concatenate([[[0], [1], [4]], INFO], axis=1).astype(np.uint8).T
    names = ("category", "instance", "elevation", "azimuth", "lighting")
    images = RANDOM.integers(0, 256, (3, 2, 48, 48), np.uint8)
    return {"images": images, **dict(zip(names, columns, strict=True))}


def test_the_smaller_copy_is_read_to_the_byte_and_unknown_factors_are_so(tmp_path: Path) -> None:
    arrays = small_arrays()
    np.savez_compressed(tmp_path / "test.npz", **arrays)
    np.savez_compressed(tmp_path / "train.npz", **{name: arrays[name] for name in ("images", "category", "instance")})
    posed = read_smallnorb48(tmp_path / "test.npz", posed=True)
    np.testing.assert_array_equal(posed.images, arrays["images"])
    np.testing.assert_array_equal(posed.category, [0, 1, 4])
    assert posed.factors["azimuth"].tolist() == [0, 340, 120]  # 10 x 34 is beyond a byte
    assert posed.factors["elevation"].tolist() == [30, 70, 45]
    unposed = read_smallnorb48(tmp_path / "train.npz", posed=False)
    assert unposed.factors["instance"].tolist() == [4, 6, 9]
    for name in ("azimuth", "elevation", "lighting"):
        assert unposed.factors[name].tolist() == [UNKNOWN] * 3
    with pytest.raises(FormatError, match=r"train\.npz.*elevation"):
        read_smallnorb48(tmp_path / "train.npz", posed=True)


@pytest.mark.parametrize("damage", ["cut", "text", "array", "pickled", "size", "float", "count", "range"])
def test_a_foreign_smaller_copy_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    path, arrays = tmp_path / "test.npz", small_arrays()
    match damage:
        case "pickled":
            arrays["category"] = np.array([print, print, print])
        case "size":
            arrays["images"] = arrays["images"][..., :32]
        case "float":
            arrays["lighting"] = arrays["lighting"] / 2
        case "count":
            arrays["instance"] = arrays["instance"][:2]
        case "range":
            arrays["azimuth"] = arrays["azimuth"] + np.uint8(2)
    np.savez(path, **arrays)
    match damage:
        case "cut":
            path.write_bytes(path.read_bytes()[:-100])
        case "text":
            path.write_text("hello")
        case "array":
            with path.open("wb") as file:
                np.save(file, arrays["images"])
    with pytest.raises(FormatError, match=r"test\.npz"):
        read_smallnorb48(path, posed=True)


def test_a_missing_smaller_copy_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"test\.npz is missing: run the download stage"):
        read_smallnorb48(tmp_path / "test.npz", posed=True)
