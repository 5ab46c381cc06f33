"""The compiled kernel of attention against the block's PyTorch form in double precision, and when it is used."""

from __future__ import annotations

import copy
from unittest.mock import patch

import pytest
import torch
from gradients import assert_near, assert_same_for_any_number_of_threads, forms_here, with_gradients
from torch import Tensor

from pipeline import kernels
from pipeline.layers.attention import _SOURCE, MultiheadAttentionBlock, attend, supported

FORMS = forms_here(_SOURCE)
pytestmark = pytest.mark.skipif(kernels.find(_SOURCE) is None, reason="the kernel is not compiled here")

# images, images of the queries, queries, keys, width, heads
SIZES = {
    "the paper's spread": (9, 9, 16, 32, 128, 4),
    "the paper's gather, queries shared": (9, 1, 32, 16, 128, 4),
    "odd numbers of elements": (5, 5, 3, 7, 48, 2),
    "odd and shared": (7, 1, 5, 19, 32, 4),
    "one of each": (1, 1, 1, 1, 8, 1),
    "more elements than rows of a chunk": (2, 2, 150, 140, 16, 1),
    "more images than groups of chunks": (300, 1, 4, 33, 24, 1),
}


def case(size: str) -> tuple[MultiheadAttentionBlock, Tensor, Tensor]:
    """A block with every parameter away from its start, queries and keys."""
    images, of_queries, queries, keys, width, heads = SIZES[size]
    torch.manual_seed(len(size))
    block = MultiheadAttentionBlock(width, heads)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5 / width**0.5)
    return block, torch.randn(of_queries, queries, width), torch.randn(images, keys, width) * 2 + 0.5


def compiled(block: MultiheadAttentionBlock, x: Tensor, y: Tensor, form: str | None = None) -> list[Tensor]:
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    return with_gradients(attend(block, x, y, kernels.find(_SOURCE, form)), [x, y, *block.parameters()])


def in_double(block: MultiheadAttentionBlock, x: Tensor, y: Tensor) -> list[Tensor]:
    block, x, y = copy.deepcopy(block).double(), x.double().requires_grad_(), y.double().requires_grad_()
    return with_gradients(block.plain_forward(x, y), [x, y, *block.parameters()])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_those_of_the_pytorch_form_in_double_precision(size: str, form: str) -> None:
    assert_near(compiled(*case(size), form), in_double(*case(size)))


@pytest.mark.parametrize("size", ["odd and shared", "more images than groups of chunks", "the paper's spread"])
def test_the_result_is_the_same_for_any_number_of_threads(size: str) -> None:
    assert_same_for_any_number_of_threads(lambda: compiled(*case(size)))


def test_scores_far_apart_and_rows_that_do_not_vary_stay_finite() -> None:
    block, x, y = case("odd numbers of elements")
    with torch.no_grad():
        block.query.weight *= 300
        x[0] = 1.0  # LayerNorm divides by the root of eps
    for own, other in zip(compiled(block, x, y), in_double(block, x, y), strict=True):
        assert own.isfinite().all()
        torch.testing.assert_close(own.double(), other, rtol=2e-3, atol=2e-3 * float(other.abs().max()))


def test_what_the_kernel_supports() -> None:
    block, x, y = case("odd numbers of elements")
    assert supported(block, x, y)
    assert not supported(block.double(), x.double(), y.double())
    block = block.float()
    assert not supported(block, x[:2], y)
    assert not supported(block, x[:0], y[:0])
    assert not supported(MultiheadAttentionBlock(20, 2), x[..., :20], y[..., :20])
    assert not supported(block.to("meta"), x.to("meta"), y.to("meta"))
    with patch.object(kernels, "load", return_value=None):
        assert not supported(*case("odd numbers of elements"))
