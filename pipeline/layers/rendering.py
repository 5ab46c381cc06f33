"""Renders templates at their poses by alpha compositing (document 000, section 2.1).

A layer is a template drawn at its pose. On a CPU, a compiled kernel (`rendering.cpp`) renders without storing all
layers. `plain_render` computes the same and is easier to read. Shapes: B images, P parts, each with one template.
"""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline import kernels
from pipeline.layers import poses

_SOURCE = Path(__file__).with_name("rendering.cpp")


def pixel_centres(like: Tensor, size: int) -> Tensor:
    """Homogeneous coordinates (x, y, 1) of the centres of all pixels, row by row, `[size * size, 3]`."""
    ticks = _ticks(like, size)
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    return torch.stack([x, y, torch.ones_like(x)], dim=-1).flatten(0, 1)


def _ticks(like: Tensor, size: int) -> Tensor:
    """Coordinates of the pixels' centres along one side, `[size]`."""
    return (torch.arange(size, dtype=like.dtype, device=like.device) * 2 + 1) / size - 1


def sampling_points(A: Tensor, size: int) -> Tensor:
    """For each pixel x, its position (I + A)^-1 x in every template's frame, `[B, P, size, size, 2]`. The poses
    `A [B, P, 6]` are matrices of two rows, without the identity I.

    A term for the column and a term for the row are computed separately and added in one pass over the result.
    One matrix product for all pixels would take twice as long on a CPU.
    """
    inverse = poses.invert(poses.to_matrix(A)).unsqueeze(-3)  # (B, P, 1, 2, 3)
    ticks = _ticks(A, size).unsqueeze(-1)
    columns = ticks * inverse[..., 0]  # (B, P, size, 2)
    rows = ticks * inverse[..., 1] + inverse[..., 2]
    return rows.unsqueeze(-2) + columns.unsqueeze(-3)


def warp_templates(templates: Tensor, A: Tensor, size: int) -> Tensor:
    """Draw templates at poses `A [B, P, 6]` by bilinear interpolation, with 0 outside a template.

    Returns layers `[B, P, C, size, size]`. Templates are `[P, C, h, w]`, or `[B, P, C, h, w]` if each image has its own
    templates. A pose maps a template's frame to the image: the layer at x equals the template at (I + A)^-1 x.
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
    """Composite layers `[B, P, 2, H, W]` (intensity C_j, opacity a_j, in [0, 1]) on black. Returns `[B, H, W]`.

    The operator "over" lays one layer after another on a picture Q, which is black at first: Q <- Q + a_j (C_j - Q).
    """
    # One `unbind` separates all layers, because its backward pass is a single stack. With indexing, the backward pass
    # would fill a tensor as large as `layers` with zeros for each layer.
    first, opacity, *above = layers.flatten(1, 2).unbind(1)
    picture = first * opacity
    for colour, alpha in zip(above[::2], above[1::2], strict=True):
        picture = torch.lerp(picture, colour, alpha)
    return picture


def render(templates: Tensor, A: Tensor, presence: Tensor, size: int) -> Tensor:
    """Draw templates `[P, 2, h, w]` (intensity and opacity in [0, 1]) at poses `A [B, P, 6]`. A template's opacity is
    multiplied by its `presence [B, P]`, in [0, 1]. Returns images `[B, size, size]`.
    """
    found = compiled_render if supported(templates, A, presence) else plain_render
    return found(templates, A, presence, size)


def plain_render(templates: Tensor, A: Tensor, presence: Tensor, size: int) -> Tensor:
    """The images of `render`, always computed with PyTorch's operators."""
    colour, alpha = templates.unbind(1)
    # Interpolation is linear, so presences can multiply the small templates instead of the large layers.
    weighted = presence[..., None, None] * alpha  # (B, P, h, w)
    return composite(warp_templates(torch.stack([colour.expand_as(weighted), weighted], dim=2), A, size))


def supported(templates: Tensor, A: Tensor, presence: Tensor) -> bool:
    """Whether the kernel supports templates `[P, 2, h, w]`, poses `[B, P, 6]` and presences `[B, P]`."""
    return (
        A.device.type == "cpu"
        and templates.dtype == A.dtype == presence.dtype == torch.float32
        and A.dim() == 3
        and templates.shape[:-2] == (A.shape[1], 2)
        and presence.shape == A.shape[:2]
        and A.numel() > 0
        and kernels.load(_SOURCE) is not None
    )


def compiled_render(
    templates: Tensor, A: Tensor, presence: Tensor, size: int, form: kernels.Kernel | None = None
) -> Tensor:
    """Compute `plain_render(templates, A, presence, size)` with the kernel. The inputs must be `supported`. `form` is
    the compiled kernel to call, by default the one for this processor. Raises `MemoryError` if memory runs out.
    """
    inverse = poses.invert(poses.to_matrix(A))
    pictures: Tensor = _Render.apply(templates, inverse, presence, size, form or kernels.load(_SOURCE))
    return pictures


class _Render(torch.autograd.Function):
    @staticmethod
    def forward(ctx, templates, inverse, presence, size, kernel):  # type: ignore[no-untyped-def]
        inputs = [each.contiguous() for each in (templates, inverse, presence)]
        pictures = inverse.new_empty(len(inverse), size, size)
        kernel.call("render_forward", _scene(*inputs, size), pictures)
        ctx.save_for_backward(*inputs)
        ctx.size, ctx.kernel = size, kernel
        return pictures

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        inputs = ctx.saved_tensors
        found = [torch.empty_like(each) for each in inputs]
        ctx.kernel.call("render_backward", _scene(*inputs, ctx.size), gradient.contiguous(), *found)
        return *found, None, None


def _scene(templates: Tensor, inverse: Tensor, presence: Tensor, size: int) -> kernels.Struct:
    (images, parts), (height, width) = presence.shape, templates.shape[-2:]
    return kernels.struct(
        images=images, parts=parts, height=height, width=width, size=size, threads=torch.get_num_threads(),
        templates=templates, inverse=inverse, presence=presence,
    )  # fmt: skip
