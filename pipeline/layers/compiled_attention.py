"""A block of multihead attention by the compiled kernel (`attention.cpp`): numbers and gradients of
`attention.MultiheadAttentionBlock`, whose `plain_forward` is the form to read.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pipeline import kernels

if TYPE_CHECKING:
    from pipeline.layers.attention import MultiheadAttentionBlock

_SOURCE = Path(__file__).with_name("attention.cpp")
_NAME = "attention"
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


def unsupported(block: MultiheadAttentionBlock, x: Tensor, y: Tensor) -> str | None:
    """Why the kernel cannot be used for queries `x [B or 1, n, d]` and keys `y [B, m, d]`; None if it can."""
    if x.device.type != "cpu":
        return f"tensors are on {x.device.type}"
    if not x.dtype == y.dtype == block.query.weight.dtype == torch.float32:
        return f"numbers are {x.dtype}"
    if x.dim() != 3 or y.dim() != 3 or x.shape[0] not in (1, y.shape[0]) or not x.numel() or not y.numel():
        return f"sets are of shapes {tuple(x.shape)} and {tuple(y.shape)}"
    if x.shape[-1] // block.heads % _LANES:
        return f"heads have {x.shape[-1] // block.heads} numbers"
    if kernels.load(_SOURCE) is None:
        return "the kernel is not compiled"
    return None


def attend(block: MultiheadAttentionBlock, x: Tensor, y: Tensor, form: kernels.Kernel | None = None) -> Tensor:
    """`block.plain_forward(x, y)`, `[B, n, d]`.

    Args:
        form: of the kernel; None for the best that this processor has.

    Raises:
        ValueError: the kernel does not support these inputs; the message has the reason.
        MemoryError: there is not enough memory.
    """
    reason = unsupported(block, x, y)
    if reason is not None:
        raise ValueError(f"the compiled kernel of attention cannot be used: {reason}")
    parameters = [each for name in _PARTS for each in (getattr(block, name).weight, getattr(block, name).bias)]
    result: Tensor = _Attend.apply(x, y, block.heads, block.norm_query.eps, form or kernels.load(_SOURCE), *parameters)
    return result


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, heads, eps, kernel, *parameters):  # type: ignore[no-untyped-def]
        x, y, *parameters = (each.contiguous() for each in (x, y, *parameters))
        block = _struct(x, y, heads, eps, parameters)
        library = kernel.library
        library.kept_floats.restype = ctypes.c_int64
        kept = x.new_empty(library.kept_floats(ctypes.byref(block)))
        out = x.new_empty(len(y), *x.shape[1:])
        code = library.attention_forward(ctypes.byref(block), kernels.pointer(kept), kernels.pointer(out))
        kernels.check(code, _NAME)
        ctx.save_for_backward(kept, x, y, *parameters)
        ctx.settings = heads, eps, library
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        kept, x, y, *parameters = ctx.saved_tensors
        heads, eps, library = ctx.settings
        block = _struct(x, y, heads, eps, parameters)
        gradient = gradient.contiguous()
        sizes = [each.numel() for each in parameters]
        to_x, to_y, found = torch.empty_like(x), torch.empty_like(y), x.new_empty(sum(sizes))
        pointers = map(kernels.pointer, (kept, gradient, to_x, to_y, found))
        kernels.check(library.attention_backward(ctypes.byref(block), *pointers), _NAME)
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
