"""Data sets: parts are fixed, share nothing and keep every pixel; the file is safe and always the same."""

from __future__ import annotations

import dataclasses
import errno
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import file_size_limit

from pipeline.data import toys
from pipeline.data.datasets import OWN_IMAGES, PARTS, Dataset, load_dataset, pixel_bytes, reading, save_dataset
from pipeline.data.published import build_dataset
from pipeline.data.settings import DatasetParams
from pipeline.errors import UserError

RANDOM = np.random.default_rng(0)
TRAIN, TEST = 60, 20


def params(**changes: Any) -> DatasetParams:
    values = {"source": "mine", "canvas": 28, "train": 30, "validation": 10, "test": 15, "split_seed": 0}
    return DatasetParams.model_validate({**values, **changes})


def written(folder: Path, test: int) -> tuple[Path, Dataset]:
    """The folder of own images as the stage before leaves it, the last `test` of 80 apart for testing; the images."""
    count = TRAIN + TEST
    split = {"train": np.arange(count - test), "validation": np.arange(0), "test": np.arange(count - test, count)}
    images = RANDOM.integers(0, 256, (count, 1, 28, 28), np.uint8)
    own = Dataset("mine", "mine", images, np.arange(count) % 2, {}, split, ("cat", "dog"))
    save_dataset(folder / OWN_IMAGES, own)
    return folder, own


@pytest.mark.parametrize("test", [TEST, 0])
@pytest.mark.parametrize("seed", [0, None])
def test_parts_share_no_image_and_smaller_ones_are_the_beginnings_of_larger_ones(
    tmp_path: Path, test: int, seed: int | None
) -> None:
    """Without a seed the published order is kept."""
    raw, own = written(tmp_path, test)

    def split(**changes: Any) -> dict[str, list[int]]:
        built = build_dataset("mine", params(**{"split_seed": seed, **changes}), raw)
        np.testing.assert_array_equal(built.images, own.images)
        return {part: indices.tolist() for part, indices in built.split.items()}

    large = split()
    assert split() == large
    assert len(set(large["train"] + large["validation"] + large["test"])) == 55
    assert split(train=7) == {**large, "train": large["train"][:7]}
    if seed is None:
        begin = TRAIN if test else 80 - 10 - 15
        last = range(80 - test - 10, 80 - test)
        assert large == {"train": [*range(30)], "validation": [*last], "test": [*range(begin, begin + 15)]}
    else:
        assert split(test=5)["test"] == large["test"][:5]
        other = split(split_seed=1)
        assert all(sorted(large[part]) != large[part] != other[part] for part in PARTS)


@pytest.mark.parametrize(
    ("test", "changes", "most"), [(TEST, {"train": 51}, 60), (TEST, {"test": 21}, 20), (0, {"train": 56}, 80)]
)
def test_too_many_images_are_refused_naming_what_there_is(
    tmp_path: Path, test: int, changes: dict[str, int], most: int
) -> None:
    raw, _ = written(tmp_path, test)
    build_dataset("mine", params(**{name: count - 1 for name, count in changes.items()}), raw)
    with pytest.raises(UserError, match=rf"datasets\.mine: .* at most {most}"):
        build_dataset("mine", params(**changes), raw)


def test_a_larger_canvas_keeps_the_pixels_in_its_middle_and_says_so(tmp_path: Path) -> None:
    raw, own = written(tmp_path, TEST)
    padded = build_dataset("m", params(canvas=41), raw)
    assert padded.images.shape[-2:] == (41, 41)
    np.testing.assert_array_equal(padded.images[..., 6:34, 6:34], own.images)
    assert padded.images.sum() == own.images.sum()
    assert padded.label == "mine, 41x41"


def test_a_class_without_training_images_is_named(tmp_path: Path) -> None:
    raw, own = written(tmp_path, 0)
    save_dataset(raw / OWN_IMAGES, dataclasses.replace(own, labels=np.zeros(80, np.int64)))
    with pytest.raises(UserError, match=r"datasets\.mine: no training image is of the class 'dog'"):
        build_dataset("mine", params(), raw)


def test_toys_of_the_test_part_are_others_than_those_of_training(tmp_path: Path) -> None:
    """The published split: instances 4, 6, 7, 8, 9 train, 0, 1, 2, 3, 5 test; drawn evenly from all there is."""
    sizes = {"canvas": 48, "train": 60, "validation": 20, "test": 40}
    built = build_dataset("toys", params(source="toys", **sizes), tmp_path / "nowhere")
    instances = {part: set(built.factors["instance"][built.split[part]].tolist()) for part in PARTS}
    assert instances == {"train": {4, 6, 7, 8, 9}, "validation": {4, 6, 7, 8, 9}, "test": {0, 1, 2, 3, 5}}
    assert set(built.labels.tolist()) == set(range(5))
    assert set(built.factors["azimuth"].tolist()) == set(range(0, 360, 20))
    assert set(built.factors["elevation"].tolist()) == set(range(30, 75, 5))
    assert set(built.factors["lighting"].tolist()) == set(range(6))
    assert (built.images.shape, built.images.dtype) == ((120, 2, 48, 48), np.uint8)
    angles = built.factors["azimuth"] // 20, built.factors["elevation"] // 5 - 6
    again = toys.render(built.labels, built.factors["instance"], *angles, built.factors["lighting"])
    np.testing.assert_array_equal(built.images, again)


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
    np.testing.assert_equal(vars(loaded), vars(saved))
    assert (loaded.images.dtype, loaded.labels.dtype) == (np.uint8, np.int64)


def test_equal_data_sets_give_equal_bytes_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = example()
    save_dataset(tmp_path / "a.npz", data)
    later = time.time() + 1e6
    monkeypatch.setattr(time, "time", lambda: later)
    shuffled = dataclasses.replace(data, factors=dict(reversed(data.factors.items())))
    save_dataset(tmp_path / "b.npz", shuffled)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_damaged_and_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    with pytest.raises(UserError, match=r"mine\.npz is missing: run the preprocess stage first"):
        load_dataset(path)
    save_dataset(path, example())
    assert pixel_bytes(path) == pytest.approx(example().images.nbytes, abs=200)
    arrays, whole = dict(np.load(path)), path.read_bytes()
    for name, value, told in (
        ("labels", np.array([object()] * 6), "allow_pickle"),
        ("format", np.array("capsules data set 999"), "it is no 'capsules data set 1'"),
    ):
        np.savez(path, **{**arrays, name: value}, allow_pickle=True)
        with pytest.raises(UserError, match=rf"mine\.npz .*{told}"):
            load_dataset(path)
    path.write_bytes(whole[:-100])
    assert pixel_bytes(path) == 0
    with pytest.raises(UserError, match=r"mine\.npz cannot be read"):
        load_dataset(path)


def test_a_file_without_permission_is_not_called_damaged() -> None:
    denied = r"^mine\.npz cannot be read: Permission denied$"
    with pytest.raises(UserError, match=denied), reading(Path("mine.npz"), "preprocess"):
        raise PermissionError(errno.EACCES, "Permission denied", "mine.npz")


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    save_dataset(path, example())
    before = path.read_bytes()
    with file_size_limit(50_000), pytest.raises(UserError, match=r"a\.npz"):
        save_dataset(path, example(images=RANDOM.integers(0, 256, (6, 2, 128, 128), np.uint8)))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
