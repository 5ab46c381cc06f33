"""Data sets: what is published is kept to the byte, the split is fixed, the file is safe and always the same."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import pickle
import resource
import struct
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage
from scipy.io import savemat
from sklearn.datasets import load_digits

from pipeline.data import cifar, toys
from pipeline.data.affnist import build_affnist
from pipeline.data.building import build_dataset
from pipeline.data.datasets import PARTS, Dataset, DatasetError, load_dataset, save_dataset
from pipeline.data.formats import FormatError
from pipeline.data.settings import DatasetParams
from pipeline.data.sources import fetch
from pipeline.data.viewpoints import ViewpointError, split_viewpoints
from pipeline.files import FileWriteError

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
        ({"train": 51}, "train 51 + validation 10 = 61 requested, but MNIST has 60 training images"),
        ({"test": 21}, "test 21 requested, but MNIST has 20 test images"),
    ],
)
def test_too_many_images_are_refused_naming_what_there_is(
    tmp_path: Path, official: dict[str, np.ndarray], changes: dict[str, int], message: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        build_dataset("mine", params(**changes), tmp_path / "raw")
    assert str(caught.value) == f"datasets.mine: {message}"


def test_too_many_digits_are_refused(digits_raw: Path) -> None:
    with pytest.raises(DatasetError, match=r"= 1798 requested, but digits \(scikit-learn\) has 1797 images"):
        build_dataset("digits", params(**DIGITS | {"test": 361}), digits_raw)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, official: dict[str, np.ndarray]) -> None:
    write_idx(tmp_path / "raw" / "t10k-labels-idx1-ubyte.gz", np.zeros(TEST - 1, np.uint8))
    with pytest.raises(DatasetError, match="do not belong together"):
        build_dataset("mine", params(), tmp_path / "raw")


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("t10k-images-idx3-ubyte", np.zeros((TEST, 28, 30), np.uint8), "28x30 pixels: not one square size"),
        ("t10k-images-idx3-ubyte", np.zeros((TEST, 20, 20), np.uint8), "20x20 pixels: not one square size"),
        ("train-images-idx3-ubyte", np.zeros((TRAIN, 784), np.uint8), "do not belong together"),
        ("train-labels-idx1-ubyte", np.full(TRAIN, 10, np.uint8), "has the label 10, expected 0 to 9"),
    ],
)
def test_images_and_labels_of_other_data_sets_are_refused_by_name(
    tmp_path: Path, official: dict[str, np.ndarray], name: str, array: np.ndarray, message: str
) -> None:
    write_idx(tmp_path / "raw" / f"{name}.gz", array)
    with pytest.raises(DatasetError, match=f"{name}.*{message}"):
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


@pytest.mark.skipif("ng" in zlib.ZLIB_RUNTIME_VERSION, reason="zlib-ng compresses differently")
def test_bytes_of_a_data_set_are_those_of_every_version_of_python(tmp_path: Path) -> None:
    """Measured with Python 3.11.2 and 3.11.7, whose `numpy.savez` differ."""
    images = np.arange(192, dtype=np.uint8).reshape(6, 2, 4, 4)
    save_dataset(tmp_path / "a.npz", example(images=images))
    content = (tmp_path / "a.npz").read_bytes()
    assert hashlib.md5(content, usedforsecurity=False).hexdigest() == "b5ebec0d278e6362ac78c6e5e0d7e961"


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


def toys_dataset(tmp_path: Path, **changes: Any) -> Dataset:
    sizes = {"canvas": 48, "train": 60, "validation": 20, "test": 40}
    return build_dataset("toys", params("toys", **{**sizes, **changes}), tmp_path / "nowhere")


def test_toys_are_rendered_for_the_split_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []
    render = toys.render
    monkeypatch.setattr(toys, "render", lambda *factors: rendered.append(len(factors[0])) or render(*factors))
    built = toys_dataset(tmp_path)
    assert rendered == [120]
    assert (built.images.shape, built.images.dtype) == ((120, 2, 48, 48), np.uint8)
    assert {part: len(built.split[part]) for part in PARTS} == {"train": 60, "validation": 20, "test": 40}
    assert sorted(np.concatenate([built.split[part] for part in PARTS])) == list(range(120))
    assert (built.label, built.classes) == ("toys (stand-in)", ("animal", "human", "airplane", "truck", "car"))


def test_toys_of_the_test_part_are_others_than_those_of_training(tmp_path: Path) -> None:
    """The published split: instances 4, 6, 7, 8, 9 train, 0, 1, 2, 3, 5 test; drawn evenly from all there is."""
    built = toys_dataset(tmp_path)
    instances = {part: set(built.factors["instance"][built.split[part]].tolist()) for part in PARTS}
    assert instances == {"train": {4, 6, 7, 8, 9}, "validation": {4, 6, 7, 8, 9}, "test": {0, 1, 2, 3, 5}}
    assert set(built.labels.tolist()) == set(range(5))
    assert set(built.factors["azimuth"].tolist()) == set(range(0, 360, 20))
    assert set(built.factors["elevation"].tolist()) == set(range(30, 75, 5))
    assert set(built.factors["lighting"].tolist()) == set(range(6))


def test_toys_look_as_their_labels_and_factors_say(tmp_path: Path) -> None:
    built = toys_dataset(tmp_path)
    factors = built.factors
    again = toys.render(
        built.labels, factors["instance"], factors["azimuth"] // 20, factors["elevation"] // 5 - 6, factors["lighting"]
    )
    np.testing.assert_array_equal(built.images, again)


def test_no_toy_is_drawn_twice_and_smaller_parts_begin_larger_ones(tmp_path: Path) -> None:
    large, small = toys_dataset(tmp_path), toys_dataset(tmp_path, train=10, test=7)
    for part, count in (("train", 10), ("validation", 20), ("test", 7)):
        np.testing.assert_array_equal(large.part(part)[0][:count], small.part(part)[0])
        np.testing.assert_array_equal(large.part(part)[1][:count], small.part(part)[1])
    views = np.stack([large.labels, *large.factors.values()], axis=1)
    assert len(np.unique(views, axis=0)) == 120


def test_toys_give_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_dataset(tmp_path / name, toys_dataset(tmp_path))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    other = toys_dataset(tmp_path, split_seed=1)
    assert other.part("train")[1].tolist() != toys_dataset(tmp_path).part("train")[1].tolist()


def test_more_toys_than_there_are_cannot_be_had(tmp_path: Path) -> None:
    """5 instances of 5 categories from 18 x 9 directions in 6 lightings are 24,300."""
    with pytest.raises(DatasetError, match=r"= 24301 requested, but toys \(stand-in\) has 24300 training images"):
        toys_dataset(tmp_path, train=24_281)


@pytest.mark.parametrize("canvas", [28, 47])
def test_a_canvas_smaller_than_the_images_is_refused_before_anything_is_rendered(tmp_path: Path, canvas: int) -> None:
    with pytest.raises(DatasetError) as caught:
        toys_dataset(tmp_path, canvas=canvas, train=20_000)
    assert str(caught.value) == (
        f"datasets.toys: canvas {canvas} is too small for the images of toys (stand-in), which have 48x48 pixels: "
        "set 48 or more"
    )


def norb_info(instances: tuple[int, ...], count: int) -> np.ndarray:
    """Instance, elevation, azimuth, lighting, as the files have them."""
    columns = (RANDOM.choice(instances, count), *(RANDOM.integers(0, most, count) for most in (9, 18, 6)))
    return np.stack(columns, axis=1) * [1, 1, 2, 1]


def write_smallnorb48(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """The smaller copy, smaller still."""
    folder.mkdir()
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
    parts = write_smallnorb48(tmp_path / "raw")
    built = build_dataset("norb", params("smallnorb48", canvas=48), tmp_path / "raw")
    assert built.label == "smallNORB (JPEG-derived)"
    assert built.classes == ("animal", "human", "airplane", "truck", "car")
    np.testing.assert_array_equal(built.images, np.concatenate([parts[part]["images"] for part in parts]))
    np.testing.assert_array_equal(built.labels, np.concatenate([parts[part]["category"] for part in parts]))
    assert set(built.split["test"]) <= set(range(TRAIN, TRAIN + TEST))
    for factor in ("azimuth", "elevation", "lighting"):
        assert (built.factors[factor][:TRAIN] == -1).all()
        assert (built.factors[factor][TRAIN:] >= 0).all()
    np.testing.assert_array_equal(built.factors["azimuth"][TRAIN:], 10 * parts["test"]["azimuth"].astype(int))
    with pytest.raises(ViewpointError, match="60 of 80 images"):
        split_viewpoints(built.factors, "azimuth")


def test_the_posed_smallnorb_is_the_test_part_split_by_instance(tmp_path: Path) -> None:
    """Instances 0, 1, 2 train and 3, 5 test; nothing is read but the file of the test part."""
    test = write_smallnorb48(tmp_path / "raw")["test"]
    (tmp_path / "raw" / "train.npz").unlink()
    is_test = np.isin(test["instance"], (3, 5))
    sizes = {"train": int((~is_test).sum()) - 2, "validation": 2, "test": int(is_test.sum())}
    built = build_dataset("posed", params("smallnorb48-posed", canvas=48, **sizes), tmp_path / "raw")
    assert built.label == "smallNORB test part by instance (JPEG-derived)"
    order = np.concatenate([np.flatnonzero(~is_test), np.flatnonzero(is_test)])
    np.testing.assert_array_equal(built.images, test["images"][order])
    np.testing.assert_array_equal(built.labels, test["category"][order])
    np.testing.assert_array_equal(built.factors["elevation"], 30 + 5 * test["elevation"][order].astype(int))
    for part, allowed in (("train", {0, 1, 2}), ("validation", {0, 1, 2}), ("test", {3, 5})):
        assert set(built.factors["instance"][built.split[part]].tolist()) <= allowed
    assert split_viewpoints(built.factors, "elevation").familiar.any()


def write_norb_matrix(path: Path, array: np.ndarray) -> None:
    magic = 0x1E3D4C55 if array.dtype == np.uint8 else 0x1E3D4C54
    shape = [*array.shape, 1, 1][: max(3, array.ndim)]
    path.write_bytes(gzip.compress(struct.pack(f"<{2 + len(shape)}I", magic, array.ndim, *shape) + array.tobytes(), 1))


def test_the_official_smallnorb_is_halved_and_has_all_its_factors(tmp_path: Path) -> None:
    values = []
    parts = (("46789x9x18x6x2x96x96-training", (4, 6), 6), ("01235x9x18x6x2x96x96-testing", (0, 5), 4))
    for part, instances, count in parts:
        small = RANDOM.integers(0, 256, (count, 2, 48, 48), np.uint8)
        category, info = RANDOM.integers(0, 5, count), norb_info(instances, count)
        arrays = {"dat": small.repeat(2, axis=2).repeat(2, axis=3), "cat": category, "info": info}
        for kind, array in arrays.items():
            whole = array if kind == "dat" else array.astype(np.int32)
            write_norb_matrix(tmp_path / f"smallnorb-5x{part}-{kind}.mat.gz", whole)
        values.append((small, category, info))
    images, labels, info = (np.concatenate(columns) for columns in zip(*values, strict=True))
    sizes = {"canvas": 48, "train": 4, "validation": 2, "test": 4}
    built = build_dataset("norb", params("smallnorb", **sizes), tmp_path)
    assert built.label == "smallNORB"
    np.testing.assert_array_equal(built.images, images)
    np.testing.assert_array_equal(built.labels, labels)
    scaled = info * [1, 5, 10, 1] + [0, 30, 0, 0]
    for name, expected in zip(("instance", "elevation", "azimuth", "lighting"), scaled.T, strict=True):
        np.testing.assert_array_equal(built.factors[name], expected)
    assert set(built.split["test"]) == set(range(6, 10))


def test_cifar10_has_its_last_images_for_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = RANDOM.integers(0, 256, (30, 3, 32, 32), np.uint8), RANDOM.integers(0, 10, 30)
    monkeypatch.setattr(cifar, "read_cifar10", lambda path: (images, labels))
    monkeypatch.setattr(cifar, "TEST", 10)
    sizes = {"canvas": 32, "train": 15, "validation": 5, "test": 10}
    built = build_dataset("cifar", params("cifar10", **sizes), tmp_path)
    assert (built.label, built.classes[9], built.factors) == ("CIFAR-10", "truck", {})
    np.testing.assert_array_equal(built.images, images)
    assert set(built.split["test"]) == set(range(20, 30))
    monkeypatch.setattr(cifar, "TEST", len(images))
    with pytest.raises(DatasetError, match=rf"cifar-10-python\.tar\.gz has {len(images)} images; the last"):
        build_dataset("cifar", params("cifar10", **sizes), tmp_path)
    monkeypatch.setattr(cifar, "TEST", 10)
    padded = build_dataset("cifar", params("cifar10", **{**sizes, "canvas": 36}), tmp_path)
    assert padded.label == "CIFAR-10, 36x36"
    with pytest.raises(DatasetError, match="canvas 28 is too small for the images of CIFAR-10, which have 32x32"):
        build_dataset("cifar", params("cifar10", **{**sizes, "canvas": 28}), tmp_path)
