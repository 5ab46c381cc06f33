"""Data sets: what is published is kept to the byte, the split is fixed, the file is safe and always the same."""

from __future__ import annotations

import dataclasses
import gzip
import pickle
import resource
import struct
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from scipy.io import savemat
from sklearn.datasets import load_digits

from pipeline.data.datasets import (
    PARTS,
    Dataset,
    DatasetError,
    build_affnist,
    build_dataset,
    load_dataset,
    save_dataset,
)
from pipeline.data.formats import FormatError
from pipeline.data.sources import fetch
from pipeline.files import FileWriteError
from pipeline.params import DatasetParams

RANDOM = np.random.default_rng(0)
TRAIN, TEST = 60, 20


def params(source: str = "mnist", **changes: Any) -> DatasetParams:
    values = {"canvas": 28, "train": 30, "validation": 10, "test": 15, "split_seed": 0}
    return DatasetParams.model_validate({"source": source, **values, **changes})


def write_idx(path: Path, array: np.ndarray) -> None:
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content))


@pytest.fixture
def official(tmp_path: Path) -> dict[str, np.ndarray]:
    """Small files named and shaped like MNIST's, written to tmp_path / "raw"."""
    (tmp_path / "raw").mkdir()
    arrays = {}
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        arrays[f"{part}-images-idx3-ubyte"] = RANDOM.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = RANDOM.integers(0, 10, count).astype(np.uint8)
    for name, array in arrays.items():
        write_idx(tmp_path / "raw" / f"{name}.gz", array)
    return arrays


@pytest.fixture(scope="module")
def digits_raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    fetch("digits", folder / "raw", folder / "partial")
    return folder / "raw"


DIGITS = {"source": "digits", "train": 1200, "validation": 237, "test": 360}


@pytest.mark.parametrize(("source", "label"), [("mnist", "MNIST"), ("fashion-mnist", "Fashion-MNIST")])
def test_idx_data_sets_keep_the_official_bytes_and_order(
    tmp_path: Path, official: dict[str, np.ndarray], source: str, label: str
) -> None:
    built = build_dataset("mine", params(source), tmp_path / "raw")
    assert (built.name, built.label) == ("mine", label)
    images = np.concatenate([official["train-images-idx3-ubyte"], official["t10k-images-idx3-ubyte"]])
    labels = np.concatenate([official["train-labels-idx1-ubyte"], official["t10k-labels-idx1-ubyte"]])
    np.testing.assert_array_equal(built.images[:, 0], images)
    np.testing.assert_array_equal(built.labels, labels)
    assert built.images.shape == (TRAIN + TEST, 1, 28, 28)
    assert (built.images.dtype, built.labels.dtype) == (np.uint8, np.int64)


def test_the_official_test_part_stays_apart(tmp_path: Path, official: dict[str, np.ndarray]) -> None:
    split = build_dataset("mine", params(train=50, test=TEST), tmp_path / "raw").split
    assert set(split["test"]) == set(range(TRAIN, TRAIN + TEST))
    assert set(split["train"]) | set(split["validation"]) == set(range(TRAIN))
    assert {part: len(split[part]) for part in PARTS} == {"train": 50, "validation": 10, "test": TEST}


def test_part_gives_the_images_of_the_split(tmp_path: Path, official: dict[str, np.ndarray]) -> None:
    built = build_dataset("mine", params(), tmp_path / "raw")
    images, labels = built.part("validation")
    for index, image, label in zip(built.split["validation"], images, labels, strict=True):
        np.testing.assert_array_equal(image[0], official["train-images-idx3-ubyte"][index])
        assert label == official["train-labels-idx1-ubyte"][index]


@pytest.mark.parametrize("source", ["mnist", "digits"])
def test_smaller_parts_are_the_beginnings_of_larger_ones(
    tmp_path: Path, official: dict[str, np.ndarray], digits_raw: Path, source: str
) -> None:
    raw = digits_raw if source == "digits" else tmp_path / "raw"
    large = build_dataset("mine", params(source), raw).split
    small = build_dataset("mine", params(source, train=7, test=5), raw).split
    np.testing.assert_array_equal(small["validation"], large["validation"])
    np.testing.assert_array_equal(small["train"], large["train"][:7])
    np.testing.assert_array_equal(small["test"], large["test"][:5])


def test_the_seed_decides_the_split(tmp_path: Path, official: dict[str, np.ndarray]) -> None:
    first, again = (build_dataset("mine", params(), tmp_path / "raw").split for _ in range(2))
    other = build_dataset("mine", params(split_seed=1), tmp_path / "raw").split
    for part in PARTS:
        np.testing.assert_array_equal(first[part], again[part])
        assert first[part].tolist() != other[part].tolist()
        assert first[part].tolist() != sorted(first[part].tolist())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": 51}, "train 51 + validation 10 = 61 asked for, but MNIST has 60 training images"),
        ({"test": 21}, "test 21 asked for, but MNIST has 20 test images"),
    ],
)
def test_too_many_images_are_refused_naming_what_there_is(
    tmp_path: Path, official: dict[str, np.ndarray], changes: dict[str, int], message: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        build_dataset("mine", params(**changes), tmp_path / "raw")
    assert str(caught.value) == f"datasets.mine: {message}"


def test_too_many_digits_are_refused(digits_raw: Path) -> None:
    with pytest.raises(DatasetError, match=r"= 1798 asked for, but digits \(scikit-learn\) has 1797 images"):
        build_dataset("digits", params(**DIGITS | {"test": 361}), digits_raw)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, official: dict[str, np.ndarray]) -> None:
    write_idx(tmp_path / "raw" / "t10k-labels-idx1-ubyte.gz", np.zeros(TEST - 1, np.uint8))
    with pytest.raises(DatasetError, match="do not belong together"):
        build_dataset("mine", params(), tmp_path / "raw")


def test_digits_fill_the_middle_of_28_pixels(digits_raw: Path) -> None:
    built = build_dataset("digits", params(**DIGITS), digits_raw)
    assert built.label == "digits (scikit-learn)"
    assert built.images.shape == (1797, 1, 28, 28)
    assert sorted(np.concatenate([built.split[part] for part in PARTS])) == list(range(1797))
    np.testing.assert_array_equal(built.labels, load_digits().target)
    ink = built.images[:, 0].any(axis=0)
    # 20x20 in the middle, and the strokes' soft edge around: half a pixel of the original, so one here.
    for axis in (0, 1):
        np.testing.assert_array_equal(np.flatnonzero(ink.any(axis=axis)), range(3, 25))


def test_digits_are_smooth_enlargements(digits_raw: Path) -> None:
    """Averaged back to 8x8 they are nearly what they were, upright and in place."""
    built = build_dataset("digits", params(**DIGITS), digits_raw)
    original = load_digits().images * (255 / 16)
    middle = built.images[:, 0, 4:24, 4:24].astype(float)
    back = ndimage.zoom(middle, (1, 2, 2), order=0).reshape(-1, 8, 5, 8, 5).mean(axis=(2, 4))
    correlation = np.corrcoef(back.ravel(), original.ravel())[0, 1]
    assert correlation > 0.98
    assert np.corrcoef(back.swapaxes(1, 2).ravel(), original.ravel())[0, 1] < 0.7
    assert abs(middle.mean() / original.mean() - 1) < 0.1
    # No stroke, no ink: nothing further from a stroke than linear interpolation reaches.
    reach = ndimage.zoom(ndimage.maximum_filter(original > 0, (1, 3, 3)), (1, 2, 2), order=0)
    reach = reach.repeat(5, axis=1).repeat(5, axis=2).reshape(-1, 8, 10, 8, 10)[:, :, 0, :, 0]
    assert not (back > 0)[~reach].any()


def example(**changes: Any) -> Dataset:
    values: dict[str, Any] = {
        "name": "mine",
        "label": "toys (stand-in)",
        "images": RANDOM.integers(0, 256, (6, 2, 4, 4), np.uint8),
        "labels": np.arange(6),
        "factors": {"angle": np.linspace(0, 1, 6), "kind": np.array(list("abcdef"))},
        "split": {"train": np.array([3, 0]), "validation": np.array([5]), "test": np.array([1, 2])},
        "classes": ("cat", "dog"),
    }
    return Dataset(**values | changes)


def test_saving_and_loading_changes_nothing(tmp_path: Path) -> None:
    saved = example()
    save_dataset(tmp_path / "new folder" / "a.npz", saved)
    loaded = load_dataset(tmp_path / "new folder" / "a.npz")
    assert (loaded.name, loaded.label, loaded.classes) == (saved.name, saved.label, saved.classes)
    for one, other in (
        ({"images": loaded.images, "labels": loaded.labels}, {"images": saved.images, "labels": saved.labels}),
        (loaded.factors, saved.factors),
        (loaded.split, saved.split),
    ):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name].dtype == other[name].dtype
            np.testing.assert_array_equal(one[name], other[name])


def test_equal_data_sets_give_equal_bytes_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = example()
    save_dataset(tmp_path / "a.npz", data)
    later = time.time() + 1e6
    monkeypatch.setattr(time, "time", lambda: later)
    shuffled = dataclasses.replace(data, factors=dict(reversed(data.factors.items())))
    save_dataset(tmp_path / "b.npz", shuffled)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def damaged(path: Path, how: str) -> None:
    save_dataset(path, example())
    content = path.read_bytes()
    arrays = dict(np.load(path))
    match how:
        case "cut":
            path.write_bytes(content[:-100])
        case "flipped":
            middle = content.index(b"images.npy") + 200
            path.write_bytes(content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :])
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("hello")
        case "pickle":
            path.write_bytes(pickle.dumps(example()))
        case "pickled arrays":
            np.savez(path, **arrays | {"labels": np.array([object()] * 6)}, allow_pickle=True)
        case "array":
            with path.open("wb") as file:
                np.save(file, arrays["images"])
        case "other zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("readme.txt", "hello")
        case "other npz":
            np.savez(path, x=np.arange(3))
        case "other version":
            np.savez(path, **arrays | {"format": np.array("capsules data set 999")})
        case "labels missing":
            np.savez(path, **{name: array for name, array in arrays.items() if name != "labels"})
        case "fewer images":
            np.savez(path, **arrays | {"images": arrays["images"][:5]})
        case "float images":
            np.savez(path, **arrays | {"images": arrays["images"] / 255})
        case "split beyond":
            np.savez(path, **arrays | {"split/test": np.array([1, 6])})
        case "split overlaps":
            np.savez(path, **arrays | {"split/test": np.array([1, 3])})
        case "no test part":
            np.savez(path, **{name: array for name, array in arrays.items() if name != "split/test"})


@pytest.mark.parametrize(
    "how",
    [
        *("cut", "flipped", "empty", "text", "pickle", "pickled arrays", "array", "other zip", "other npz"),
        *("other version", "labels missing", "fewer images", "float images", "split beyond", "split overlaps"),
        "no test part",
    ],
)
def test_damaged_and_foreign_files_are_refused_by_name(tmp_path: Path, how: str) -> None:
    path = tmp_path / "mine.npz"
    damaged(path, how)
    with pytest.raises(DatasetError, match=r"mine\.npz is (damaged|not a data set of this pipeline).*delete it"):
        load_dataset(path)


def test_a_missing_file_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"none\.npz is missing: run the preprocess stage first"):
        load_dataset(tmp_path / "none.npz")


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_dataset(path, example())
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(FileWriteError, match=r"cannot write .*a\.npz: the file exceeds"):
            save_dataset(path, example(images=RANDOM.integers(0, 256, (6, 2, 128, 128), np.uint8)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_affnist_is_all_test_images(tmp_path: Path) -> None:
    images = RANDOM.integers(0, 256, (2, 3, 40, 40), np.uint8)
    with zipfile.ZipFile(tmp_path / "test_batches.zip", "w") as archive:
        for number, batch in enumerate(images, start=1):
            record = {"image": batch.reshape(3, -1).T, "label_int": np.array([[7, 2, 1]], np.uint8)}
            savemat(tmp_path / "a.mat", {"affNISTdata": record})
            archive.write(tmp_path / "a.mat", f"test_batches/{number}.mat")
    built = build_affnist(tmp_path)
    found, labels = built.part("test")
    assert built.label == "affNIST"
    np.testing.assert_array_equal(found, images.reshape(6, 1, 40, 40))
    np.testing.assert_array_equal(labels, [7, 2, 1] * 2)
    np.testing.assert_array_equal(built.factors["version"], [1, 1, 1, 2, 2, 2])
    assert len(build_affnist(tmp_path, versions=1).images) == 3
    save_dataset(tmp_path / "affnist.npz", built)
    np.testing.assert_array_equal(load_dataset(tmp_path / "affnist.npz").images, built.images)


def test_affnist_that_is_not_there_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"test_batches\.zip is missing: run the download stage"):
        build_affnist(tmp_path)


def test_a_larger_canvas_keeps_the_pixels_in_its_middle_and_says_so(
    tmp_path: Path, official: dict[str, np.ndarray]
) -> None:
    plain = build_dataset("m", params(), tmp_path / "raw")
    padded = build_dataset("m", params(canvas=40), tmp_path / "raw")
    assert padded.images.shape[-2:] == (40, 40)
    np.testing.assert_array_equal(padded.images[..., 6:34, 6:34], plain.images)
    assert padded.images.sum() == plain.images.sum()
    assert padded.label == "MNIST, 40x40"
