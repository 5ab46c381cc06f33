"""Templates drawn at their poses and laid over each other (document 000, section 2.1, "alpha compositing")."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.layers import poses


@lru_cache(maxsize=16)
def _pixel_centres(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Homogeneous pixel centres `[size * size, 3]` of a square image, in frame coordinates."""
    ticks = (torch.arange(size, dtype=dtype, device=device) * 2 + 1) / size - 1
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    return torch.stack([x, y, torch.ones_like(x)], dim=-1).flatten(0, 1)


def warp_templates(templates: Tensor, A: Tensor, size: int) -> Tensor:
    """Each template drawn at its pose, zero outside of it, by bilinear interpolation.

    The pose maps the template's frame to the image, so the value at image point x is the template's at (I + A)^-1 x.

    Args:
        templates: `[P, C, h, w]`, C channels for each of P parts.
        A: poses `[B, P, 6]`, offsets from the identity.
        size: side of the image, in pixels.

    Returns:
        `[B, P, C, size, size]`.
    """
    batch, parts = A.shape[:2]
    inverse = poses.invert(poses.to_matrix(A))  # (B, P, 2, 3)
    grid = _pixel_centres(size, A.dtype, A.device) @ inverse.transpose(-1, -2)  # (B, P, size * size, 2)
    source = templates.expand(batch, *templates.shape).flatten(0, 1)  # (B * P, C, h, w)
    warped = F.grid_sample(
        source, grid.reshape(batch * parts, size, size, 2), mode="bilinear", padding_mode="zeros", align_corners=False
    )
    return warped.unflatten(0, (batch, parts))


def composite(colour: Tensor, alpha: Tensor) -> Tensor:
    """Lay P drawings over a black background in their order, each "over" those before it.

    With a black background and premultiplied colour the operator is P <- P + a_j (C_j - P).

    Args:
        colour: `[B, P, H, W]` intensities.
        alpha: `[B, P, H, W]` opacities in [0, 1].

    Returns:
        `[B, H, W]`.
    """
    # unbind, not indexing: its gradient is one stack, where each index would fill a zero tensor of the full size
    colours, alphas = colour.unbind(1), alpha.unbind(1)
    picture = colours[0] * alphas[0]
    for c, a in zip(colours[1:], alphas[1:], strict=True):
        picture = torch.lerp(picture, c, a)
    return picture


def render(templates: Tensor, A: Tensor, presence: Tensor, size: int) -> Tensor:
    """The picture of parts at their poses, each part's opacity weighted by its presence.

    Args:
        templates: `[P, 2, h, w]`: intensity and opacity, both in [0, 1].
        A: poses `[B, P, 6]`.
        presence: `[B, P]` in [0, 1].
        size: side of the picture, in pixels.

    Returns:
        `[B, size, size]`.
    """
    colour, alpha = warp_templates(templates, A, size).unbind(2)
    return composite(colour, alpha * presence[..., None, None])
