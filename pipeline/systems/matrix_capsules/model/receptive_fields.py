"""Receptive fields of convolutional capsules, and sums over all parents of a child.

The layer below has `X = H H` positions. A kernel of `K x K` positions moves over it with a stride. There are
`p = H' H'` parent positions, with `H' = (H - K) // stride + 1`. Each sees `k = K K` positions below. A child may be
seen from several parent positions, from one (in a corner), or from none (in a last row or column outside all kernels).
"""

import torch
from torch import Tensor

from pipeline.errors import UserError


class ReceptiveFields:
    """The receptive fields of one layer, given H (`height`), K (`kernel`) and the `stride`, all in positions.

    Attributes:
        side: H', the number of parent positions along each side.
        children: the positions below that each parent position sees, row by row, `[p, k]`.
        counts: for each position below, the number of parent positions that see it, `[X]`.
        slots: for each position below, the indices in the flattened `children` at which it occurs, `[X, most]`, where
            `most` is the largest of `counts`. Shorter rows are padded with p k, the size of `children`.

    Raises:
        UserError: the kernel is larger than the layer below.
    """

    def __init__(self, height: int, kernel: int, stride: int) -> None:
        if kernel > height:
            raise UserError(f"kernels of {kernel}x{kernel} capsules see more than the {height}x{height} below them")
        self.side = (height - kernel) // stride + 1
        below = torch.arange(height * height, device="cpu")  # on the CPU, even if the model is built elsewhere
        places = below.view(height, height)
        self.children = places.unfold(0, kernel, stride).unfold(1, kernel, stride).reshape(-1, kernel * kernel)
        self.counts = torch.bincount(self.children.flatten(), minlength=height * height)
        seen, slots = self.children.flatten().sort(stable=True)
        first = torch.searchsorted(seen, below)
        rank = torch.arange(len(seen), device="cpu") - first[seen]
        self.slots = seen.new_full((height * height, int(rank.max()) + 1), len(seen))
        self.slots[seen, rank] = slots

    def to(self, device: torch.device) -> "ReceptiveFields":
        """Move the indices to `device`, in place. Returns this object."""
        self.children, self.counts = self.children.to(device), self.counts.to(device)
        self.slots = self.slots.to(device)
        return self

    def gather(self, below: Tensor) -> Tensor:
        """The values in `below [B, X, ...]` that each parent position sees, `[B, p, k, ...]`, for B images."""
        return below.index_select(1, self.children.flatten()).unflatten(1, self.children.shape)

    def sum(self, seen: Tensor) -> Tensor:
        """Sums over the parent positions that see a child (0 if there are none): `[B, p, k, ...]` to `[B, X, ...]`."""
        return self._slotted(seen, 0.0).sum(2)

    def amax(self, seen: Tensor) -> Tensor:
        """Maxima over the parent positions that see a child (-inf if there are none). Shapes are as in `sum`."""
        return self._slotted(seen, -torch.inf).amax(2)

    def _slotted(self, seen: Tensor, fill: float) -> Tensor:
        """Values `[B, p, k, ...]` grouped by child, `[B, X, most, ...]`, and padded with `fill`."""
        flat = seen.flatten(1, 2)
        filled = torch.cat([flat, flat.new_full((len(flat), 1, *flat.shape[2:]), fill)], 1)
        return filled.index_select(1, self.slots.flatten()).unflatten(1, self.slots.shape)
