"""Measures of routing iterations, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.classification.routing import DEAD, Iterations, RoutedLayer, moved, outcome, routed_layer, vote_spread


def test_spread_is_the_distance_to_the_mean_of_what_is_assigned() -> None:
    votes = torch.tensor([[[[0.0, 0.0], [4.0, 0.0], [9.0, 9.0]]]])
    # Mean (1, 0): squared distances 1 and 9, of which the first counts three times.
    assert vote_spread(votes, torch.tensor([[[0.3, 0.1, 0.0]]])).item() == pytest.approx(3**0.5)
    assert vote_spread(votes, torch.tensor([[[1.0, 0.0, 0.0]]])).item() == pytest.approx(0, abs=1e-6)
    assert vote_spread(votes, torch.zeros(1, 1, 3)).item() == 0


def test_what_moved_counts_parts_by_their_activation() -> None:
    """Of two parts, the first gives a quarter of itself to the other class, and is three times as active."""
    shares = torch.tensor([[[[[0.5, 0.5]], [[0.5, 0.5]]]], [[[[0.75, 0.5]], [[0.25, 0.5]]]]])  # (2, 1, 2, 1, 2)
    assert moved(shares, torch.tensor([[[0.9, 0.3]]])) == pytest.approx([0.25 * 0.75])


def follow(pixels: Tensor) -> Iterations:
    """Two classes, two iterations, one part: it goes to the class that the brightness says, or not."""
    bright = (pixels.mean((1, 2, 3)) > 0.5).float()
    B = len(pixels)
    shares = torch.stack([torch.full((B, 2), 0.5), torch.stack([1 - bright, bright], 1)], 1)
    activations = torch.stack([torch.tensor([0.2, 0.3]).expand(B, 2), 0.1 + 0.8 * shares[:, 1]], 1)
    return Iterations(torch.ones(B, 1, 1), shares[..., None, None], activations, 1 - shares)


def layers(pixels: Tensor) -> list[RoutedLayer]:
    """One layer of four types: silent, never more than dead, always on, and as bright as the image."""
    bright = pixels.mean((1, 2, 3))
    same = torch.ones_like(bright)
    activations = torch.stack([0 * same, DEAD * same, 0.8 * same, bright], 1)
    return [RoutedLayer(0.25 * bright, 1 - 0.5 * bright, activations)]


def test_entropy_of_divisions_by_hand() -> None:
    """Four parents: all to one; evenly; half to each of two; and shares that do not sum to 1, as if they did."""
    shares = torch.tensor([[1.0, 0, 0, 0], [0.25] * 4, [0.5, 0.5, 0, 0], [2.0, 2.0, 0, 0]]).double()
    expected = [0, 1, 0.5, 0.5]
    for row, entropy in zip(shares, expected, strict=True):
        found = routed_layer(row.view(1, 4, 1), torch.ones(1, 1), torch.ones(1, 4), lambda values: values.sum(1))
        assert (found.entropy.item(), found.active.item()) == (pytest.approx(entropy), 1)
    active = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).double()
    together = routed_layer(shares.T.unsqueeze(0), active, torch.ones(1, 4), lambda values: values.sum(1))
    assert together.entropy.item() == pytest.approx(0.2 * 1 + (0.3 + 0.4) * 0.5)
    assert together.active.item() == pytest.approx(1)
    alone = routed_layer(torch.ones(1, 1, 4), active, torch.ones(1, 1), lambda values: values.sum(1))
    assert (alone.entropy.item(), alone.active.item()) == (0, 0), "one parent is no choice"


def test_numbers_are_those_of_each_iteration_and_layer_over_all_images() -> None:
    pixels = torch.zeros(40, 1, 4, 4)  # more than one batch
    pixels[10:] = 1
    labels = np.ones(40, np.int64)
    labels[:5] = 0
    found = outcome([follow, follow], [layers, layers], 2, pixels, labels)
    numbers = found.numbers
    assert (numbers["used"], numbers["images"]) == (2, 40)
    # In iteration 1 class 1 is always more active; in iteration 2 the five dark images of class 1 are misread.
    assert {step: each["mean"] for step, each in numbers["test_error"].items()} == pytest.approx(
        {"1": 5 / 40, "2": 5 / 40}
    )
    assert list(numbers["moved"]) == ["2"]
    assert numbers["moved"]["2"] == {"mean": pytest.approx(0.5), "sd": 0.0, "n": 2}
    assert numbers["activation_right"]["1"]["mean"] == pytest.approx((5 * 0.2 + 35 * 0.3) / 40)
    assert numbers["activation_right"]["2"]["mean"] == pytest.approx((35 * 0.9 + 5 * 0.1) / 40)
    assert numbers["activation_others"]["2"]["mean"] == pytest.approx((35 * 0.1 + 5 * 0.9) / 40)
    assert numbers["spread_right"]["2"]["mean"] == pytest.approx(5 / 40)
    assert len(found.table) == 2 * 2
    (layer,) = numbers["layers"].values()
    assert layer["entropy"] == {"mean": pytest.approx(30 * 0.25 / (10 + 30 * 0.5)), "sd": 0.0, "n": 2}
    means = {"dead": 0.5, "range": (0.25 * 0.75) ** 0.5 / 4, "types": 4}
    assert {name: layer[name]["mean"] for name in means} == pytest.approx(means)
    assert {"test_error.2", "layers.1.entropy"} <= set(found.headline)


def test_shown_are_the_first_image_that_is_recognised_and_the_first_that_is_not() -> None:
    pixels = torch.zeros(4, 2, 3, 3)
    pixels[2:] = 1
    pixels[:, 1] = pixels[:, 0]
    pixels[0, 0, 0, 0] = 0.2
    found = outcome([follow], [layers], 2, pixels, np.array([1, 0, 0, 1])).arrays
    assert found["labels"].tolist() == [0, 1]
    assert found["images"].shape == (2, 3, 3), "the first of both views"
    assert found["images"][1, 0, 0] == 51
    assert found["shares"].shape == (2, 2, 2, 1, 1)
    assert found["activations"][1, 1].tolist() == pytest.approx([0.9, 0.1])
    found = outcome([follow], [layers], 2, pixels, np.array([0, 0, 1, 1])).arrays
    assert found["labels"].tolist() == [0], "none is misread"
    found = outcome([follow], [layers], 1, pixels, np.array([0, 0, 1, 1])).arrays
    assert found["labels"].tolist() == [1, 0], "a network of one iteration reads each image as class 1"
