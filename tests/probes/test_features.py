"""Features: what each name stands for, and that batches change nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small import SIZE, small_run, squares
from torch import Tensor

from pipeline.data import warps
from pipeline.data.datasets import Dataset
from pipeline.layers import poses
from pipeline.probes import features as module
from pipeline.probes.features import features, metrics_on_test_images
from pipeline.systems import build_model
from pipeline.systems.generative.model.distributions import join, logistic_noise
from pipeline.systems.generative.model.generative_model import GenerativeModel

CPU = torch.device("cpu")


def test_capsules_give_logits_poses_and_expected_children(capsules: GenerativeModel, dataset: Dataset) -> None:
    """A presence logit is (log odds + noise) / temperature; children are counted by the routing of the states without
    noise.
    """
    images = torch.from_numpy(dataset.images[:7]).float() / 255
    posterior = capsules.encode(images)
    found = capsules.features(images)
    assert torch.equal(found["t0"], posterior.object_logits)
    assert found["t0_A0"].shape == (7, 3 + 3 * 6)
    assert torch.equal(found["t0_A0"][:, :3], posterior.object_logits)
    assert torch.equal(found["t0_A0"][:, 3:].reshape(7, 3, 6), posterior.object_poses)
    temperature = capsules.params.temperature
    assert temperature != 1
    layer = capsules.parts_given_objects(posterior.object_logits / temperature, posterior.object_poses)
    routing = layer.parent_posterior(join(posterior.part_logits / temperature, posterior.part_poses))
    expected = torch.stack([routing[:, :, 1 + i].sum(1) for i in range(3)], dim=1)
    torch.testing.assert_close(found["children"], expected)


def test_a_model_without_features_is_named() -> None:
    model = build_model(small_run("cnn"), SIZE)
    with pytest.raises(TypeError, match="CNN"):
        features(model, squares().images, CPU)


def test_batches_change_nothing_and_warps_meet_their_own_images(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = dataset.images[:11]
    angles = torch.linspace(-180, 180, len(images))

    def found(batch: int) -> dict[str, np.ndarray]:
        monkeypatch.setattr(module, "BATCH", batch)
        position = 0

        def warp(some: Tensor) -> Tensor:
            nonlocal position
            position += len(some)
            return poses.rotation(angles[position - len(some) : position])

        return features(capsules, images, CPU, warp)

    at_once, in_batches = found(100), found(4)
    assert at_once.keys() == in_batches.keys() == {"t0", "t0_A0", "children"}
    for name, values in at_once.items():
        assert values.dtype == np.float32
        np.testing.assert_allclose(in_batches[name], values, rtol=1e-4, atol=1e-5)
    pixels = warps.warp(torch.from_numpy(images), poses.rotation(angles))
    np.testing.assert_allclose(at_once["t0"], capsules.encode(pixels).object_logits.detach(), rtol=1e-4, atol=1e-5)
    assert not math.isclose(at_once["t0"][0, 0], features(capsules, images, CPU)["t0"][0, 0], rel_tol=1e-3)


def test_samples_are_of_the_posterior_and_follow_their_seed_alone(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """t0 = sigmoid((log odds + logistic noise) / temperature), a sample for each image whatever the batches."""
    images = dataset.images[:11]

    def found(batch: int, seed: int) -> dict[str, np.ndarray]:
        monkeypatch.setattr(module, "BATCH", batch)
        return features(capsules, images, CPU, samples=torch.Generator().manual_seed(seed))

    at_once, in_batches, other = found(100, 0), found(4, 0), found(100, 1)
    assert at_once.keys() == {"t0", "t0_A0", "children", "t0_sampled", "t0_binary"}
    assert at_once["t0_sampled"].shape == (11, 3)
    np.testing.assert_allclose(in_batches["t0_sampled"], at_once["t0_sampled"], rtol=1e-4, atol=1e-5)
    assert np.array_equal(other["t0"], at_once["t0"])
    noise = logistic_noise((11, 3), torch.Generator().manual_seed(0), CPU)
    expected = ((torch.from_numpy(at_once["t0"]) + noise) / capsules.temperature).sigmoid()
    np.testing.assert_allclose(at_once["t0_sampled"], expected, rtol=1e-5)
    np.testing.assert_array_equal(at_once["t0_binary"], at_once["t0_sampled"] > 0.5)
    assert not np.allclose(other["t0_sampled"], at_once["t0_sampled"], atol=0.1)


def test_metrics_are_means_over_all_test_images(
    capsules: GenerativeModel, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """25 images in batches of 10, 10 and 5: each counts alike, with its own noise."""
    images = torch.from_numpy(dataset.part("test")[0]).float() / 255
    monkeypatch.setattr(module, "BATCH", 10)
    found = metrics_on_test_images(capsules, dataset, 3, CPU)
    generator = torch.Generator().manual_seed(3)
    noise = torch.cat([capsules.draw_noise((count,), generator) for count in (10, 10, 5)])
    _, expected = capsules(images, noise, torch.tensor(1e9))
    of_batches = {"most_children", "objects_in_use", "presence_information"}
    assert set(expected) - set(found) == of_batches == capsules.batch_statistics
    for name, value in expected.items():
        if name in capsules.batch_statistics:
            continue
        assert found[name] == pytest.approx(value.item(), rel=1e-4), name
    assert found["bound"] == pytest.approx(
        found["log_pixels"] + found["log_parts"] + found["log_objects"] + found["entropy"], rel=1e-4
    )
