"""Planted models under the measures of equivariance: the measure must tell which of them follow the image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small import EQUIVARIANCE, small_run
from test_equivariance_measures import blobs, seeded
from torch import Tensor

from pipeline.data.datasets import Dataset
from pipeline.layers import poses
from pipeline.probes.equivariance import errors
from pipeline.probes.equivariance.actions import FromTheLeft, Layer, Poses, plain
from pipeline.probes.equivariance.errors_by_layer import Images, Steps, outcome, started
from pipeline.probes.equivariance.transformations import View
from pipeline.probes.settings import EquivarianceParams
from pipeline.studies import equivariance
from pipeline.systems import build_model

SIZE = 32
MODEL = build_model(small_run("cnn"), 12)
"""Any: layers are planted, and read off the images alone."""
_SETTINGS: dict[str, Any] = {"images": 30, "fit_images": 60, "derivative_images": 30, "rotations": [30.0, 180.0]}
SETTINGS = EquivarianceParams.model_validate(EQUIVARIANCE | _SETTINGS | {"run": "planted", "penalties": [1e-6]})


def landmarks(count: int, seed: int) -> Tensor:
    """Images of three smooth blobs, one in each channel, near the corners of a triangle, `[count, 3, SIZE, SIZE]`."""
    corners = torch.tensor([[0.35, 0.1], [-0.1, -0.35], [-0.25, 0.2]])
    return blobs(count, 3, SIZE, 0.12, corners + 0.3 * torch.rand(count, 3, 2, generator=seeded(seed)) - 0.15)


def centroids(images: Tensor) -> Tensor:
    """Of each channel, `[B, 3, 2]`."""
    size = images.shape[-1]
    ticks = ((torch.arange(size) * 2 + 1) / size - 1).to(images)
    mass = images.sum((-1, -2))
    return torch.stack([images.sum(-2) @ ticks / mass, images.sum(-1) @ ticks / mass], -1)


def frame(images: Tensor) -> Tensor:
    """The pose whose frame has its corners at the landmarks: every affine map of the image multiplies it from the left.

    `[B, 1, 6]`.
    """
    a, b, c = centroids(images).unbind(1)
    return poses.to_offset(torch.stack([a - c, b - c, c], -1)).unsqueeze(1)


def measured(read: Callable[[Tensor], dict[str, Layer]], crop: int | None = None) -> dict[str, Any]:
    images = Images(landmarks(60, 0), landmarks(30, 1), torch.arange(30) % 3, View(crop))
    return outcome([MODEL], MODEL, lambda model: read, images, SETTINGS).numbers


def each(numbers: dict[str, Any], layer: str, measure: str) -> dict[str, float]:
    """Errors by family and magnitude."""
    families = numbers["relative_error"]["trained"][layer][measure]
    return {f"{family} {name}": found["mean"] for family, of in families.items() for name, found in of.items()}


def area(images: Tensor) -> Tensor:
    """Six numbers that turns, shifts and shears leave as they are: twice the triangle's area, `[B, 1, 6]`."""
    a, b, c = centroids(images).unbind(1)
    (x, y), (u, v) = (a - c).unbind(-1), (b - c).unbind(-1)
    return (x * v - y * u)[:, None, None].expand(-1, 1, 6)


@pytest.fixture(scope="module")
def planted() -> dict[str, Any]:
    """Poses that follow, those that stay, and those of no image."""

    def read(images: Tensor) -> dict[str, Layer]:
        A = frame(images)
        return {
            "follow": plain(A, Poses()),
            "stay": plain(area(images), Poses(), False),
            "constant": plain(torch.ones_like(A), Poses()),
        }

    return measured(read)


def test_poses_that_follow_have_no_error_whatever_the_map(planted: dict[str, Any]) -> None:
    found = each(planted, "follow", "own")
    assert found.keys() == {"rotation 30", "rotation 180", "shift 1", "scale 1.2", "shear 0.2"}
    assert max(found.values()) < 0.02
    assert min(each(planted, "follow", "invariance").values()) > 0.2
    assert max(each(planted, "follow", "resampling").values()) < 0.02, "there and back, they are where they were"
    derivatives = planted["derivative"]["trained"]["follow"]
    for family, own in derivatives["own"].items():
        assert own["mean"] < 0.02 * derivatives["invariance"][family]["mean"], family
    assert max(each(planted, "follow", "fitted").values()) < 0.05, "their action is linear: nothing is lost"
    assert derivatives["fitted"]["rotation"]["mean"] < 0.05 * derivatives["invariance"]["rotation"]["mean"]


def test_poses_that_follow_have_no_error_in_a_crop() -> None:
    """A shift by one pixel is a larger share of a crop than of the whole image."""
    numbers = measured(lambda images: {"follow": plain(frame(images), Poses(), False)}, crop=28)
    assert each(numbers, "follow", "own")["shift 1"] < 0.015
    own, unchanged = (numbers["derivative"]["trained"]["follow"][name]["shift"] for name in ("own", "invariance"))
    assert own["mean"] < 0.05 * unchanged["mean"]


def test_a_constant_is_no_equivariance_and_no_invariance(planted: dict[str, Any]) -> None:
    for kind in ("relative_error", "derivative"):
        assert "constant" not in planted[kind]["trained"]
    assert planted["layers"]["trained"]["constant"]["variation"]["mean"] == 0
    assert planted["layers"]["trained"]["follow"]["variation"]["mean"] > 0.05


def test_poses_that_stay_are_invariant_and_not_equivariant(planted: dict[str, Any]) -> None:
    stay = each(planted, "stay", "invariance")
    assert max(stay[name] for name in ("rotation 30", "rotation 180", "shift 1", "shear 0.2")) < 0.02
    assert min(each(planted, "stay", "own").values()) > 0.2


def test_switching_off_what_does_not_follow_gains_little() -> None:
    """A second capsule, whose pose stays, is absent from images that are upside down."""

    def read(images: Tensor, absent: float) -> dict[str, Layer]:
        upright = centroids(images)[:, :1, 0] > 0
        presence = torch.where(upright, 1.0, absent)
        weights = torch.cat([torch.ones_like(presence), presence], 1)
        return {"poses": Layer(torch.cat([frame(images), area(images)], 1), weights, Poses(), False)}

    always, switched = (
        each(measured(lambda images, absent=absent: read(images, absent)), "poses", "own") for absent in (1.0, 0.0)
    )
    assert always["rotation 180"] > 1
    assert switched["rotation 180"] > 0.6 * always["rotation 180"]
    assert switched["rotation 30"] == pytest.approx(always["rotation 30"], rel=0.05)


@pytest.mark.parametrize("sign", [1, -1], ids=["few upright", "few upside down"])
def test_a_map_is_fitted_to_capsules_that_are_present_before_or_after(sign: int) -> None:
    """The capsule is present in all images one way up, and in few the other way up. These are fewer than an affine map
    of a pose needs: fitted to them alone, it could not predict other images.
    """

    def read(images: Tensor) -> dict[str, Layer]:
        x = sign * centroids(images)[:, :1, 0]  # positive in upright images, negative upside down; or the reverse
        presence = ((x < 0) | (x > 0.46)).to(x)
        return {"poses": Layer(frame(images), presence, None)}

    upright = landmarks(60, 0)
    few = upright if sign > 0 else upright.flip(-1, -2)
    assert 1 < read(few)["poses"].weights.sum() < 7
    assert each(measured(read), "poses", "fitted")["rotation 180"] < 0.05


def test_one_matrix_for_all_toys_follows_a_step_of_the_viewpoint() -> None:
    """Planted poses are an image's first pixels, to which a step does the same from the left: theory does not say what,
    so it is fitted to some pairs. It says nothing of how affine poses follow a viewpoint.
    """
    generator = seeded(0)
    T = torch.tensor([[0.6, 0.5], [-0.4, 0.7]])

    def pairs(count: int) -> Tensor:
        before = torch.rand(count, 1, SIZE, SIZE, generator=generator)
        after = torch.rand(count, 1, SIZE, SIZE, generator=generator)
        after[..., :2, :2] = T @ before[..., :2, :2]
        return torch.stack([before, after])

    def read(images: Tensor) -> dict[str, Layer]:
        numbers = images[:, :, :2, :2].flatten(2)
        return {"poses": plain(numbers, FromTheLeft(2)), "affine": plain(frame(images.expand(-1, 3, -1, -1)), Poses())}

    steps = {"azimuth": Steps(20, pairs(40), pairs(25), torch.arange(25) % 5)}
    images = Images(pairs(60)[0], pairs(30)[0], torch.arange(30) % 5, View(None), steps)
    numbers = outcome([MODEL], MODEL, lambda model: read, images, SETTINGS).numbers
    for kind in ("relative_error", "within_classes"):
        found = {measure: of.get("azimuth") for measure, of in numbers[kind]["trained"]["poses"].items()}
        assert found["own"]["20"]["mean"] < 1e-5
        assert found["fitted"]["20"]["mean"] < 1e-3
        assert found["invariance"]["20"]["mean"] > 0.5
        assert "azimuth" not in numbers[kind]["trained"].get("affine", {}).get("own", {})
    assert numbers["images"]["azimuth"] == {"test": 25, "fit": 40}


def test_numbers_that_tell_classes_only_gain_nothing_within_classes() -> None:
    generator = seeded(0)
    classes = torch.arange(300) % 3
    before, after = (100 * classes[:, None, None] + torch.randn(300, 1, 2, generator=generator) for _ in range(2))
    weights = torch.rand(300, 1, generator=generator)
    off = errors.squared(after - before, weights)
    overall, within = (errors.deviations(before, weights, of) for of in (None, classes))
    assert errors.relative(off, overall, 10, 0)[0] < 0.05
    assert errors.relative(off, within, 10, 0)[0] == pytest.approx(2**0.5, rel=0.1)
    for label in range(3):
        own = classes == label
        alone = errors.deviations(before[own], weights[own])
        torch.testing.assert_close(within[own], alone, rtol=1e-9, atol=1e-9)


def test_an_untrained_network_is_started_as_training_would() -> None:
    """Betas of matrix capsules are balanced on images before the first epoch."""
    run = small_run("matrix_capsules")
    model = build_model(run, 12)
    before = model.state_dict()["routed.0.beta_u"].clone()
    started(model, torch.rand(16, 1, 10, 10))
    assert not model.training
    assert not torch.equal(before, model.state_dict()["routed.0.beta_u"])


def test_errors_are_relative_to_how_numbers_vary_over_all_images_or_within_classes() -> None:
    """The mean b of the left half, 16 columns, of images of one grey. A shift by one pixel takes away one column, or
    b / 16. In the derivative it is half of that, because to the left nothing is taken away.
    """
    grey = torch.tensor([0.1, 0.2, 0.3, 0.6, 0.7, 0.8])
    pictures = grey[:, None, None, None].expand(-1, 1, SIZE, SIZE)
    images = Images(pictures, pictures, torch.tensor([0, 0, 0, 1, 1, 1]), View(None))

    def read(seen: Tensor) -> dict[str, Layer]:
        return {"left": plain(seen[..., : SIZE // 2].mean((1, 2, 3)).view(-1, 1, 1), None, False)}

    numbers = outcome([MODEL], MODEL, lambda model: read, images, SETTINGS).numbers
    total, within = ((grey - centre).square().sum() for centre in (0.45, torch.tensor([0.2] * 3 + [0.7] * 3)))
    for kind, variance in (("relative_error", total), ("within_classes", within)):
        missed = (grey / 16).square().sum() / (variance * (1 + (15 / 16) ** 2) / 2)
        found = numbers[kind]["trained"]["left"]["invariance"]["shift"]["1"]["mean"]
        assert found == pytest.approx(float(missed.sqrt()), rel=1e-4)
    found = numbers["derivative"]["trained"]["left"]["invariance"]["shift"]["mean"]
    assert found == pytest.approx(float(((grey / 32).square().sum() / total).sqrt()), rel=1e-4)


def test_directions_count_by_their_variance() -> None:
    """Sums of squares of 8 and 2 along two directions; with fourfold weights along the second, both are 8."""
    values, ones = torch.tensor([[2.0, 0.0], [-2, 0], [0, 1], [0, -1]]).unsqueeze(1), torch.ones(4, 1)
    assert errors.dimensions(values, ones) == pytest.approx((8 + 2) ** 2 / (8**2 + 2**2))
    assert errors.dimensions(values, torch.tensor([[1.0], [1], [4], [4]])) == pytest.approx(2)


def test_maps_of_viewpoints_are_fitted_to_other_toys_than_they_are_tested_on() -> None:
    toys = np.repeat(np.arange(4), 18)
    factors = {"instance": toys, "azimuth": np.tile(np.arange(0, 360, 20), 4)}
    factors |= {name: np.full(72, 30) for name in ("elevation", "lighting")}
    split = {part: np.arange(72) for part in ("train", "validation", "test")}
    nothing = np.zeros((72, 1, 1, 1), np.uint8)
    dataset = Dataset("toys", "toys", nothing, np.zeros(72, np.int64), factors, split)
    fit, test = equivariance._steps(dataset, SETTINGS)["azimuth"]
    assert set(toys[fit].flat) == {0, 1}
    assert set(toys[test].flat) == {2, 3}
