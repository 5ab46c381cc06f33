"""The renderer by itself: how large what it makes on the way is, where its time goes, and the same written plainly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.layers import poses
from pipeline.layers.rendering import pixel_centres
from pipeline.systems.generative.settings import GenerativeModelParams

Renderer = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""Templates `[P, 2, h, w]`, poses `[B, P, 6]`, presences `[B, P]` and a picture's side: pictures `[B, S, S]`."""


def render_plainly(templates: Tensor, A: Tensor, presence: Tensor, size: int) -> Tensor:
    """The same pictures as `layers.rendering.render`, step by step as document 000 writes it.

    The points sampled are one product of all pixels with all inverse poses, presences weigh the drawings, and layers
    are taken out one by one.
    """
    batch, parts = A.shape[:2]
    inverse = poses.invert(poses.to_matrix(A))  # (B, P, 2, 3)
    points = pixel_centres(A, size) @ inverse.transpose(-1, -2)  # (B, P, S S, 2)
    source = templates.expand(batch, *templates.shape).flatten(0, 1)
    drawn = F.grid_sample(source, points.reshape(-1, size, size, 2), align_corners=False)
    drawn = drawn.unflatten(0, (batch, parts))
    colour, opacity = drawn[:, :, 0], drawn[:, :, 1] * presence[..., None, None]
    picture = colour[:, 0] * opacity[:, 0]
    for part in range(1, parts):
        picture = torch.lerp(picture, colour[:, part], opacity[:, part])
    return picture


def warps_bytes(params: GenerativeModelParams, batch: int, size: int) -> int:
    """Bytes of the templates' warps `[B, P, 2, S, S]`, colour and opacity of each part in float32."""
    return batch * params.parts * 2 * size**2 * 4


class _Largest(TorchDispatchMode):
    """Looks at everything that operators hand on, in the backward pass too; views of what was there make nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.operator = 0, ""

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: tuple[Any, ...] = (), named: dict[str, Any] | None = None
    ) -> Any:
        made = function(*arguments, **(named or {}))
        there = {_storage(each).data_ptr() for each in tree_leaves((arguments, named)) if isinstance(each, Tensor)}
        for each in tree_leaves(made):
            if isinstance(each, Tensor) and _storage(each).data_ptr() not in there:
                size = _storage(each).nbytes()
                if size > self.bytes:
                    self.bytes, self.operator = size, str(function.overloadpacket.__name__)
        return made


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def largest_made(work: Callable[[], object]) -> tuple[int, str]:
    """Bytes of the largest tensor that `work` makes, and the (first) operator that makes one so large."""
    with _Largest() as seen:
        work()
    return seen.bytes, seen.operator


def by_operator(work: Callable[[], object], device: torch.device, most: int = 6) -> str:
    """Operators with the largest shares of the time of one call of `work`, in words; the first call is not counted."""
    work()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as seen:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    spent: dict[str, float] = {}
    for each in seen.key_averages():
        time = each.self_device_time_total if device.type == "cuda" else each.self_cpu_time_total
        # Kernels of a GPU are counted with the operators that start them; ours are operators, with names in private.
        if each.key.startswith(("aten::", "_")):
            spent[each.key.removeprefix("aten::")] = time
    total = sum(spent.values()) or 1.0
    first = sorted(spent, key=lambda name: -spent[name])[:most]
    return ", ".join(f"{name} {100 * spent[name] / total:.0f} %" for name in first)
