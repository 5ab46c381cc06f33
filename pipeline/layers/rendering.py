"""Rendering of templates at their poses by alpha compositing (document 000, section 2.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.layers import compiled_rendering, poses


def pixel_centres(like: Tensor, size: int) -> Tensor:
    """Homogeneous coordinates (x, y, 1) of the centres of all pixels, row by row, `[size * size, 3]`."""
    ticks = _ticks(like, size)
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    return torch.stack([x, y, torch.ones_like(x)], dim=-1).flatten(0, 1)


def _ticks(like: Tensor, size: int) -> Tensor:
    """Coordinates of the pixels' centres along one side, `[size]`."""
    return (torch.arange(size, dtype=like.dtype, device=like.device) * 2 + 1) / size - 1


def sampling_points(A: Tensor, size: int) -> Tensor:
    """The position of each image pixel in each template's frame, `[B, P, size, size, 2]`: (I + A)^-1 x.

    The terms of columns and of rows are computed separately and added in one pass over the result. One matrix product
    over all pixels takes twice as long on a CPU.
    """
    inverse = poses.invert(poses.to_matrix(A)).unsqueeze(-3)  # (B, P, 1, 2, 3)
    ticks = _ticks(A, size).unsqueeze(-1)
    columns = ticks * inverse[..., 0]  # (B, P, size, 2)
    rows = ticks * inverse[..., 1] + inverse[..., 2]
    return rows.unsqueeze(-2) + columns.unsqueeze(-3)


def warp_templates(templates: Tensor, A: Tensor, size: int) -> Tensor:
    """Each template drawn at its pose with bilinear interpolation, zero outside of it.

    The pose maps the template's frame to the image, so the value at image point x is the template's at (I + A)^-1 x.

    Args:
        templates: `[P, C, h, w]`, C channels for each of P parts, or `[B, P, C, h, w]`, different for each image.
        A: poses `[B, P, 6]`, offsets from the identity.
        size: side of the image, in pixels.

    Returns:
        `[B, P, C, size, size]`.
    """
    return sample_templates(templates, sampling_points(A, size))


def sample_templates(templates: Tensor, points: Tensor) -> Tensor:
    """The templates' values at `points [B, P, H, W, 2]` in their frames, `[B, P, C, H, W]`."""
    source = templates.expand(*points.shape[:2], *templates.shape[-3:])
    drawn = F.grid_sample(
        source.flatten(0, 1), points.flatten(0, 1), mode="bilinear", padding_mode="zeros", align_corners=False
    )
    return drawn.unflatten(0, points.shape[:2])


def composite(layers: Tensor) -> Tensor:
    """Composite P layers over a black background, in order, with the operator "over".

    With a black background and premultiplied colour the operator is P <- P + a_j (C_j - P).

    Args:
        layers: `[B, P, 2, H, W]`: intensity C_j and opacity a_j in [0, 1] of each layer.

    Returns:
        `[B, H, W]`.
    """
    # All layers are unbound at once: the gradient is then one stack. Indexing would fill a full-size zero tensor for
    # each layer.
    first, opacity, *above = layers.flatten(1, 2).unbind(1)
    picture = first * opacity
    for colour, alpha in zip(above[::2], above[1::2], strict=True):
        picture = torch.lerp(picture, colour, alpha)
    return picture


def render(templates: Tensor, A: Tensor, presence: Tensor, size: int) -> Tensor:
    """The image of parts at their poses, each part's opacity weighted by its presence.

    Args:
        templates: `[P, 2, h, w]`: intensity and opacity, both in [0, 1].
        A: poses `[B, P, 6]`.
        presence: `[B, P]` in [0, 1].
        size: side of the image, in pixels.

    By the compiled kernel where it can be used, else by `plain_render`.

    Returns:
        `[B, size, size]`.
    """
    if compiled_rendering.supported(templates, A, presence):
        return compiled_rendering.render(templates, A, presence, size)
    return plain_render(templates, A, presence, size)


def plain_render(templates: Tensor, A: Tensor, presence: Tensor, size: int) -> Tensor:
    """As `render`, in PyTorch's operators."""
    colour, alpha = templates.unbind(1)
    # Interpolation is linear, so presences can weight the small templates instead of the large layers.
    weighted = presence[..., None, None] * alpha  # (B, P, h, w)
    return composite(warp_templates(torch.stack([colour.expand_as(weighted), weighted], dim=2), A, size))
