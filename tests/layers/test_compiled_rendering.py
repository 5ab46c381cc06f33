"""The compiled renderer against the PyTorch form in double precision, and when it is used."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from gradients import assert_same_for_any_number_of_threads, forms_here, with_gradients
from torch import Tensor

from pipeline import kernels
from pipeline.layers import poses
from pipeline.layers.rendering import _SOURCE, compiled_render, plain_render, supported

FORMS = forms_here(_SOURCE)
pytestmark = pytest.mark.skipif(kernels.find(_SOURCE) is None, reason="the kernel is not compiled here")

# images, parts, height and width of a template, side of the picture, sd of the poses
SIZES = {
    "the paper's": (3, 16, 12, 12, 28, 0.05),
    "templates that are not square": (4, 3, 5, 7, 9, 0.3),
    "templates in all directions, edge-on and far outside": (40, 4, 4, 3, 13, 2.0),
    "more images than groups": (37, 2, 6, 5, 8, 0.5),
    "one pixel of each": (1, 1, 1, 1, 1, 0.1),
}


def case(size: str) -> list[Tensor]:
    """Templates, poses and presences."""
    images, parts, height, width, _, sd = SIZES[size]
    torch.manual_seed(len(size))
    A = poses.spread(parts, 0.5) + torch.randn(images, parts, 6) * sd
    return [torch.rand(parts, 2, height, width), A, torch.rand(images, parts)]


def compiled(inputs: list[Tensor], side: int, form: str | None = None) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    return with_gradients(compiled_render(*leaves, side, kernels.find(_SOURCE, form)), leaves)


def plain(inputs: list[Tensor], side: int) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    return with_gradients(plain_render(*leaves, side), leaves)


def errors(found: list[Tensor], expected: list[Tensor]) -> list[float]:
    """The difference of each tensor from the expected one, relative in norm."""
    return [
        float((own.double() - other).norm() / other.norm().clamp_min(1e-6))
        for own, other in zip(found, expected, strict=True)
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_those_of_the_pytorch_form_in_double_precision(size: str, form: str) -> None:
    side = SIZES[size][4]
    expected = plain([each.double() for each in case(size)], side)
    assert expected[0].abs().max() > 0.01
    found = errors(compiled(case(size), side, form), expected)
    # A point at the edge of two template pixels may fall on either side of it, which changes its gradient, in single
    # precision as PyTorch's operators have it, too.
    theirs = errors(plain(case(size), side), expected)
    assert all(own < max(2e-5, 3 * other) for own, other in zip(found, theirs, strict=True)), (found, theirs)
    assert found[0] < 1e-4


def test_poses_without_rotation_whose_rows_lie_on_template_edges() -> None:
    """A slope of exactly 0, and pixels exactly at the ends of the template."""
    white = torch.ones(1, 2, 4, 4)
    for shift in (-0.5, 0.0, 0.25, 0.5, 3.0):
        A = torch.tensor([[[-0.5, 0, shift, 0, -0.5, -shift]]])
        inputs = [white, A, torch.ones(1, 1)]
        torch.testing.assert_close(compiled_render(*inputs, 8), plain_render(*inputs, 8))


def test_the_result_is_the_same_for_any_number_of_threads() -> None:
    assert_same_for_any_number_of_threads(lambda: compiled(case("more images than groups"), 8))


def test_what_the_kernel_supports() -> None:
    templates, A, presence = case("the paper's")
    assert supported(templates, A, presence)
    assert not supported(templates.double(), A.double(), presence.double())
    assert not supported(*(each.to("meta") for each in (templates, A, presence)))
    assert not supported(templates.expand(3, 16, 2, 12, 12), A, presence)
    assert not supported(templates, A[:0], presence[:0])
    with patch.object(kernels, "load", return_value=None):
        assert not supported(templates, A, presence)
