"""Arrays for figures: pictures that belong together, and the frames of a turned digit, where its parts are drawn."""

from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
from small import SIZE, SMALL

from pipeline.data.datasets import Dataset
from pipeline.layers.rendering import render
from pipeline.systems.generative.evaluation.examples import arrange, evaluation_examples, object_examples, turning
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeModelParams
from pipeline.systems.generative.studies.turn import DIGIT, measure


def test_samples_of_the_prior_follow_their_seed_alone(capsules: GenerativeModel) -> None:
    torch.manual_seed(9)
    expected = torch.rand(2)
    torch.manual_seed(9)
    found, again, other = (evaluation_examples(capsules, seed)["prior_samples"] for seed in (0, 0, 1))
    assert torch.equal(torch.rand(2), expected), "the global state is left alone"
    np.testing.assert_array_equal(found, again)
    assert not np.array_equal(found, other)
    assert found.shape == (16, SIZE, SIZE)
    assert 0 <= found.min() < found.max() <= 1 + 1e-6


def test_arrangements_are_the_reconstructions_in_colour(capsules: GenerativeModel, dataset: Dataset) -> None:
    """A tint has no channel above 1, so that no channel is brighter than the reconstruction, and black stays black."""
    posterior = capsules.encode(torch.from_numpy(dataset.images[:3]).float() / 255)
    plain, coloured = capsules.draw(capsules.states(posterior)), arrange(capsules, posterior)
    assert (coloured.amax(-1) <= plain + 1e-6).all()
    assert coloured[plain < 1e-9].abs().max() < 1e-6
    assert (coloured.std(-1) > 0.01).any(), "there is colour"


def test_an_object_is_shown_by_the_images_whose_parts_it_owns() -> None:
    model = GenerativeModel(GenerativeModelParams(**SMALL), 12).eval()
    images = (np.random.default_rng(0).random((7, 1, 12, 12)) * 255).astype(np.uint8)
    labels = np.array([0, 1, 2, 0, 1, 2, 2])
    found = object_examples(model, images, labels)
    pixels = torch.from_numpy(images).float() / 255
    with torch.no_grad():
        posterior = model.encode(pixels)
        layer = model.parts_given_objects(posterior.object_logits / model.temperature, posterior.object_poses)
        presence = (posterior.part_logits / model.temperature).sigmoid()
        states = torch.cat([(posterior.part_logits / model.temperature)[..., None], posterior.part_poses], dim=-1)
        shares = layer.parent_posterior(states)[..., 1:] * presence[..., None]
        for i in range(3):
            own = [n for n in range(7) if int(shares[n].sum(0).argmax()) == i]
            counted = [sum(int(labels[n]) == label for n in own) for label in range(3)]
            assert found["object_classes"][i].tolist() == counted
            if own:
                np.testing.assert_allclose(found["object_images"][i], pixels[own, 0].mean(0), atol=1e-6)
                weighted = render(model.templates, posterior.part_poses[own], shares[own][..., i], 12)
                np.testing.assert_allclose(found["object_parts"][i], weighted.mean(0), atol=1e-6)
            else:
                assert not found["object_images"][i].any()
    assert found["object_classes"].sum() == 7


# ---- a digit turned


def test_frames_surround_what_a_part_draws(capsules: GenerativeModel, dataset: Dataset) -> None:
    """An opaque template drawn at a part's pose covers exactly the pixels within its frame."""
    found = turning(capsules, dataset.images[0])
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
    context: Any = MagicMock()
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
