"""Familiar and novel viewpoints, against document 004, section 5.1."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data.viewpoints import STEPS, ViewpointError, is_familiar, neighbours

AZIMUTHS = np.arange(0, 360, 20)
ELEVATIONS = np.arange(30, 75, 5)
FACTORS = {
    name: grid.ravel() for name, grid in zip(("azimuth", "elevation"), np.meshgrid(AZIMUTHS, ELEVATIONS), strict=True)
}


def test_a_third_of_the_azimuths_is_familiar() -> None:
    """'azimuths of (300, 320, 340, 0, 20, 40)' to train on, 'azimuths from 60 to 280' to test on."""
    found = is_familiar(FACTORS, "azimuth")
    assert set(FACTORS["azimuth"][found]) == {300, 320, 340, 0, 20, 40}
    assert set(FACTORS["azimuth"][~found]) == {60, 80, 100, 120, 140, 160, 180, 200, 220, 240, 260, 280}
    assert found.dtype == bool
    assert 3 * found.sum() == len(FACTORS["azimuth"])


def test_the_three_smallest_of_nine_elevations_are_familiar() -> None:
    """'the 3 smaller elevations' to train on, 'the 6 larger elevations' to test on."""
    found = is_familiar(FACTORS, "elevation")
    assert set(FACTORS["elevation"][found]) == {30, 35, 40}
    assert set(FACTORS["elevation"][~found]) == {45, 50, 55, 60, 65, 70}


@pytest.mark.parametrize(("by", "wrong"), [("azimuth", -1), ("elevation", -1), ("azimuth", 10), ("elevation", 8)])
def test_images_of_unknown_or_foreign_viewpoints_are_refused(by: str, wrong: int) -> None:
    factors = {**FACTORS, by: np.where(np.arange(len(FACTORS[by])) < 2, wrong, FACTORS[by])}
    with pytest.raises(ViewpointError, match=rf"2 of 162 images cannot be split by {by}: they have {wrong} .*posed"):
        is_familiar(factors, by)  # type: ignore[arg-type]


def test_images_without_viewpoints_are_refused() -> None:
    with pytest.raises(ViewpointError, match="cannot be split by azimuth: their known factors are: version"):
        is_familiar({"version": np.arange(3)}, "azimuth")


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
