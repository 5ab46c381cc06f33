"""Familiar and novel viewpoints, against document 004, section 5.1."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from pipeline.data.viewpoints import STEPS, is_familiar, neighbours
from pipeline.errors import UserError

VIEWPOINTS = np.meshgrid(np.arange(0, 360, 20), np.arange(30, 75, 5))
FACTORS = {name: grid.ravel() for name, grid in zip(("azimuth", "elevation"), VIEWPOINTS, strict=True)}


@pytest.mark.parametrize(
    ("by", "familiar", "novel"),
    [
        ("azimuth", {300, 320, 340, 0, 20, 40}, set(range(60, 281, 20))),
        ("elevation", {30, 35, 40}, {45, 50, 55, 60, 65, 70}),
    ],
)
def test_a_third_is_familiar(by: Literal["azimuth", "elevation"], familiar: set[int], novel: set[int]) -> None:
    """'azimuths of (300, 320, 340, 0, 20, 40)', 'the 3 smaller elevations' to train on, the others to test on."""
    found = is_familiar(FACTORS[by], by)
    assert set(FACTORS[by][found]) == familiar
    assert set(FACTORS[by][~found]) == novel
    for wrong in (-1, 10):
        degrees = np.where(np.arange(len(FACTORS[by])) < 2, wrong, FACTORS[by])
        with pytest.raises(UserError, match=rf"2 of 162 images cannot be split by {by}: they have {wrong} .*toys"):
            is_familiar(degrees, by)


@pytest.mark.parametrize(("by", "pairs"), [("azimuth", 18 * 9), ("elevation", 18 * 8)])
def test_neighbours_differ_by_one_step_of_one_factor(by: str, pairs: int) -> None:
    """All viewpoints of two toys of one class, which have the same number in another class, in a random order."""
    count = len(FACTORS["azimuth"])
    factors = {name: np.tile(values, 3) for name, values in FACTORS.items()}
    factors |= {"instance": np.repeat([4, 6, 4], count), "lighting": np.zeros(3 * count, int)}
    labels = np.repeat([0, 0, 1], count)
    order = np.random.default_rng(0).permutation(3 * count)
    labels, factors = labels[order], {name: values[order] for name, values in factors.items()}
    found = neighbours(labels, factors, by)
    assert len(found) == 3 * pairs
    before, after = found.T
    assert (labels[before] == labels[after]).all()
    for name, values in factors.items():
        change = values[after].astype(int) - values[before]
        assert set((change % 360 if name == "azimuth" else change).tolist()) == {STEPS[by] if name == by else 0}, name


def test_images_of_unknown_viewpoints_have_no_neighbours() -> None:
    unknown = {name: np.full(5, -1) for name in ("azimuth", "elevation", "instance", "lighting")}
    assert neighbours(np.zeros(5, int), unknown, "azimuth").shape == (0, 2)
    assert neighbours(np.zeros(5, int), {}, "azimuth").shape == (0, 2)
