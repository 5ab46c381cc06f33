"""Set transformer (Lee et al. 2019) and attention pooling over space (document 000, section 4).

The document's "independent MLPs" have separate weights for each set element (`PerElement`). On a CPU, attention blocks
run in a compiled kernel (`attention.cpp`). `MultiheadAttentionBlock.plain_forward` computes the same in PyTorch.
"""

import ctypes
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipeline import kernels

_SOURCE = Path(__file__).with_name("attention.cpp")
_LANES = 8
"""The kernel needs heads whose width (`width / heads`) is a multiple of this number."""
_PARTS = ("query", "key_value", "feed", "norm_query", "norm_key", "norm_feed")
"""The layers of a block, in the kernel's order of their gradients. Each layer's weight comes before its bias."""


class PerElement(nn.Module):
    """A separate linear map for each of `count` elements: `[B, count, inputs] -> [B, count, outputs]`.
    Initial weights are uniform in [-gain, gain] / sqrt(inputs), initial biases are 0.
    """

    def __init__(self, count: int, inputs: int, outputs: int, gain: float = 1.0) -> None:
        super().__init__()
        bound = gain / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(count, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(count, outputs))

    def forward(self, x: Tensor) -> Tensor:
        # (count, B, inputs) @ (count, inputs, outputs): one batched product for all elements
        return (x.transpose(0, 1) @ self.weight).transpose(0, 1) + self.bias


class PerElementMLP(nn.Sequential):
    """For each element, a separate MLP with one hidden layer: `[B, count, inputs] -> [B, count, outputs]`."""

    def __init__(self, count: int, inputs: int, hidden: int, outputs: int, last_gain: float = 1.0) -> None:
        super().__init__(
            PerElement(count, inputs, hidden, math.sqrt(3.0)), nn.ELU(), PerElement(count, hidden, outputs, last_gain)
        )


class AttentionPooling(nn.Module):
    """Pools spatial features for each part. A 1x1 convolution gives each part (features + 1) channels. The softmax of
    the last channel over positions gives weights. With these, the other channels are summed over positions.

    `[B, channels, H, W] -> [B, parts, features]`.
    """

    def __init__(self, channels: int, parts: int, features: int) -> None:
        super().__init__()
        self.parts = parts
        self.project = nn.Conv2d(channels, parts * (features + 1), kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.project.weight.flatten(1).unflatten(0, (self.parts, -1))  # (parts, features + 1, channels)
        bias = self.project.bias.unflatten(0, (self.parts, -1))  # type: ignore[union-attr]
        # The input is summed over positions before it is mapped to features, so that one product per part suffices. The
        # result is the same, because a part's shares sum to 1. The bias of scores is left out: softmax would cancel it.
        scores = F.conv2d(x, weight[:, -1, :, None, None])
        shares, x = scores.flatten(2).softmax(dim=-1), x.flatten(2)  # (B, parts, H * W), (B, channels, H * W)
        pooled = (shares @ x.transpose(-1, -2)).transpose(0, 1)  # (parts, B, channels)
        return (pooled @ weight[:, :-1].transpose(-1, -2)).transpose(0, 1) + bias[:, :-1]


class MultiheadAttentionBlock(nn.Module):
    """MAB(X, Y) = H + relu(W LN(H)), H = X + attention(LN(X), LN(Y)); `X [B, n, d]`, `Y [B, m, d]`, result `[B, n, d]`.

    LayerNorm is applied before attention and before the feed-forward layer (pre-norm), so that the residual path leaves
    X unchanged. Lee et al. apply it after both (post-norm). With a stack of eight post-norm blocks, the object encoder
    gives the same output for every image, and training does not change this.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_query, self.norm_key, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.feed = nn.Linear(width, width)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)  # (B, heads, n, d / heads)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The result `[B, n, d]`, from the compiled kernel if the inputs are `supported`, else from `plain_forward`."""
        return attend(self, x, y) if supported(self, x, y) else self.plain_forward(x, y)

    def plain_forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The result `[B, n, d]`, from PyTorch's operators."""
        query = self._split(self.query(self.norm_query(x)))
        key, value = (self._split(half) for half in self.key_value(self.norm_key(y)).chunk(2, dim=-1))
        scores = query @ key.transpose(-1, -2) / math.sqrt(x.shape[-1] / self.heads)
        h = x + (scores.softmax(dim=-1) @ value).transpose(-2, -3).flatten(-2)
        return h + self.feed(self.norm_feed(h)).relu()


class InducedSetAttentionBlock(nn.Module):
    """ISAB: attention among n set elements through m learned inducing points, at a cost of n m instead of n^2."""

    def __init__(self, width: int, heads: int, inducing: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.empty(1, inducing, width))
        nn.init.xavier_uniform_(self.points)
        self.gather = MultiheadAttentionBlock(width, heads)
        self.spread = MultiheadAttentionBlock(width, heads)

    def forward(self, x: Tensor) -> Tensor:
        return self.spread(x, self.gather(self.points, x))


class SetTransformer(nn.Module):
    """Maps a set of n elements to a fixed number of codes: `[B, n, width] -> [B, outputs, code]`. ISABs are followed by
    attention with one learned query (seed) per output, and a linear map. The order of the elements does not matter.
    """

    def __init__(self, width: int, heads: int, inducing: int, blocks: int, outputs: int, code: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(InducedSetAttentionBlock(width, heads, inducing) for _ in range(blocks))
        self.seeds = nn.Parameter(torch.empty(1, outputs, width))
        nn.init.xavier_uniform_(self.seeds)
        self.pool = MultiheadAttentionBlock(width, heads)
        self.norm = nn.LayerNorm(width)
        self.code = nn.Linear(width, code)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.code(self.norm(self.pool(self.seeds, x)))


def supported(block: MultiheadAttentionBlock, x: Tensor, y: Tensor) -> bool:
    """Whether the kernel can be used for queries `x [B or 1, n, d]` and keys `y [B, m, d]` of a block."""
    return (
        x.device.type == "cpu"
        and x.dtype == y.dtype == block.query.weight.dtype == torch.float32
        and x.dim() == y.dim() == 3
        and x.shape[0] in (1, y.shape[0])
        and min(x.numel(), y.numel()) > 0
        and x.shape[-1] // block.heads % _LANES == 0
        and kernels.load(_SOURCE) is not None
    )


def attend(block: MultiheadAttentionBlock, x: Tensor, y: Tensor, form: kernels.Kernel | None = None) -> Tensor:
    """Compute `block.plain_forward(x, y)`, `[B, n, d]`, with the kernel. The inputs must be `supported`. `form` is the
    compiled kernel to call, by default the one for this processor. Raises `MemoryError` if memory runs out.
    """
    parameters = [each for name in _PARTS for each in (getattr(block, name).weight, getattr(block, name).bias)]
    kernel, eps = form or kernels.load(_SOURCE), block.norm_query.eps
    result: Tensor = _Attend.apply(x, y, block.heads, eps, kernel, *parameters)
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


def _struct(x: Tensor, y: Tensor, heads: int, eps: float, parameters: list[Tensor]) -> kernels.Struct:
    """The kernel's `struct Block`. `parameters` are in the order of `_PARTS`. In the struct, the norms' come first."""
    half = len(parameters) // 2
    pointers = {f"parameter_{place}": each for place, each in enumerate(parameters[half:] + parameters[:half])}
    return kernels.struct(
        images=len(y), queries=x.shape[1], keys=y.shape[1], width=y.shape[2], heads=heads, shared=len(x) < len(y),
        threads=torch.get_num_threads(), x=x, y=y, **pointers, eps=ctypes.c_double(eps),
    )  # fmt: skip
