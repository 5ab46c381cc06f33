"""Published files: what is read of each source, to the byte, and what is known of it before."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from scipy.io import savemat
from sklearn.datasets import load_digits

from pipeline.data import published
from pipeline.data.affnist import read_affnist
from pipeline.data.datasets import PARTS, Dataset
from pipeline.data.published import build_dataset, halved
from pipeline.data.settings import PUBLISHED, DatasetParams
from pipeline.data.sources import NORB_TESTING, NORB_TRAINING, SOURCES, fetch
from pipeline.errors import UserError
from pipeline.files import sha256

RANDOM = np.random.default_rng(0)
TRAIN, TEST = 60, 20


def built(source: str, raw: Path, **changes: int) -> Dataset:
    values = {"canvas": 48, "train": 30, "validation": 10, "test": 15, "split_seed": 0}
    return build_dataset("mine", DatasetParams.model_validate({"source": source, **values, **changes}), raw)


def write_gz(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content, 1))
    return path


@pytest.mark.parametrize("source", ["digits", "toys"])
def test_what_is_known_is_so(source: str, tmp_path: Path) -> None:
    """All images, and not one more; few are rendered."""
    fetch(source, tmp_path / "raw")
    known = PUBLISHED[source]
    content = published.READERS[source](tmp_path / "raw")
    assert known.images is not None
    assert (content.test, len(content.classes)) == (known.test, known.classes)
    assert len(content.labels) == known.images + known.test
    assert content.factors.keys() == set(known.factors or ())
    assert built(source, tmp_path / "raw", canvas=known.side).images.shape[1:] == (known.channels, *2 * [known.side])


@pytest.mark.parametrize("source", ["mnist", "smallnorb48"])
def test_a_missing_or_damaged_file_says_what_to_run(tmp_path: Path, source: str) -> None:
    with pytest.raises(UserError, match="is missing: run the download stage first"):
        built(source, tmp_path)
    for file in SOURCES[source].files:
        (tmp_path / file).write_bytes(b"hello")
    with pytest.raises(UserError, match=f"{tmp_path} cannot be read .*run the download stage again"):
        built(source, tmp_path)


def test_digits_are_smooth_enlargements_in_the_middle_of_28_pixels(tmp_path: Path) -> None:
    """Averaged back to 8x8 they are nearly what they were, upright and in place."""
    (path,) = fetch("digits", tmp_path / "raw")  # needs no network
    assert sha256(path) == SOURCES["digits"].files["digits.csv.gz"]
    digits = built("digits", tmp_path / "raw", canvas=28, train=1200, validation=237, test=360)
    assert digits.label == "digits (scikit-learn)"
    assert digits.images.shape == (1797, 1, 28, 28)
    assert sorted(np.concatenate([digits.split[part] for part in PARTS])) == list(range(1797))
    np.testing.assert_array_equal(digits.labels, load_digits().target)
    ink = digits.images[:, 0].any(axis=0)
    # 20x20 in the middle, and the strokes' soft edge around: half a pixel of the original, so one here.
    for axis in (0, 1):
        np.testing.assert_array_equal(np.flatnonzero(ink.any(axis=axis)), range(3, 25))
    original = load_digits().images * (255 / 16)
    middle = digits.images[:, 0, 4:24, 4:24].astype(float)
    back = ndimage.zoom(middle, (1, 2, 2), order=0).reshape(-1, 8, 5, 8, 5).mean(axis=(2, 4))
    assert np.corrcoef(back.ravel(), original.ravel())[0, 1] > 0.98
    assert np.corrcoef(back.swapaxes(1, 2).ravel(), original.ravel())[0, 1] < 0.7
    assert abs(middle.mean() / original.mean() - 1) < 0.1


@pytest.mark.parametrize(("source", "label"), [("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST")])
def test_idx_data_sets_keep_the_official_bytes_and_order(tmp_path: Path, source: str, label: str) -> None:
    arrays = {}
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        arrays[f"{part}-images-idx3-ubyte"] = RANDOM.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = RANDOM.integers(0, 10, count).astype(np.uint8)
    for name, array in arrays.items():
        header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        write_gz(tmp_path / f"{name}.gz", header + array.tobytes())
    found = built(source, tmp_path, canvas=28)
    assert (found.name, found.label) == ("mine", label)
    images = np.concatenate([arrays["train-images-idx3-ubyte"], arrays["t10k-images-idx3-ubyte"]])
    labels = np.concatenate([arrays["train-labels-idx1-ubyte"], arrays["t10k-labels-idx1-ubyte"]])
    np.testing.assert_array_equal(found.images[:, 0], images)
    np.testing.assert_array_equal(found.labels, labels)
    assert (found.images.dtype, found.labels.dtype) == (np.uint8, np.int64)
    assert set(found.split["test"]) <= set(range(TRAIN, TRAIN + TEST))


def test_affnist_is_in_the_order_of_its_files_numbers(tmp_path: Path) -> None:
    """Its files have a struct with one image a column, among other fields."""
    batches = {
        number: (RANDOM.integers(0, 256, (3, 40, 40), np.uint8), RANDOM.integers(0, 10, 3).astype(np.uint8))
        for number in (10, 2, 1)
    }
    with zipfile.ZipFile(tmp_path / "test_batches.zip", "w") as archive:
        for number, (images, labels) in batches.items():
            content = io.BytesIO()
            record = {"weight": 1.0, "image": images.reshape(len(images), -1).T, "label_int": labels[None]}
            savemat(content, {"affNISTdata": record}, do_compression=True)
            archive.writestr(f"test_batches/{number}.mat", content.getvalue())
        archive.writestr("__MACOSX/test_batches/._1.mat", b"")
    images, labels = read_affnist(tmp_path, versions=32)
    np.testing.assert_array_equal(images[:, 0], np.concatenate([batches[number][0] for number in (1, 2, 10)]))
    np.testing.assert_array_equal(labels, np.concatenate([batches[number][1] for number in (1, 2, 10)]))
    assert (images.dtype, labels.dtype) == (np.uint8, np.int64)
    np.testing.assert_array_equal(read_affnist(tmp_path, versions=1)[0], images[:3])


CIFAR10_FILES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def test_cifar10_is_read_to_the_byte_the_test_batch_last(tmp_path: Path) -> None:
    pixels, labels = RANDOM.integers(0, 256, (30, 3072), np.uint8), RANDOM.integers(0, 10, 30).tolist()
    members = {"readme.html": b"hello"}
    for index, name in reversed(list(enumerate(CIFAR10_FILES))):
        rows, numbers = pixels[5 * index : 5 * index + 5], labels[5 * index : 5 * index + 5]
        members[name] = pickle.dumps({b"data": rows, b"labels": numbers})
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    found = built("cifar10", tmp_path, canvas=32, train=15, test=5)
    assert (found.images.shape, found.images.dtype, found.labels.dtype) == ((30, 3, 32, 32), np.uint8, np.int64)
    np.testing.assert_array_equal(found.images.reshape(30, -1), pixels)
    assert found.labels.tolist() == labels
    # Red, then green, then blue, each row by row.
    assert found.images[5, 1, 2, 3] == pixels[5, 1024 + 2 * 32 + 3]
    assert set(found.split["test"]) == set(range(25, 30))
    assert (found.label, found.classes[9], found.factors) == ("CIFAR-10", "truck", {})


def whole(number: int) -> bytes:
    return number.to_bytes(4, "little")


def matrix(array: np.ndarray) -> bytes:
    """As the files are: the dimensions filled up with ones to three."""
    magic = b"\x55\x4c\x3d\x1e" if array.dtype == np.uint8 else b"\x54\x4c\x3d\x1e"
    shape = [*array.shape, 1, 1][: max(3, array.ndim)]
    return magic + whole(array.ndim) + b"".join(map(whole, shape)) + array.tobytes()


def test_halving_takes_means_of_two_by_two() -> None:
    """1 + 2 + 3 + 4 = 10, 2.5 up to 3; 5 of 4 down to 1; 255 stays; 6 of 4, 1.5 up to 2."""
    image = np.array([[1, 2, 0, 1], [3, 4, 4, 0], [255, 255, 3, 1], [255, 255, 2, 0]], np.uint8)
    np.testing.assert_array_equal(halved(image[None]), [[[3, 1], [255, 2]]])


def norb_info(instances: tuple[int, ...], count: int) -> np.ndarray:
    """Instance, elevation, azimuth, lighting, as the files have them."""
    columns = (RANDOM.choice(instances, count), *(RANDOM.integers(0, most, count) for most in (9, 18, 6)))
    return np.stack(columns, axis=1) * [1, 1, 2, 1]


def test_the_official_smallnorb_is_halved_and_has_its_factors_in_degrees(tmp_path: Path) -> None:
    values = []
    for prefix, instances, count in ((NORB_TRAINING, (4, 6), 6), (NORB_TESTING, (0, 5), 4)):
        small = RANDOM.integers(0, 256, (count, 2, 48, 48), np.uint8)
        category, info = RANDOM.integers(0, 5, count), norb_info(instances, count)
        arrays = {"dat": small.repeat(2, axis=2).repeat(2, axis=3), "cat": category, "info": info}
        for kind, array in arrays.items():
            stored = array if kind == "dat" else array.astype(np.int32)
            write_gz(tmp_path / f"{prefix}-{kind}.mat.gz", matrix(stored))
        values.append((small, category, info))
    images, labels, info = (np.concatenate(columns) for columns in zip(*values, strict=True))
    found = built("smallnorb", tmp_path, train=4, validation=2, test=4)
    assert found.label == "smallNORB"
    np.testing.assert_array_equal(found.images, images)
    np.testing.assert_array_equal(found.labels, labels)
    scaled = info * [1, 5, 10, 1] + [0, 30, 0, 0]
    for name, expected in zip(("instance", "elevation", "azimuth", "lighting"), scaled.T, strict=True):
        np.testing.assert_array_equal(found.factors[name], expected)
        assert found.factors[name].dtype == np.int64
    assert set(found.split["test"]) == set(range(6, 10))


def write_smallnorb48(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """The smaller copy, smaller still."""
    parts = {}
    for part, instances, count in (("train", (4, 6, 7, 8, 9), TRAIN), ("test", (0, 1, 2, 3, 5), TEST)):
        info = norb_info(instances, count).astype(np.uint8)
        known = dict(zip(("instance", "elevation", "azimuth", "lighting"), info.T, strict=True))
        arrays = {
            "images": RANDOM.integers(0, 256, (count, 2, 48, 48), np.uint8),
            "category": RANDOM.integers(0, 5, count).astype(np.uint8),
            **(known if part == "test" else {"instance": known["instance"]}),
        }
        np.savez(folder / f"{part}.npz", **arrays)
        parts[part] = arrays
    return parts


def test_the_smaller_smallnorb_keeps_order_and_bytes_and_says_what_is_unknown(tmp_path: Path) -> None:
    parts = write_smallnorb48(tmp_path)
    found = built("smallnorb48", tmp_path)
    assert found.label == "smallNORB (JPEG-derived)"
    assert found.classes == ("animal", "human", "airplane", "truck", "car")
    np.testing.assert_array_equal(found.images, np.concatenate([parts[part]["images"] for part in parts]))
    np.testing.assert_array_equal(found.labels, np.concatenate([parts[part]["category"] for part in parts]))
    assert set(found.split["test"]) <= set(range(TRAIN, TRAIN + TEST))
    for factor in ("azimuth", "elevation", "lighting"):
        assert (found.factors[factor][:TRAIN] == -1).all()
        assert (found.factors[factor][TRAIN:] >= 0).all()
    # 10 x 34 is beyond a byte.
    np.testing.assert_array_equal(found.factors["azimuth"][TRAIN:], 10 * parts["test"]["azimuth"].astype(int))


def test_the_posed_smallnorb_is_the_test_part_split_by_instance(tmp_path: Path) -> None:
    """Instances 0, 1, 2 train and 3, 5 test; nothing is read but the file of the test part."""
    test = write_smallnorb48(tmp_path)["test"]
    (tmp_path / "train.npz").unlink()
    is_test = np.isin(test["instance"], (3, 5))
    sizes = {"train": int((~is_test).sum()) - 2, "validation": 2, "test": int(is_test.sum())}
    found = built("smallnorb48-posed", tmp_path, **sizes)
    assert found.label == "smallNORB test part by instance (JPEG-derived)"
    order = np.concatenate([np.flatnonzero(~is_test), np.flatnonzero(is_test)])
    np.testing.assert_array_equal(found.images, test["images"][order])
    np.testing.assert_array_equal(found.labels, test["category"][order])
    np.testing.assert_array_equal(found.factors["elevation"], 30 + 5 * test["elevation"][order].astype(int))
    for part, allowed in (("train", {0, 1, 2}), ("validation", {0, 1, 2}), ("test", {3, 5})):
        assert set(found.factors["instance"][found.split[part]].tolist()) <= allowed
