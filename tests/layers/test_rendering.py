"""The renderer against a loop over pixels and parts written from the definition."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from pipeline.layers import poses
from pipeline.layers.rendering import render

SIZE = 9


def some_parts(batch: int, parts: int, side: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """Templates `[parts, 2, side, side + 1]`, poses and presences that overlap, reach beyond the image, and differ."""
    templates = torch.rand(parts, 2, side, side + 1, dtype=torch.float64)
    A = poses.spread(parts, 0.5).double() + torch.randn(batch, parts, 6, dtype=torch.float64) * 0.2
    return templates, A, torch.rand(batch, parts, dtype=torch.float64)


def naive_value(template: np.ndarray, x: float, y: float) -> float:
    """Bilinear value of `template [h, w]` at frame coordinates in [-1, 1]; zero outside.

    The frame's edges are the outer edges of the template's pixels.
    """
    height, width = template.shape
    column, row = (x + 1) / 2 * width - 0.5, (y + 1) / 2 * height - 0.5
    total = 0.0
    for r, c in product((math.floor(row), math.floor(row) + 1), (math.floor(column), math.floor(column) + 1)):
        if 0 <= r < height and 0 <= c < width:
            total += template[r, c] * (1 - abs(row - r)) * (1 - abs(column - c))
    return total


def naive_picture(templates: np.ndarray, A: np.ndarray, presence: np.ndarray, size: int) -> np.ndarray:
    """One picture by document 000's own words: each part "over" those before it,

    Co = (Ca aa + Cb ab (1 - aa)) / ao, ao = aa + ab (1 - aa), from a transparent start, at last laid over black.
    """
    picture = np.zeros((size, size))
    for row, column in product(range(size), range(size)):
        at = np.array([(2 * column + 1) / size - 1, (2 * row + 1) / size - 1, 1.0])
        colour = alpha = 0.0
        for j in range(len(templates)):
            pose = np.vstack([A[j].reshape(2, 3) + np.eye(2, 3), [0, 0, 1]])
            x, y, _ = np.linalg.inv(pose) @ at
            top_colour = naive_value(templates[j, 0], x, y)
            top_alpha = presence[j] * naive_value(templates[j, 1], x, y)
            together = top_alpha + alpha * (1 - top_alpha)
            if together > 0:
                colour = (top_colour * top_alpha + colour * alpha * (1 - top_alpha)) / together
            alpha = together
        picture[row, column] = colour * alpha
    return picture


def test_pictures_are_those_of_a_loop_over_pixels_and_parts() -> None:
    templates, A, presence = some_parts(batch=2, parts=3)
    ours = render(templates, A, presence, SIZE).numpy()
    for image in range(2):
        expected = naive_picture(templates.numpy(), A[image].numpy(), presence[image].numpy(), SIZE)
        np.testing.assert_allclose(ours[image], expected, rtol=1e-9, atol=1e-12)
    assert ours.max() > 0.2
    assert ours.min() == 0.0, "somewhere the black background shows"


@pytest.mark.parametrize("wanted", ["templates", "poses", "presences"])
def test_gradients_agree_with_finite_differences(wanted: str) -> None:
    templates, A, presence = some_parts(batch=2, parts=3, side=4)
    inputs = {"templates": templates, "poses": A, "presences": presence}
    variable = inputs[wanted].requires_grad_()

    def picture(value: Tensor) -> Tensor:
        values = {**inputs, wanted: value}
        return render(values["templates"], values["poses"], values["presences"], 6)

    # Bilinear sampling has kinks at template pixels; at random poses no image pixel lies within 1e-6 of one.
    assert torch.autograd.gradcheck(picture, (variable,), eps=1e-7, atol=1e-5, rtol=1e-4)
