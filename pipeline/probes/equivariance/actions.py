"""What is read off a model, and how theory says that it moves with the image: rho.

Shapes: B images, n capsules of k numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.probes.equivariance.transformations import moving

Map = Callable[[Tensor], Tensor]
"""From values `[B, n, k]` to values of the same shape."""


@dataclass(frozen=True)
class Pairs:
    """Training images' values to fit an action to; what theory prescribes whole needs none.

    Attributes:
        before: values `[N, n, k]` of the images.
        after: of the moved images; or derivatives.
        weights: `[N, n]`, how much each capsule counts.
    """

    before: Tensor
    after: Tensor
    weights: Tensor


class Action(Protocol):
    """rho: how values move with the image."""

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map | None:
        """rho(g) for the matrix `[2, 3]` of g in the frame of the image seen; None where theory says nothing."""

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map | None:
        """Its derivative at the identity, along a velocity `[2, 3]`."""


@dataclass(frozen=True)
class Layer:
    """A layer of a model, read off a batch of images.

    Attributes:
        numbers: `[B, n, k]`.
        weights: `[B, n]`: how present each capsule is, for the pose of an absent one means nothing.
        action: what theory gives; None: nothing, or that values should not change.
        fitted: whether a linear map of all n k numbers is fitted, too.
    """

    numbers: Tensor
    weights: Tensor
    action: Action | None
    fitted: bool = True


Read = Callable[[Tensor], dict[str, Layer]]
"""Reads layers by name off images as a model sees them, `[B, C, s, s]` in [0, 1], in any floating type."""


def plain(values: Tensor, action: Action | None, fitted: bool = True) -> Layer:
    """A layer of values `[B, n, k]` that all count alike."""
    return Layer(values, torch.ones_like(values[..., 0]), action, fitted)


class Poses:
    """Affine poses as offsets from the identity, k = 6: g multiplies them from the left (`pipeline.layers.poses`)."""

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map:
        """A becomes g (I + A) - I."""
        return lambda A: poses.to_offset(poses.compose(matrix.to(A), poses.to_matrix(A)))

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map:
        """A changes by the velocity at (I + A)."""

        def change(A: Tensor) -> Tensor:
            v = velocity.to(A)
            linear = v[:, :2] @ poses.to_matrix(A)
            return torch.cat([linear[..., :2], linear[..., 2:] + v[:, 2:]], -1).flatten(-2)

        return change


@dataclass(frozen=True)
class FromTheLeft:
    """Square pose matrices, k = side^2, row by row, that some T(g) multiplies from the left.

    Transformations of votes multiply from the right, so that T on every primary capsule becomes T on every capsule
    above (document 003, equation 5; document 004, section 3). Theory does not say which T: a network is free to choose.
    It is fitted by least squares to training images, the same side^2 numbers for all capsules.
    """

    side: int

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map:
        """The best T."""
        T = self._fit(pairs)
        return lambda values: (T.to(values) @ self._square(values)).flatten(-2)

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map:
        """The best derivative of T: fitted in the same way, to derivatives."""
        return self.finite(velocity, pairs)

    def _square(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (self.side, self.side))

    def _fit(self, pairs: Pairs) -> Tensor:
        before, after = self._square(pairs.before).double(), self._square(pairs.after).double()
        weighted = pairs.weights[..., None, None].double() * before
        normal = torch.einsum("bnij,bnkj->ik", weighted, before)
        return torch.linalg.lstsq(normal, torch.einsum("bnij,bnkj->ik", weighted, after)).solution.mT


@dataclass(frozen=True)
class Maps:
    """Pictures, k = side^2 pixels of each of n channels, in the frame of the image: they move as it does.

    Attributes:
        side: pixels a side.
        edge: what lies beyond the edges, as in `transformations.moving`.
    """

    side: int
    edge: str

    def finite(self, matrix: Tensor, pairs: Pairs) -> Map:
        """Each picture resampled as the image is."""

        def move(values: Tensor) -> Tensor:
            pictures = values.unflatten(-1, (self.side, self.side))
            if self.edge == "zeros":
                found = warps.warp(pictures, matrix.to(values).expand(len(values), 2, 3))
            else:
                sampling = poses.invert(matrix.to(values)).expand(len(values), 2, 3)
                grid = torch.nn.functional.affine_grid(sampling, list(pictures.shape), align_corners=False)
                found = torch.nn.functional.grid_sample(pictures, grid, padding_mode="border", align_corners=False)
            return found.to(values).flatten(-2)

        return move

    def generator(self, velocity: Tensor, pairs: Pairs) -> Map:
        """As the image changes."""
        return lambda values: moving(values.unflatten(-1, (self.side, self.side)), velocity, self.edge).flatten(-2)
