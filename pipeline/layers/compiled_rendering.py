"""The renderer by the compiled kernel (`rendering.cpp`): numbers and gradients of `rendering.plain_render`, the form to
read, without an array for each layer.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from torch import Tensor

from pipeline import kernels
from pipeline.layers import poses

_SOURCE = Path(__file__).with_name("rendering.cpp")
_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p


class _Scene(ctypes.Structure):
    """`struct Scene` of the kernel, field by field."""

    _fields_ = (
        *((name, _INT) for name in ("images", "parts", "height", "width", "size", "threads")),
        *((name, _POINTER) for name in ("templates", "inverse", "presence")),
    )


def supported(templates: Tensor, A: Tensor, presence: Tensor) -> bool:
    """Whether the kernel can be used for templates `[P, 2, h, w]`, poses `[B, P, 6]` and presences `[B, P]`."""
    return (
        A.device.type == "cpu"
        and templates.dtype == A.dtype == presence.dtype == torch.float32
        and templates.dim() == 4
        and A.dim() == 3
        and presence.shape == A.shape[:2]
        and A.numel() > 0
        and kernels.load(_SOURCE) is not None
    )


def render(templates: Tensor, A: Tensor, presence: Tensor, size: int, form: kernels.Kernel | None = None) -> Tensor:
    """`rendering.plain_render(templates, A, presence, size)`, `[B, size, size]`, where that is `supported`.

    Args:
        form: of the kernel; None for the best that this processor has.

    Raises:
        MemoryError: there is not enough memory.
    """
    inverse = poses.invert(poses.to_matrix(A))
    pictures: Tensor = _Render.apply(templates, inverse, presence, size, form or kernels.load(_SOURCE))
    return pictures


class _Render(torch.autograd.Function):
    @staticmethod
    def forward(ctx, templates, inverse, presence, size, kernel):  # type: ignore[no-untyped-def]
        inputs = [each.contiguous() for each in (templates, inverse, presence)]
        pictures = inverse.new_empty(len(inverse), size, size)
        kernel.call("render_forward", _struct(*inputs, size), pictures)
        ctx.save_for_backward(*inputs)
        ctx.size, ctx.kernel = size, kernel
        return pictures

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        inputs = ctx.saved_tensors
        found = [torch.empty_like(each) for each in inputs]
        ctx.kernel.call("render_backward", _struct(*inputs, ctx.size), gradient.contiguous(), *found)
        return *found, None, None


def _struct(templates: Tensor, inverse: Tensor, presence: Tensor, size: int) -> _Scene:
    """The kernel's view of what is drawn; it does not keep the tensors alive."""
    (images, parts), (height, width) = presence.shape, templates.shape[-2:]
    addresses = (each.data_ptr() for each in (templates, inverse, presence))
    return _Scene(images, parts, height, width, size, torch.get_num_threads(), *addresses)
