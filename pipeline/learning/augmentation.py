"""Random changes of training images: warps (document 000); crops, warps and changed brightness (document 004)."""

import torch
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.layers.images import centre_crop, crops, warped_crops
from pipeline.learning.settings import AugmentationParams, CropParams

Augmentation = AugmentationParams | CropParams


def augment(images: Tensor, augmentation: Augmentation, generator: torch.Generator, training: bool = True) -> Tensor:
    """Warp or crop uint8 images `[B, C, S, S]`. Returns floats `[B, C, s, s]`, where s is the side of the crop
    (S without crops). Values are in [0, 1], unless `gain` or `offset` changes the brightness. If `training` is false,
    the warps of `AugmentationParams` are still random, but `CropParams` only cut out the central crop.
    """
    if isinstance(augmentation, CropParams):
        if not training:
            return centre_crop(images, augmentation.crop).float() / 255
        return _cut(images, augmentation, generator)
    if augmentation.rotation == 0 and augmentation.shift == 0:
        return images.float() / 255
    matrices = warps.uniform_rotations(images, augmentation.rotation, generator)
    if augmentation.shift:
        pixels = (torch.rand(len(images), 2, generator=generator, device=images.device) * 2 - 1) * augmentation.shift
        if augmentation.whole_pixels:
            # Shifts are uniform in [-shift - 1/2, shift + 1/2] before rounding, so that all whole shifts are equally
            # likely. `round` rounds halves to even numbers: +-(shift + 1/2) can become +-(shift + 1), which is clamped.
            pixels = (pixels * (1 + 0.5 / augmentation.shift)).round()
            pixels = pixels.clamp(-augmentation.shift, augmentation.shift)
        matrices = poses.compose(warps.shifts(pixels, images.shape[-1]), matrices)
    return warps.warp(images, matrices)


def _cut(images: Tensor, augmentation: CropParams, generator: torch.Generator) -> Tensor:
    """Cut images `[B, C, S, S]` at random places, warp them if `augmentation.warps`, and change their brightness."""
    B, size = len(images), augmentation.crop
    # Two numbers are for the place, one is for gamma. The fourth is unused, but old results depend on it being drawn.
    draws = torch.rand(B, 4, generator=generator, device=images.device)
    places = (draws[:, :2] * (images.shape[-1] - size + 1)).long()
    if augmentation.warps:
        cut = warped_crops(images, size, places, crop_warps(B, augmentation, generator)) / 255
    else:
        cut = crops(images, size, places).float() / 255
    if augmentation.gamma:
        cut = cut ** (augmentation.gamma * (2 * draws[:, 2, None, None, None] - 1)).exp()
    if augmentation.gain or augmentation.offset:
        gain, offset = 2 * torch.rand(2, *cut.shape[:2], 1, 1, generator=generator, device=cut.device) - 1
        cut = cut * (augmentation.gain * gain).exp() + augmentation.offset * offset
    return cut


def crop_warps(count: int, augmentation: CropParams, generator: torch.Generator) -> Tensor:
    """Random matrices `[count, 2, 3]`, in pixels, for `warped_crops`. They scale, shear, rotate and translate."""
    draws = 2 * torch.rand(count, 6, generator=generator, device=generator.device) - 1
    scale, aspect = augmentation.scale * draws[:, 0], augmentation.aspect * draws[:, 1]
    shear, zero = augmentation.shear * draws[:, 2], torch.zeros_like(scale)
    width, height = (scale + aspect / 2).exp(), (scale - aspect / 2).exp()
    scaled = torch.stack([width, shear * height, zero, zero, height, zero], -1).unflatten(-1, (2, 3))
    turned = poses.compose(poses.rotation(augmentation.rotation * draws[:, 3]), scaled)
    return torch.cat([turned[..., :2], augmentation.shift * draws[:, 4:, None]], -1)
