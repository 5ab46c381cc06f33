"""Training images that validate by what they show: parts that share none, and refusals that name the setting."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.data.datasets import Dataset
from pipeline.data.holdout import KNOWN, hold_out, watch_tests
from pipeline.data.published import TRAIN_INSTANCES, build_dataset
from pipeline.data.settings import DatasetParams, HoldoutParams
from pipeline.errors import UserError


@pytest.fixture(scope="module")
def toys() -> Dataset:
    sizes = {"canvas": 48, "train": 100, "validation": 20, "test": 30, "split_seed": 0}
    return build_dataset("toys", DatasetParams.model_validate({"source": "toys", **sizes}), Path("nowhere"))


def holdout(**changes: Any) -> HoldoutParams:
    return HoldoutParams.model_validate({"factor": "instance", "value": 4, "known_share": 0.1, **changes})


def as_set(images: np.ndarray) -> set[bytes]:
    return {image.tobytes() for image in images}


def test_images_of_the_instance_validate_and_parts_share_no_image_and_leave_none_out(toys: Dataset) -> None:
    value = TRAIN_INSTANCES[2]
    found, watched = hold_out(toys, holdout(value=value))
    instance = toys.factors["instance"]
    assert set(instance[found.split["validation"]]) == {value}
    assert set(instance[found.split["train"]]) == set(TRAIN_INSTANCES) - {value}
    assert set(found.part("validation")[1]) == set(range(5)), "of every category"
    parts = [as_set(part[0]) for part in (found.part("train"), found.part("validation"), watched[KNOWN])]
    assert set.union(*parts) == as_set(toys.part("train")[0]) | as_set(toys.part("validation")[0])
    assert sum(map(len, parts)) == 120
    assert len(parts[2]) == round(0.1 * (120 - len(parts[1])))
    assert np.array_equal(found.split["test"], toys.split["test"])
    label = {image.tobytes(): label for image, label in zip(toys.images, toys.labels, strict=True)}
    assert all(label[image.tobytes()] == own for image, own in zip(*watched[KNOWN], strict=True))


def test_known_images_are_a_fair_sample_drawn_alike_every_time(toys: Dataset) -> None:
    (first, _), (again, _) = (hold_out(toys, holdout(known_share=0.5))[1][KNOWN] for _ in range(2))
    assert np.array_equal(first, again)
    few = hold_out(toys, holdout(known_share=0.5))[1][KNOWN][1]
    assert len(set(few)) == 5
    # Also of a data set that is in its published order: not all from its beginning.
    ordered = replace(toys, split={**toys.split, "train": np.sort(toys.split["train"])})
    kept = hold_out(ordered, holdout(known_share=0.5))[0].split["train"]
    assert np.median(kept) == pytest.approx(np.median(ordered.split["train"]), abs=25)


def test_watched_images_are_of_the_test_part_and_none_twice(toys: Dataset) -> None:
    images, labels = watch_tests(toys, 10)["test"]
    assert len(as_set(images)) == len(labels) == 10
    found = {image.tobytes(): label for image, label in zip(*toys.part("test"), strict=True)}
    assert [found[image.tobytes()] for image in images] == list(labels)
    assert len(watch_tests(toys, 1000)["test"][1]) == 30
    assert watch_tests(toys, 0) == {}


def test_what_cannot_be_held_out_is_refused_by_name(toys: Dataset) -> None:
    partly = toys.factors["lighting"].copy()
    partly[toys.split["train"][:7]] = -1
    all_four = np.full(len(toys.labels), 4)
    for factors, settings, named in (
        ({}, {}, "holdout.factor: "),
        ({"lighting": partly}, {"factor": "lighting"}, "holdout.factor: the lighting is unknown of 7 of 120"),
        (toys.factors, {"value": 3}, "holdout.value: "),
        ({"instance": all_four}, {}, "holdout: "),
        (toys.factors, {"known_share": 0.999}, "holdout: "),
    ):
        with pytest.raises(UserError, match=f"^{named}"):
            hold_out(replace(toys, factors=factors), holdout(**settings))
