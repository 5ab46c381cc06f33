"""A block of multihead attention by the compiled kernel (`attention.cpp`): numbers and gradients of
`attention.MultiheadAttentionBlock`, whose `plain_forward` is the form to read.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from pipeline import kernels

_SOURCE = Path(__file__).with_name("attention.cpp")
_LANES = 8
"""The numbers of a head must be a multiple of it."""
_PARTS = ("query", "key_value", "feed", "norm_query", "norm_key", "norm_feed")
"""Layers of a block, in the order of their gradients in the kernel: weight, then bias."""
_INT, _POINTER = ctypes.c_int64, ctypes.c_void_p


class _Linear(ctypes.Structure):
    """`struct Linear` of the kernel."""

    _fields_ = (("weight", _POINTER), ("bias", _POINTER))


class _Block(ctypes.Structure):
    """`struct Block` of the kernel, field by field."""

    _fields_ = (
        *((name, _INT) for name in ("images", "queries", "keys", "width", "heads", "shared", "threads")),
        *((name, _POINTER) for name in ("x", "y")),
        *((name, _Linear) for name in ("norm_query", "norm_key", "norm_feed", "query", "key_value", "feed")),
        ("eps", ctypes.c_double),
    )


def supported(block: nn.Module, x: Tensor, y: Tensor) -> bool:
    """Whether the kernel can be used for queries `x [B or 1, n, d]` and keys `y [B, m, d]` of such a block."""
    return (
        x.device.type == "cpu"
        and x.dtype == y.dtype == cast(nn.Linear, block.query).weight.dtype == torch.float32
        and x.dim() == y.dim() == 3
        and x.shape[0] in (1, y.shape[0])
        and min(x.numel(), y.numel()) > 0
        and x.shape[-1] // cast(int, block.heads) % _LANES == 0
        and kernels.load(_SOURCE) is not None
    )


def attend(block: nn.Module, x: Tensor, y: Tensor, form: kernels.Kernel | None = None) -> Tensor:
    """`block.plain_forward(x, y)`, `[B, n, d]`, where that is `supported`.

    Args:
        form: of the kernel; None for the best that this processor has.

    Raises:
        MemoryError: there is not enough memory.
    """
    parameters = [each for name in _PARTS for each in (getattr(block, name).weight, getattr(block, name).bias)]
    eps = cast(nn.LayerNorm, block.norm_query).eps
    result: Tensor = _Attend.apply(x, y, block.heads, eps, form or kernels.load(_SOURCE), *parameters)
    return result


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, heads, eps, kernel, *parameters):  # type: ignore[no-untyped-def]
        x, y, *parameters = (each.contiguous() for each in (x, y, *parameters))
        block = _struct(x, y, heads, eps, parameters)
        kept, out = x.new_empty(kernel.kept_floats(block)), x.new_empty(len(y), *x.shape[1:])
        kernel.call("attention_forward", block, kept, out)
        ctx.save_for_backward(kept, x, y, *parameters)
        ctx.settings = heads, eps, kernel
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        kept, x, y, *parameters = ctx.saved_tensors
        heads, eps, kernel = ctx.settings
        sizes = [each.numel() for each in parameters]
        to_x, to_y, found = torch.empty_like(x), torch.empty_like(y), x.new_empty(sum(sizes))
        block = _struct(x, y, heads, eps, parameters)
        kernel.call("attention_backward", block, kept, gradient.contiguous(), to_x, to_y, found)
        gradients = (part.view_as(each) for part, each in zip(found.split(sizes), parameters, strict=True))
        return to_x, to_y, None, None, None, *gradients


def _struct(x: Tensor, y: Tensor, heads: int, eps: float, parameters: list[Tensor]) -> _Block:
    """The kernel's view of a block; it does not keep the tensors alive."""
    addresses = [each.data_ptr() for each in parameters]
    linears = {name: _Linear(*addresses[2 * place : 2 * place + 2]) for place, name in enumerate(_PARTS)}
    return _Block(
        images=len(y),
        queries=x.shape[1],
        keys=y.shape[1],
        width=x.shape[2],
        heads=heads,
        shared=len(x) < len(y),
        threads=torch.get_num_threads(),
        x=x.data_ptr(),
        y=y.data_ptr(),
        eps=eps,
        **linears,
    )
