"""Convolutions by Fourier transforms against the library's convolution."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pipeline.layers.fourier import FourierConvolution, _transforms


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("size", "kernel"), [(9, 4), (12, 5), (5, 5), (6, 1)])
def test_it_convolves_as_the_library_does(size: int, kernel: int, stride: int) -> None:
    layer = FourierConvolution(2, 3, kernel, stride).double()
    x = torch.rand(4, 2, size, size, dtype=torch.float64, requires_grad=True)
    expected = functional.conv2d(x, layer.weight.permute(0, 3, 1, 2), layer.bias, stride)
    found = layer(x)
    torch.testing.assert_close(found, expected)
    inputs = [x, *layer.parameters()]
    change = torch.rand_like(expected)
    for gradient, known in zip(
        torch.autograd.grad(found, inputs, change), torch.autograd.grad(expected, inputs, change), strict=True
    ):
        torch.testing.assert_close(gradient, known)


def test_single_precision_is_as_exact_as_the_library() -> None:
    layer = FourierConvolution(64, 32, 9, 2)
    x = torch.rand(8, 64, 20, 20)
    weight = layer.weight.detach().permute(0, 3, 1, 2)
    exact = functional.conv2d(x.double(), weight.double(), layer.bias.detach().double(), 2)  # type: ignore[union-attr]
    error = (layer(x) - exact).norm() / exact.norm()
    library = (functional.conv2d(x, weight, layer.bias, 2) - exact).norm() / exact.norm()
    assert error < 3 * library


def test_zeros_of_the_transforms_are_exact() -> None:
    for part in _transforms(10, 5, 6):
        assert part[part != 0].abs().min() > 1e-6
