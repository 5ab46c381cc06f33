"""Affine warps of whole batches, on the device of the images.

The x axis points right, the y axis down. The outer edges of the canvas are at -1 and +1 (`align_corners=False`). A
matrix M `[..., 2, 3]` maps a position in the input to a position in the output: out(M x) = in(x). So the output at u
is sampled from the input at M^-1 u. If an image is rotated by R, all poses in it are multiplied by R from the left
(`pipeline.layers.poses`). Shapes: B images with C channels and S x S pixels. No function here copies a value from a
GPU to the CPU, because the CPU would have to wait for it.
"""

import torch
from torch import Tensor
from torch.nn import functional

from pipeline.layers.poses import invert, rotation


def shifts(pixels: Tensor, size: int) -> Tensor:
    """Matrices `[B, 2, 3]` that translate images of width `size` by `pixels [B, 2]`, in (x, y) order."""
    linear = torch.eye(2, dtype=pixels.dtype, device=pixels.device).expand(*pixels.shape[:-1], 2, 2)
    return torch.cat([linear, (2 / size) * pixels[..., None]], dim=-1)


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Warp images by bilinear interpolation. Pixels outside are black. Returns `[B, C, S, S]`, float32 in [0, 1].

    Args:
        images: `[B, C, S, S]`, uint8 (0..255) or float in [0, 1].
        matrices: `[B, 2, 3]`, one for each image.
    """
    pixels = images.float()
    if images.dtype == torch.uint8:
        pixels = pixels / 255
    grid = functional.affine_grid(invert(matrices.float()), list(images.shape), align_corners=False)
    return functional.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def uniform_rotations(images: Tensor, angle: float, generator: torch.Generator) -> Tensor:
    """Matrices `[B, 2, 3]` that rotate images by angles uniform in [-angle, +angle] degrees (document 000, Table 1)."""
    # Angles are drawn on the generator's device, so that a CPU generator gives the same warps on every device.
    angles = torch.empty(len(images), device=generator.device).uniform_(-angle, angle, generator=generator)
    return rotation(angles.to(images.device))


def affnist_warps(images: Tensor, generator: torch.Generator) -> Tensor:
    """Random warps `[B, 2, 3]` with affNIST's published ranges: a stand-in for the official affNIST images.

    A warp scales each axis by 0.8 to 1.2, then shears (adds -0.2 to 0.2 times y to x), then rotates by -20 to 20
    degrees. Then it translates the digit to any place where all its ink stays on the canvas. All these numbers are
    drawn uniformly. Along an axis on which the digit is larger than the canvas, it is centred.

    Args:
        images: `[B, C, S, S]`. Pixels that are not exactly black are ink.
    """
    draws = torch.rand(len(images), 6, generator=generator, device=generator.device).to(images.device)
    low, high = 0.8, 1.2
    scale = low + (high - low) * draws[:, :2]
    shear = 0.2 * (2 * draws[:, 2] - 1)
    turn = rotation(20.0 * (2 * draws[:, 3] - 1))[..., :2]
    zero = torch.zeros_like(shear)
    stretch = torch.stack([scale[:, 0], shear * scale[:, 1], zero, scale[:, 1]], dim=-1).unflatten(-1, (2, 2))
    linear = turn @ stretch  # [B, 2, 2]

    x, y = _ink_box(images)
    corners = torch.stack([x[:, [0, 1, 0, 1]], y[:, [0, 0, 1, 1]]], dim=1)  # [B, 2, 4]
    least, most = (linear @ corners).aminmax(dim=-1)  # [B, 2] each
    free = (2 - (most - least)).clamp_min(0)
    place = draws[:, 4:] * free - free / 2  # centre of the ink; the canvas has its centre at 0
    return torch.cat([linear, (place - (least + most) / 2)[..., None]], dim=-1)


def _ink_box(images: Tensor) -> tuple[Tensor, Tensor]:
    """The left and right edges `[B, 2]` and the top and bottom edges `[B, 2]` of images' ink, in canvas coordinates.

    In bilinear sampling, a pixel's ink reaches one pixel beyond its centre. In a black image, all pixels count as ink.
    """
    height = images.shape[-1]
    ink = (images != 0).any(dim=1)  # [B, H, H]
    ink = ink | ~ink.any(dim=(1, 2), keepdim=True)

    def extent(on: Tensor) -> Tensor:  # [B, H] -> [B, 2]
        first = on.int().argmax(dim=-1)
        last = height - 1 - on.flip(-1).int().argmax(dim=-1)
        pixels = torch.stack([first - 0.5, last + 1.5], dim=-1)
        return (2 * pixels - height) / height

    return extent(ink.any(dim=1)), extent(ink.any(dim=2))
