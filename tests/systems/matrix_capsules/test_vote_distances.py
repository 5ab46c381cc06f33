"""Distances of votes to the means of class capsules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from em_loop import network

from pipeline.systems.matrix_capsules.evaluation import concentration, distances, histograms


def test_distances_are_of_votes_to_means() -> None:
    model = network().eval()
    images = torch.rand(5, 1, 10, 10)
    found, shares = distances(model, images)
    assert found.shape == shares.shape == (2, 5, 3, 18)  # iterations, images, classes, 9 positions of 2 types
    below = model.capsules(images)[-2]
    votes = model.routed[-1].votes(below)[:, 0]
    means = model.capsules(images)[-1][0][:, 0]
    np.testing.assert_allclose(found[-1], (votes - means.unsqueeze(2)).norm(dim=-1).detach(), rtol=1e-4, atol=1e-5)
    active = below[1].flatten(1).detach()
    np.testing.assert_allclose(shares.sum(2), active.expand(2, -1, -1), rtol=1e-4)
    np.testing.assert_allclose(shares[0], (active / 3).unsqueeze(1).expand(-1, 3, -1), rtol=1e-4)


def test_histograms_by_hand() -> None:
    """One image, two classes, two votes, of which the near one moves to the second class at the second iteration."""
    distance = np.full((2, 1, 2, 2), [0.1, 2.0], np.float32)
    shares = np.array([[[[0.5, 0.5], [0.5, 0.5]]], [[[0.1, 0.5], [0.9, 0.5]]]], np.float32)
    counts = histograms(distance, shares, [0], bins=2)["counts"]
    np.testing.assert_allclose(counts[0, 1], [[0.1, 0.5], [0.9, 0.5]], rtol=1e-6)


@pytest.mark.parametrize(("later", "near"), [(0.5, [0.0, 1.0]), (2.0, [0.0, 1.0]), (3.0, [0.0, 0.0])])
def test_near_is_as_near_as_the_closest_tenth_after_the_first_iteration(later: float, near: list[float]) -> None:
    """Ten votes for each of two classes, at first 1 to 20 from their means: the closest tenth ends at a distance of 2.
    Then the votes for the image's own class, the second, have moved to `later`, and the others away.
    """
    first = np.arange(1, 21, dtype=np.float32).reshape(1, 2, 10)
    second = np.stack([np.full((1, 10), 50, np.float32), np.full((1, 10), later, np.float32)], axis=1)
    shares = np.stack([np.full((1, 2, 10), 0.5), np.full((1, 2, 10), [[0.1], [0.3]])]).astype(np.float32)
    found = concentration(np.stack([first, second]), shares, np.array([1]))
    assert found["share"].tolist() == pytest.approx([0.5, 0.75, *near])
