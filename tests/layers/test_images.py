"""What networks do first with images, by hand and by loops."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pipeline.layers.images import ChannelsLastConvolution, centre_crop, crops, standardise


def test_standardised_images_have_mean_0_and_variance_1_each() -> None:
    torch.manual_seed(0)
    images = torch.rand(4, 2, 6, 6) * torch.tensor([0.1, 0.5, 1.0, 0.3])[:, None, None, None]
    found = standardise(images)
    torch.testing.assert_close(found.mean((1, 2, 3)), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.square().mean((1, 2, 3)), torch.ones(4))
    # Over both channels together: what one eye sees brighter stays brighter.
    assert (found.mean((2, 3))[:, 0] - found.mean((2, 3))[:, 1]).abs().max() > 0.01


def test_light_and_contrast_do_not_matter_to_standardised_images() -> None:
    images = torch.rand(3, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(standardise(0.3 * images + 0.2), standardise(images), atol=1e-5, rtol=1e-5)


def test_an_even_image_becomes_zero() -> None:
    torch.testing.assert_close(standardise(torch.full((1, 2, 4, 4), 0.7)), torch.zeros(1, 2, 4, 4), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (2, 0), (1, 2)])
def test_channels_last_convolves_as_the_library_does(stride: int, padding: int) -> None:
    torch.manual_seed(0)
    layer = ChannelsLastConvolution(2, 3, 5, stride, padding)
    x = torch.rand(2, 2, 9, 9)
    expected = functional.conv2d(x, layer.weight.permute(0, 3, 1, 2).contiguous(), layer.bias, stride, padding)
    torch.testing.assert_close(layer(x), expected)


def test_crops_are_where_they_are_asked_for() -> None:
    images = torch.arange(2 * 3 * 7 * 7).view(2, 3, 7, 7)
    found = crops(images, 4, torch.tensor([[0, 3], [2, 1]]))
    assert torch.equal(found[0], images[0, :, 0:4, 3:7])
    assert torch.equal(found[1], images[1, :, 2:6, 1:5])
    assert torch.equal(centre_crop(images, 3), images[..., 2:5, 2:5])
    assert torch.equal(centre_crop(images, 4), images[..., 1:5, 1:5])
