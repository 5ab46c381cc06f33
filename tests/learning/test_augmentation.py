"""Random changes of images: drawn within their bounds, alike for all channels, and nothing where they are off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from small import CROPPED
from torch import Tensor

from pipeline.layers import poses
from pipeline.layers.images import crops, warped_crops
from pipeline.learning.augmentation import augment, crop_warps
from pipeline.learning.settings import AugmentationParams, CropParams

WARPS = {"rotation": 12.0, "scale": 0.15, "aspect": 0.1, "shear": 0.2, "shift": 8.0}


def crop(**changes: Any) -> CropParams:
    return CropParams.model_validate({**CROPPED.model_dump(), "crop": 16, **changes})


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_shifts_by_whole_pixels_keep_images_sharp_and_are_equally_likely() -> None:
    shift = 2
    images = torch.zeros(5000, 1, 9, 9, dtype=torch.uint8)
    images[..., 4, 4] = 255
    settings = AugmentationParams(rotation=0.0, shift=float(shift), whole_pixels=True)
    moved = augment(images, settings, torch.Generator().manual_seed(0))[:, 0]
    torch.testing.assert_close(moved.amax((1, 2)), torch.ones(5000), rtol=0, atol=1e-5)
    counts = moved.round().sum(0)
    inside = slice(4 - shift, 5 + shift)
    assert counts[inside, inside].sum() == 5000
    # 5,000 images over so many places: within five sds of a binomial count
    expected = 5000 / (2 * shift + 1) ** 2
    assert (counts[inside, inside] - expected).abs().max() < 5 * expected**0.5


def test_crops_are_at_all_places_alike_in_training_and_at_the_middle_in_validation() -> None:
    """Of images whose pixels tell their place: of 16 rows and columns 13, at 4 x 4 places."""
    place = torch.arange(16 * 16).view(1, 16, 16).to(torch.uint8)
    images = place.expand(4000, 1, 16, 16)
    settings = crop(crop=13)
    found = (augment(images, settings, torch.Generator().manual_seed(0))[:, 0] * 255).round().int()
    first = found[:, 0, 0]
    assert torch.equal(found[7], place[0, first[7] // 16 :, first[7] % 16 :][:13, :13].int())
    counts = torch.bincount(first, minlength=256).view(16, 16)
    assert counts[:4, :4].sum() == 4000
    # 4,000 images over 16 places: within five sds of a binomial count
    assert (counts[:4, :4] - 250).abs().max() < 5 * 250**0.5
    middle = augment(images[:2], crop(crop=13, **WARPS, gamma=0.2, gain=0.5, offset=0.1), seeded(), training=False)
    torch.testing.assert_close(middle, images[:2, :, 1:14, 1:14].float() / 255)


@pytest.mark.parametrize("name", ["gamma", "gain", "offset"])
def test_light_is_drawn_evenly_within_its_bounds_gamma_for_images_the_rest_for_channels(name: str) -> None:
    level = 102 / 255
    undone = {
        "gamma": lambda x: (x.log() / np.log(level)).log(),
        "gain": lambda x: (x / level).log(),
        "offset": lambda x: x - level,
    }
    grey = torch.full((4000, 2, 16, 16), 102, dtype=torch.uint8)
    draws = undone[name](augment(grey, crop(**{name: 0.3}), seeded())[..., 0, 0].double())
    assert uniform(draws[:, 0], 0.3)
    assert uniform(draws[:, 1], 0.3)
    correlation = np.corrcoef(draws.T)[0, 1]
    assert correlation > 0.999 if name == "gamma" else abs(correlation) < 0.1


def test_where_warps_are_off_nothing_is_drawn_for_them_and_crops_are_cut_as_ever() -> None:
    images, generator, beside = torch.randint(0, 256, (50, 2, 24, 24), dtype=torch.uint8), seeded(), seeded()
    found = augment(images, crop(), generator)
    draws = torch.rand(50, 4, generator=beside)
    places = (draws[:, :2] * 9).long()
    expected = crops(images, 16, places).float() / 255
    torch.testing.assert_close(found, expected)
    assert torch.equal(generator.get_state(), beside.get_state())


def uniform(values: Tensor, end: float) -> bool:
    """Whether 4,000 values fill [-end, end] evenly."""
    inside = values.abs().max() <= end * (1 + 1e-5) + 1e-6 and values.min() < -0.99 * end and values.max() > 0.99 * end
    counts = torch.histc(values, 10, -end, end)
    return bool(inside) and bool((counts - 400).abs().max() < 5 * 400**0.5)


def test_warps_are_drawn_evenly_within_their_bounds_and_scale_then_shear_then_turn_then_move() -> None:
    """R [[w, s h], [0, h]]: the first column gives the turn R and the width w, the second the shear s."""
    settings = crop(rotation=30.0, scale=0.3, aspect=0.2, shear=0.4, shift=5.0)
    whole = crop_warps(4000, settings, seeded()).double()
    angles = torch.rad2deg(torch.atan2(-whole[:, 1, 0], whole[:, 0, 0]))
    back = poses.compose(poses.rotation(-angles), whole)
    width, height = back[:, 0, 0], back[:, 1, 1]
    assert uniform(angles, 30)
    assert uniform((width * height).log() / 2, 0.3)
    assert uniform((width / height).log(), 0.2)
    assert uniform(back[:, 0, 1] / height, 0.4)
    assert uniform(whole[:, 0, 2], 5)
    assert uniform(whole[:, 1, 2], 5)


def test_a_whole_warp_is_one_resampling() -> None:
    """What augment gives is one bilinear look-up: exact on a ramp, which no edge blurs where the crop stays inside."""
    ramp = torch.arange(48, dtype=torch.uint8).expand(40, 1, 48, 48)
    settings = crop(rotation=10.0, scale=0.05, shift=2.0)
    found = augment(ramp, settings, seeded()) * 255
    generator = seeded()
    places = (torch.rand(40, 4, generator=generator)[:, :2] * 33).long()
    back = poses.invert(crop_warps(40, settings, generator))
    rows, columns = torch.meshgrid(torch.arange(16), torch.arange(16), indexing="ij")
    x = places[:, 1, None, None] + columns - 23.5
    y = places[:, 0, None, None] + rows - 23.5
    expected = back[:, 0, 0, None, None] * x + back[:, 0, 1, None, None] * y + back[:, 0, 2, None, None] + 23.5
    torch.testing.assert_close(found[:, 0], expected.clamp(0, 47), rtol=0, atol=1e-3)
    assert warped_crops(ramp, 16, places, poses.invert(back)).dtype == torch.float32
