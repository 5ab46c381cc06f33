"""Encoders whose poses turn with the image, stay, or belong to absent capsules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from pipeline.layers import poses
from pipeline.systems.generative.equivariance import read
from pipeline.systems.generative.evaluation import equivariance
from pipeline.systems.generative.model.distributions import Capsules

CPU = torch.device("cpu")
SIZE = 16
LOUD = 10.0
"""Log odds of a presence."""


def dots(count: int = 3) -> np.ndarray:
    """Images of one bright pixel each, in the upper half."""
    images = np.zeros((count, 1, SIZE, SIZE), np.uint8)
    for index in range(count):
        images[index, 0, 3 + index, 11 - 2 * index] = 255
    return images


def centroid(images: Tensor) -> Tensor:
    ticks = (torch.arange(SIZE) * 2 + 1) / SIZE - 1
    mass = images[:, 0] / images.sum((1, 2, 3))[:, None, None]
    return torch.stack([(mass.sum(1) * ticks).sum(1), (mass.sum(2) * ticks).sum(1)], dim=1)


class Encoder:
    """Two parts and two objects. The first of each has a frame that points at the dot, or, where it does not follow,
    a fixed one; the second has a fixed pose, and log odds of presence `second`.
    """

    def __init__(self, *, follows: bool, second: float = -LOUD) -> None:
        self.follows, self.second = follows, second
        self.temperature = 0.5

    def encode(self, images: Tensor) -> Capsules:
        v = centroid(images) if self.follows else torch.tensor([0.3, 0.6]).expand(len(images), 2)
        x, y = v.unbind(1)
        frame = torch.stack([x, -y, x, y, x, y], dim=1).unflatten(1, (2, 3))  # [v, Jv | v] commutes with rotations
        A = torch.stack([poses.to_offset(frame), torch.full((len(images), 6), 0.2)], dim=1)
        y1 = torch.tensor([LOUD, self.second]).expand(len(images), 2)
        return Capsules(y1, A, y1, A)


def measured(model: Any, angles: list[float], layer: str = "parts") -> pd.DataFrame:
    table = equivariance(model, dots(), angles, CPU)
    return table[table["layer"] == layer].set_index("angle")


@pytest.mark.parametrize("layer", ["parts", "objects"])
def test_poses_that_turn_with_the_image_deviate_by_nothing(layer: str) -> None:
    found = measured(Encoder(follows=True), [90.0, 180.0], layer)
    assert found[["deviation", "missed"]].max(axis=None) < 1e-3
    assert found["unfollowed"].min() > 0.1


def test_poses_that_stay_deviate_by_the_whole_way() -> None:
    """A rotation by theta moves a vector of length r by 2 r sin(theta / 2): here three of them, of r^2 = 0.45."""
    found = measured(Encoder(follows=False), [60.0, 180.0])
    np.testing.assert_allclose(found["deviation"], found["unfollowed"], rtol=1e-5)
    np.testing.assert_allclose(found["missed"], 1, rtol=1e-5)
    way = 2 * np.sqrt(0.45) * np.sin(np.deg2rad([30, 90]))
    np.testing.assert_allclose(found["deviation"], np.sqrt(3 * way**2 / 6), rtol=1e-4)


def test_absent_parts_do_not_count_and_present_ones_do() -> None:
    absent, present = (measured(Encoder(follows=True, second=y), [180.0]) for y in (-LOUD, LOUD))
    assert absent["deviation"].max() < 1e-3
    assert present["deviation"].min() > 0.5


def test_the_measures_of_equivariance_read_poses_with_their_presences() -> None:
    """At a temperature of 1/2, log odds of -1 are a presence of 1 / (1 + e^2)."""
    model: Any = Encoder(follows=True, second=-1.0)
    layers = read(model, torch.from_numpy(dots()).float() / 255)
    for name in ("parts", "objects"):
        expected = torch.tensor([1.0, 1 / (1 + math.exp(2.0))]).expand(3, 2)
        torch.testing.assert_close(layers[name].weights, expected)
    torch.testing.assert_close(layers["presences"].numbers[:, 0], layers["objects"].weights)
