"""What networks do first with images, by hand and by loops."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from pipeline.layers.images import ChannelsLastConvolution, centre_crop, crops, standardise, warped_crops
from pipeline.layers.poses import rotation


def test_standardised_images_have_mean_0_and_variance_1_each() -> None:
    images = torch.rand(4, 2, 6, 6) * torch.tensor([0.1, 0.5, 1.0, 0.3])[:, None, None, None]
    found = standardise(images)
    torch.testing.assert_close(found.mean((1, 2, 3)), torch.zeros(4), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.square().mean((1, 2, 3)), torch.ones(4))
    # Over both channels together: what one eye sees brighter stays brighter.
    assert (found.mean((2, 3))[:, 0] - found.mean((2, 3))[:, 1]).abs().max() > 0.01
    even = standardise(torch.full((1, 2, 4, 4), 0.7))
    torch.testing.assert_close(even, torch.zeros(1, 2, 4, 4), atol=1e-5, rtol=0)


def test_channels_last_convolves_as_the_library_does() -> None:
    layer = ChannelsLastConvolution(2, 3, 5, stride=2, padding=1)
    x = torch.rand(2, 2, 9, 9)
    expected = functional.conv2d(x, layer.weight.permute(0, 3, 1, 2).contiguous(), layer.bias, stride=2, padding=1)
    torch.testing.assert_close(layer(x), expected)


def test_crops_are_where_they_are_asked_for() -> None:
    images = torch.arange(2 * 3 * 7 * 7).view(2, 3, 7, 7)
    found = crops(images, 4, torch.tensor([[0, 3], [2, 1]]))
    assert torch.equal(found[0], images[0, :, 0:4, 3:7])
    assert torch.equal(found[1], images[1, :, 2:6, 1:5])
    assert torch.equal(centre_crop(images, 3), images[..., 2:5, 2:5])
    assert torch.equal(centre_crop(images, 4), images[..., 1:5, 1:5])


def pairs(count: int, size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (count, 2, size, size), dtype=torch.uint8, generator=generator)


PLACES = torch.tensor([[0, 0], [1, 3], [4, 2]])


def test_crops_of_images_turned_by_a_right_angle_are_those_of_turned_images() -> None:
    images = pairs(3, 12)
    matrices = rotation(torch.full((3,), 90.0))
    expected = crops(torch.rot90(images, 1, (-2, -1)), 8, PLACES).float()
    torch.testing.assert_close(warped_crops(images, 8, PLACES, matrices), expected, atol=1e-2, rtol=0)


@pytest.mark.parametrize(("right", "down", "size"), [(-2, 3, 7), (5, -4, 8), (-20, 20, 8)])
def test_crops_of_images_moved_by_whole_pixels_are_slices_and_edges_go_on(right: int, down: int, size: int) -> None:
    images = pairs(3, 12)
    matrices = torch.eye(2, 3).expand(3, 2, 3) + torch.tensor([[0.0, 0.0, right], [0.0, 0.0, down]])
    wide = functional.pad(images.float(), (24, 24, 24, 24), mode="replicate")
    expected = crops(wide, size, PLACES + 24 - torch.tensor([down, right]))
    torch.testing.assert_close(warped_crops(images, size, PLACES, matrices), expected, atol=1e-3, rtol=0)
