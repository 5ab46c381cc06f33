"""Probes out of distribution, with models whose features are known so well that accuracies are, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from small import EVALUATE, SIZE, SMALL_VAE, squares
from torch import Tensor

from pipeline.data import warps
from pipeline.data.datasets import Dataset
from pipeline.probes import features as features_module
from pipeline.probes.generalisation import clean_probe, probe_accuracies, rotated, rotation_probes
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.vae.model.vae import VAE, Code
from pipeline.systems.vae.settings import VAEModelParams

CPU = torch.device("cpu")


class Planted(VAE):
    """A model whose code is known.

    Args:
        code: of images `[B, 1, S, S]`.
    """

    def __init__(self, code: Callable[[Tensor], Tensor]) -> None:
        super().__init__(VAEModelParams.model_validate(SMALL_VAE), SIZE)
        self.code = code

    def encode(self, images: Tensor) -> Code:
        mu = self.code(images).flatten(1)
        return Code(mu, torch.ones_like(mu))


def brightest() -> Planted:
    """Its code is the brightest pixel of each image, which no warp inside the canvas takes away."""
    return Planted(lambda images: images.amax((1, 2, 3), keepdim=True))


def settings(**changes: Any) -> Any:
    return EVALUATE.model_copy(update={"probe_images": 1000, **changes})


def accuracies(table: Any, protocol: str) -> dict[str, float]:
    chosen = table[table["protocol"] == protocol]
    return dict(zip(chosen["test"], chosen["accuracy"], strict=True))


def test_every_test_is_run_under_both_protocols_for_every_kind_of_features(
    capsules: GenerativeModel, dataset: Dataset
) -> None:
    table = probe_accuracies(capsules, dataset, settings(angles=[0.0, 22.5]), CPU)
    assert table.columns.tolist() == ["features", "protocol", "test", "strength", "accuracy"]
    assert set(zip(table["features"], table["protocol"], table["test"], strict=True)) == {
        (features, protocol, test)
        for features in ("t0", "t0_A0", "children", "t0_sampled", "t0_binary")
        for protocol in ("refit", "fixed")
        for test in ("rotated_0", "rotated_22.5", "affine")
    }
    assert len(table) == 30
    assert table["accuracy"].between(0, 1).all()
    probe = clean_probe(capsules, dataset, "t0_A0", settings(), CPU)
    images, labels = dataset.part("test")
    expected = probe.accuracy(features_module.features(capsules, images, CPU)["t0_A0"], labels)
    rows = table[(table["features"] == "t0_A0") & (table["test"] == "rotated_0")]
    assert rows["accuracy"].tolist() == pytest.approx([expected, expected]), "a rotation by nothing is the clean test"
    assert rows["strength"].tolist() == [probe.strength, probe.strength]
    again = probe_accuracies(capsules, dataset, settings(angles=[0.0, 22.5]), CPU)
    assert table.equals(again), "a seed gives the same numbers"


def test_refit_probes_follow_the_images_and_fixed_ones_do_not(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All images turned by exactly half a turn. Nine fields tell where the square is as before, but other ones."""
    half = warps.rotations(torch.tensor([180.0]))
    monkeypatch.setattr(warps, "uniform_rotations", lambda count, angle, generator, device: half.expand(count, 2, 3))
    places = Planted(lambda images: torch.nn.functional.adaptive_avg_pool2d(images, 3))
    table = probe_accuracies(places, dataset, settings(angles=[0.0, 180.0]), CPU)
    refit, fixed = accuracies(table, "refit"), accuracies(table, "fixed")
    assert refit["rotated_0"] == fixed["rotated_0"] == 1.0
    assert refit["rotated_180"] == 1.0
    assert fixed["rotated_180"] < 0.5


def bright(count: int) -> Dataset:
    """Images with a block whose brightness is the label's, in another place each time."""
    base = squares(train=count, validation=12, test=11)
    images = np.zeros_like(base.images)
    random = np.random.default_rng(1)
    for image, label in zip(images, base.labels, strict=True):
        row, column = random.integers(2, 6, 2)
        image[0, row : row + 4, column : column + 4] = 80 * (label + 1)
    return replace(base, images=images)


def test_affine_versions_keep_their_labels_and_their_ink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 5 over three versions of 11 images: an image stays with its label and with its warp."""
    monkeypatch.setattr(features_module, "BATCH", 5)
    table = probe_accuracies(brightest(), bright(40), settings(angles=[0.0], affine_versions=3), CPU)
    assert set(table["accuracy"]) == {1.0}


def test_official_affine_images_are_tested_by_the_probes_of_the_affine_test() -> None:
    dataset = bright(40)
    table = probe_accuracies(brightest(), dataset, settings(angles=[0.0]), CPU, official=bright(40))
    assert accuracies(table, "refit")["affnist"] == 1.0
    assert accuracies(table, "fixed")["affnist"] == 1.0
    wrong = replace(dataset, labels=(dataset.labels + 1) % 3)
    table = probe_accuracies(brightest(), dataset, settings(angles=[0.0]), CPU, official=wrong)
    assert accuracies(table, "refit")["affnist"] == 0.0
    strengths = table[table["protocol"] == "refit"].set_index("test")["strength"]
    assert strengths["affnist"] == strengths["affine"]


def test_probes_of_one_angle_are_fit_and_tested_within_it(capsules: GenerativeModel, dataset: Dataset) -> None:
    at_zero = rotation_probes(capsules, dataset, 0.0, settings(), CPU)
    assert at_zero.columns.tolist() == ["features", "strength", "accuracy"]
    table = probe_accuracies(capsules, dataset, settings(angles=[0.0, 90.0]), CPU)
    not_sampled = table[(table["protocol"] == "refit") & ~table["features"].isin(["t0_sampled", "t0_binary"])]
    refit = not_sampled.set_index(["test", "features"])["accuracy"]
    for angle in (0.0, 90.0):
        measured = rotation_probes(capsules, dataset, angle, settings(), CPU).set_index("features")["accuracy"]
        assert measured.to_dict() == pytest.approx(refit[rotated(angle)].to_dict())
