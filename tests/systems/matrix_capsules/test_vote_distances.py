"""Distances of votes to the means of class capsules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small import SMALL_MATRIX_CAPSULES

from pipeline.systems.matrix_capsules.evaluation.vote_distances import concentration, distances, histograms
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams


def small_capsules(**changes: Any) -> MatrixCapsules:
    torch.manual_seed(0)
    return MatrixCapsules(MatrixCapsulesModelParams.model_validate({**SMALL_MATRIX_CAPSULES, **changes}), 10).eval()


def test_distances_are_of_votes_to_means() -> None:
    model, images = small_capsules(), torch.rand(5, 1, 10, 10)
    found, shares = distances(model, images)
    assert found.shape == shares.shape == (2, 5, 3, 18)  # iterations, images, classes, 9 positions of 2 types
    below = model.capsules(images)[-2]
    votes = model.routed[-1].votes(below)[:, 0]  # type: ignore[operator]
    means = model.capsules(images)[-1][0][:, 0]
    np.testing.assert_allclose(found[-1], (votes - means.unsqueeze(2)).norm(dim=-1).detach(), rtol=1e-4, atol=1e-5)
    active = below[1].flatten(1).detach()
    np.testing.assert_allclose(shares.sum(2), active.expand(2, -1, -1), rtol=1e-4)
    np.testing.assert_allclose(shares[0], (active / 3).unsqueeze(1).expand(-1, 3, -1), rtol=1e-4)


def test_concentration_by_hand() -> None:
    """One image of class 1 of two, two votes: the near one moves to its class at the second iteration."""
    distance = np.array([[[[0.1, 2.0], [0.1, 2.0]]], [[[0.1, 2.0], [0.1, 2.0]]]], np.float32)
    shares = np.array([[[[0.5, 0.5], [0.5, 0.5]]], [[[0.1, 0.5], [0.9, 0.5]]]], np.float32)
    found = concentration(distance, shares, np.array([1]))
    assert found["all"] == pytest.approx([0.5, 0.7])
    assert found["near"] == pytest.approx([0.5, 0.9])
    counts = histograms(distance, shares, [0], bins=2)["counts"]
    np.testing.assert_allclose(counts[0, 1], [[0.1, 0.5], [0.9, 0.5]], rtol=1e-6)
