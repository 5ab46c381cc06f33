"""Consistency of part use on cases made by hand, and the part at a pixel by brute force; encoders whose poses turn with
the image, stay, or belong to absent capsules.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from small import EVALUATE, FAILURES, small_run
from torch import Tensor

from pipeline.data import warps
from pipeline.data.datasets import Dataset
from pipeline.layers import poses
from pipeline.learning.model import EvaluationInputs
from pipeline.params import Params
from pipeline.results.outcome import Outcome
from pipeline.systems.generative.equivariance import read
from pipeline.systems.generative.evaluation import equivariance, evaluate, evaluation
from pipeline.systems.generative.evaluation.consistency import INK, NO_INK, consistency, part_use, responsible_parts
from pipeline.systems.generative.model.distributions import Capsules, join
from pipeline.systems.generative.model.generative_model import GenerativeModel

CPU = torch.device("cpu")
CLASSES = np.repeat(np.arange(4), 10)


def alike() -> np.ndarray:
    """Images `[40, 8, 8]` in which a class has one arrangement of five parts, each image with ink of its own."""
    random = np.random.default_rng(0)
    arrangements = random.integers(0, 5, (4, 8, 8))
    return np.where(random.random((40, 8, 8)) < 0.6, arrangements[CLASSES], NO_INK)


def at_random() -> np.ndarray:
    random = np.random.default_rng(1)
    return np.where(alike() == NO_INK, NO_INK, random.integers(0, 5, (40, 8, 8)))


def test_it_is_worked_out_on_a_case_by_hand() -> None:
    """Three images at two pixels: 1 of 3 pairs and 1 of 1 agree; of five pixels with ink two are part 0's."""
    parts = np.array([[[0, 1]], [[0, 1]], [[1, NO_INK]]])
    chance = (2 / 5) ** 2 + (3 / 5) ** 2
    assert consistency(parts, np.zeros(3, int)) == pytest.approx((2 / 4 - chance) / (1 - chance))


def test_alike_is_one_random_is_zero_and_names_order_and_places_play_no_role() -> None:
    """About 4,000 pairs and pixels agree by chance with an sd of 0.006."""
    assert consistency(alike(), CLASSES) == pytest.approx(1)
    assert abs(consistency(at_random(), CLASSES)) < 0.03
    parts = np.where((np.arange(40) % 3 > 0)[:, None, None], alike(), at_random())
    plain = consistency(parts, CLASSES)
    renamed = np.where(parts == NO_INK, NO_INK, np.array([7, 3, 0, 9, 2])[parts])
    assert consistency(renamed, CLASSES) == pytest.approx(plain)
    order = np.random.default_rng(2).permutation(40)
    assert consistency(parts[order].transpose(0, 2, 1)[:, ::-1], 10 - CLASSES[order]) == pytest.approx(plain)


def test_nothing_to_compare_is_zero() -> None:
    assert consistency(np.zeros((4, 3, 3), int), np.zeros(4, int)) == 0.0  # one part for everything
    assert consistency(np.full((4, 3, 3), NO_INK), np.zeros(4, int)) == 0.0
    assert consistency(alike(), np.arange(40)) == 0.0  # no two images of a class


@torch.no_grad()
def test_the_responsible_part_is_the_one_without_whose_brightness_a_pixel_dims_most(
    capsules: GenerativeModel, dataset: Dataset
) -> None:
    """By brute force: paint one part black after another; together they take away the whole picture."""
    capsules.template_weights[:, 0] = 0.1
    found = capsules.encode(torch.from_numpy(dataset.images[:3]).float() / 255)
    states = join(found.part_logits, found.part_poses)
    ours, whole = responsible_parts(capsules, states), capsules.draw(states)
    lost = []
    for part in range(capsules.params.parts):
        kept = capsules.template_weights[part, 0].clone()
        capsules.template_weights[part, 0] = -100.0
        lost.append(whole - capsules.draw(states))
        capsules.template_weights[part, 0] = kept
    shares = torch.stack(lost)
    torch.testing.assert_close(shares.sum(0), whole, atol=1e-5, rtol=0)
    inked = whole > INK
    assert 0 < inked.float().mean() < 1
    assert len(ours[inked].unique()) > 1
    assert ((whole - INK).abs()[(ours != NO_INK) != inked] < 1e-5).all()
    inked &= ours != NO_INK
    largest = shares.gather(0, ours.clamp(0)[None])[0]
    torch.testing.assert_close(largest[inked], shares.amax(0)[inked], atol=1e-5, rtol=0)


def test_parts_that_turn_with_the_image_are_used_consistently(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An encoder whose parts stand alike in every image, turned as this is: turned back, they are the same everywhere.
    Compared where they stand in the turned images, they would agree in about half of what is not chance.
    """
    with torch.no_grad():
        capsules.template_weights += 0.1
    alike = capsules.initial_pose + 0.1 * torch.randn(4, 6, generator=torch.Generator().manual_seed(0))

    def encode(images: torch.Tensor) -> Capsules:
        turn = warps.uniform_rotations(images, 90.0, torch.Generator().manual_seed(0))
        turned = poses.to_offset(poses.compose(turn.unsqueeze(1), poses.to_matrix(alike)))
        objects = torch.zeros(len(images), 3)
        return Capsules(torch.full((len(images), 4), 10.0), turned, objects, torch.zeros(len(images), 3, 6))

    monkeypatch.setattr(capsules, "encode", encode)
    images, classes = dataset.images[:20], dataset.labels[:20]
    found, arrays = part_use(capsules, images, classes, 90.0, 0)
    assert found > 0.98
    assert np.ptp(arrays["arrangements"], axis=0).max() < 1e-3
    chosen = np.flatnonzero(classes == 2)[:10]
    np.testing.assert_allclose(arrays["images"], images[chosen, 0] / 255, atol=1e-6)
    assert arrays["arrangements"].shape == (len(chosen), *images.shape[-2:], 3)
    assert part_use(capsules, images, classes, 0.0, 0)[0] < 0.9, "turned back, they are not alike"


def test_an_evaluation_has_part_use_at_each_angle_on_the_first_test_images(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "evaluate", lambda inputs: Outcome("evaluate", pd.DataFrame(), {"test": {}}))
    torch.nn.init.constant_(capsules.template_weights, 0.2)
    params = Params.model_construct(evaluate=EVALUATE, failures=FAILURES)
    numbers = evaluate(EvaluationInputs([capsules], dataset, small_run(), params, CPU, "evaluate")).numbers
    images, classes = (each[: FAILURES.images] for each in dataset.part("test"))
    expected = [part_use(capsules, images, classes, angle, FAILURES.seed)[0] for angle in EVALUATE.angles]
    assert [each["consistency"]["mean"] for each in numbers["part_use"].values()] == pytest.approx(expected)
    assert len(set(expected)) == len(EVALUATE.angles)


# ---- poses in rotated images

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
        self.temperature, self.device = 0.5, CPU

    def encode(self, images: Tensor) -> Capsules:
        v = centroid(images) if self.follows else torch.tensor([0.3, 0.6]).expand(len(images), 2)
        x, y = v.unbind(1)
        frame = torch.stack([x, -y, x, y, x, y], dim=1).unflatten(1, (2, 3))  # [v, Jv | v] commutes with rotations
        A = torch.stack([poses.to_offset(frame), torch.full((len(images), 6), 0.2)], dim=1)
        y1 = torch.tensor([LOUD, self.second]).expand(len(images), 2)
        return Capsules(y1, A, y1, A)


def measured(model: Any, angles: list[float]) -> pd.DataFrame:
    return equivariance(model, dots(), angles).set_index("angle")


def test_poses_that_turn_with_the_image_deviate_by_nothing() -> None:
    found = measured(Encoder(follows=True), [90.0, 180.0])
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
