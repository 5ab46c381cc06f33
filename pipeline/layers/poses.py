"""Affine poses in the plane.

The pose of a capsule (an object or a part) maps the capsule's frame to the image's frame. In a frame, both coordinates
go from -1 to 1, x to the right and y down. A pose is a 2x3 matrix [L | b] that maps a point p to L p + b. Capsules
store the offset `A` of a pose from the identity, pose = I + A, as six numbers, row by row (document 000, section 2.1).
If the image is rotated by R, every pose is multiplied by R from the left: I + A becomes R (I + A).
"""

import math

import torch
from torch import Tensor

POSE_SIZE = 6
"""Number of values in a pose."""

_SMALLEST_DETERMINANT = 1e-3


def identity(like: Tensor) -> Tensor:
    """The identity pose as a matrix `[2, 3]`, with the type and device of `like`."""
    return torch.eye(2, 3, dtype=like.dtype, device=like.device)


def to_matrix(A: Tensor) -> Tensor:
    """Offsets `A [..., 6]` as pose matrices `I + A [..., 2, 3]`."""
    return A.unflatten(-1, (2, 3)) + identity(A)


def homogeneous(A: Tensor) -> Tensor:
    """Offsets `A [..., 6]` as pose matrices `[..., 3, 3]` for homogeneous coordinates."""
    matrix = torch.nn.functional.pad(to_matrix(A), (0, 0, 0, 1))
    matrix[..., 2, 2] = 1
    return matrix


def to_offset(matrix: Tensor) -> Tensor:
    """Pose matrices `[..., 2, 3]` as offsets from the identity `[..., 6]`."""
    return (matrix - identity(matrix)).flatten(-2)


def compose(outer: Tensor, inner: Tensor) -> Tensor:
    """`x -> outer(inner(x))` for matrices `[..., 2, 3]`, broadcast over leading dimensions."""
    linear = outer[..., :2] @ inner
    return torch.cat([linear[..., :2], linear[..., 2:] + outer[..., 2:]], dim=-1)


def invert(matrix: Tensor) -> Tensor:
    """The inverse of each map `[..., 2, 3]`. A determinant within 1e-3 of 0 becomes -1e-3 if negative, otherwise 1e-3.
    This keeps the inverse finite if a pose squeezes a template to a line.
    """
    a, b = matrix[..., 0, 0], matrix[..., 0, 1]
    c, d = matrix[..., 1, 0], matrix[..., 1, 1]
    determinant = a * d - b * c
    sign = torch.where(determinant < 0, -1.0, 1.0).to(determinant)
    determinant = sign * determinant.abs().clamp_min(_SMALLEST_DETERMINANT)
    linear = torch.stack([d, -b, -c, a], dim=-1).unflatten(-1, (2, 2)) / determinant[..., None, None]
    return torch.cat([linear, -linear @ matrix[..., 2:]], dim=-1)


def rotation(angles: Tensor) -> Tensor:
    """Matrices `[..., 2, 3]` that rotate by `angles [...]`, in degrees, counter-clockwise in the image."""
    radians = torch.deg2rad(angles)
    cos, sin, zero = radians.cos(), radians.sin(), torch.zeros_like(radians)
    return torch.stack([cos, sin, zero, -sin, cos, zero], dim=-1).unflatten(-1, (2, 3))


def spread(count: int, scale: float) -> Tensor:
    """Offsets `[count, 6]` of upright frames, each `scale` times as large as the image. Their centres are on a grid
    from -1/2 to 1/2 along both axes.
    """
    side = math.isqrt(count - 1) + 1
    ticks = torch.linspace(-0.5, 0.5, side) if side > 1 else torch.zeros(1)
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    # If there are fewer frames than grid points, frames are spread evenly, so that no side of the grid is left empty.
    places = torch.linspace(0, side * side - 1, count).round().long()
    matrix = torch.zeros(count, 2, 3)
    matrix[:, 0, 0] = matrix[:, 1, 1] = scale
    matrix[:, 0, 2], matrix[:, 1, 2] = x.flatten()[places], y.flatten()[places]
    return to_offset(matrix)
