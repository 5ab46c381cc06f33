"""A digit turned: arrays that belong together, and frames that are where parts are drawn."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from pipeline.data.datasets import Dataset
from pipeline.layers.rendering import render
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.studies.turn import DIGIT, measure, turning

CPU = torch.device("cpu")


def test_frames_surround_what_a_part_draws(capsules: GenerativeModel, dataset: Dataset) -> None:
    """An opaque template drawn at a part's pose covers exactly the pixels within its frame."""
    found = turning(capsules, dataset.images[0], CPU)
    posterior = capsules.encode(torch.from_numpy(found["images"][:1, None]).float() / 255)
    full = torch.ones(1, 2, 8, 8)
    size, checked = 96, 0
    for part in range(capsules.params.parts):
        drawn = render(full, posterior.part_poses[:, part : part + 1], torch.ones(1, 1), size)[0].detach().numpy()
        ys, xs = np.nonzero(drawn > 0.5)
        if not len(xs):
            continue
        checked += 1
        corners = found["frames"][0, part]
        centre = corners.mean(0)
        inside = np.stack([(2 * xs + 1) / size - 1, (2 * ys + 1) / size - 1], axis=-1)
        # Every drawn point is a combination of two sides of the frame, within it.
        sides = np.stack([(corners[1] - corners[0]) / 2, (corners[3] - corners[0]) / 2], axis=1)
        local = np.linalg.solve(sides, (inside - centre).T).T
        assert np.abs(local).max() < 1.15
        if (np.abs(corners) < 1).all():
            area = abs(np.linalg.det(sides)) * 4
            assert len(xs) * (2 / size) ** 2 == pytest.approx(area, rel=0.2, abs=0.05)
    assert checked


def test_the_outcome_has_the_first_digit_of_its_class_at_every_five_degrees(
    capsules: GenerativeModel, dataset: Dataset
) -> None:
    context: Any = MagicMock(device=CPU)
    context.evaluated.return_value, context.models.return_value = dataset, [capsules, capsules]
    result = measure(context)
    images, labels = dataset.part("test")
    digit, angles = images[int(np.argmax(labels == DIGIT))][0], result.arrays["angles"]
    for quarters in (0, 1, -1, -2):  # counter-clockwise
        shown = result.arrays["images"][angles == 90 * quarters][0].astype(int)
        assert abs(shown - np.rot90(digit, quarters)).max() <= 1
    assert len(result.table) == 2 * 72
    assert result.arrays["frames"].shape == (72, capsules.params.parts, 4, 2)
    errors, numbers = result.table["pixel_error"], result.numbers["pixel_error"]
    assert (numbers["worst"]["mean"], numbers["worst"]["n"]) == (pytest.approx(errors.max()), 2)
    assert numbers["mean"]["mean"] == pytest.approx(errors.mean())
