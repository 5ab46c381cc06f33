"""Arrays for figures: shapes, ranges, and pictures that belong together."""

import numpy as np
import torch
from small import SIZE

from pipeline.data.datasets import Dataset
from pipeline.systems.generative.evaluation.examples import (
    arrange,
    evaluation_examples,
    part_colours,
    reconstruct,
    turned,
)
from pipeline.systems.generative.model.generative_model import GenerativeModel

CPU = torch.device("cpu")


def test_evaluation_examples_have_their_shapes_and_ranges(capsules: GenerativeModel, dataset: Dataset) -> None:
    found = evaluation_examples(capsules, dataset.images[0], 0, CPU)
    assert {name: array.shape for name, array in found.items()} == {
        "templates": (4, 5, 5),
        "alphas": (4, 5, 5),
        "images": (12, SIZE, SIZE),
        "reconstructions": (12, SIZE, SIZE),
        "arrangements": (12, SIZE, SIZE, 3),
        "prior_samples": (16, SIZE, SIZE),
        "angles": (12,),
    }
    assert found["angles"].tolist() == list(range(-180, 180, 30))
    for name, array in found.items():
        assert array.dtype == np.float32
        if name != "angles":
            assert array.min() >= 0
            assert array.max() <= 1
            assert array.std() > 0
    plain = found["images"][found["angles"] == 0][0]
    np.testing.assert_allclose(plain, dataset.images[0, 0] / 255, atol=1e-5)
    half = found["images"][found["angles"] == -180][0]
    np.testing.assert_allclose(half, np.rot90(dataset.images[0, 0], 2) / 255, atol=1e-4)


def test_the_seed_decides_the_samples_and_the_global_state_is_left_alone(
    capsules: GenerativeModel, dataset: Dataset
) -> None:
    torch.manual_seed(9)
    expected = torch.rand(2)
    torch.manual_seed(9)
    first, again, other = (evaluation_examples(capsules, dataset.images[0], seed, CPU) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(2), expected)
    np.testing.assert_array_equal(first["prior_samples"], again["prior_samples"])
    assert not np.array_equal(first["prior_samples"], other["prior_samples"])


def test_arrangements_are_the_reconstructions_in_colour(capsules: GenerativeModel, dataset: Dataset) -> None:
    """Tinted white would be grey: with all tints white each channel is the reconstruction."""
    posterior = capsules.encode(torch.from_numpy(dataset.images[:3]).float() / 255)
    plain, coloured = reconstruct(capsules, posterior), arrange(capsules, posterior)
    # Every hue at full value has a channel at 1: the brightest channel is at most the plain picture, black stays black.
    assert (coloured.amax(-1) <= plain + 1e-6).all()
    assert coloured[plain < 1e-9].abs().max() < 1e-6
    assert (coloured.std(-1) > 0.01).any(), "there is colour"


def test_every_part_has_a_colour_of_its_own() -> None:
    colours = part_colours(24)
    assert colours.shape == (24, 3)
    assert colours.min() >= 0
    assert colours.max() <= 1
    assert np.allclose(colours.max(1), 1), "none is dark"
    distance = np.abs(colours[:, None] - colours[None]).max(-1)
    assert distance[~np.eye(24, dtype=bool)].min() > 0.02


def test_turned_images_turn_counter_clockwise(dataset: Dataset) -> None:
    found = turned(dataset.images[0], np.array([0, 90], np.float32), CPU)
    assert found.shape == (2, 1, SIZE, SIZE)
    np.testing.assert_allclose(found[1, 0], np.rot90(found[0, 0]), atol=1e-5)
