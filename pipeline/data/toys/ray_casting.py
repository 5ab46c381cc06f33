"""Ray casting of solids that consist of a few convex pieces, in closed form and in double precision.

A piece is described in local coordinates `l`, within the cube `|l| <= 1`, and placed in the world by an affine map,
`x = centre + axes l`. There are two kinds of pieces:

- *round*: `l_x^2 + l_y^2 <= p + q l_z + w l_z^2` between flat ends at `l_z = -1` and `1`. The profile `(p, q, w)` is
  `(1, 0, -1)` for an ellipsoid, `(1, 0, 0)` for a cylinder and `(1/2, -1/2, 0)` for a paraboloid.
- *blocks*: `n . l <= h` for each of six planes, with normal `n` and offset `h`. Boxes, wedges and wings are blocks.

The rays of a pinhole camera are `x = eye + t (u right + v down + ahead)`, with `u` and `v` in pixels from the middle of
the image (see `cast`). A ray meets the piece with the smallest `t` first. Affine maps do not change `t`. A piece is
tested only against the rays through its bounding rectangle.

World axes are x forward, y left, z up.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Vectors = tuple[Floats, Floats, Floats]
"""x, y and z of vectors as separate arrays: faster than one array `[..., 3]`."""

RAYS = 2
"""Rays per pixel along each axis. A pixel's value is the mean over its rays."""

_TINY = 1e-12
"""Replaces zero as a divisor. Too small to move a hit by a thousandth of a pixel."""

_CUBE = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])


@dataclass(frozen=True)
class Piece:
    """A round piece or a block.

    Attributes:
        centre: `[3]`.
        axes: `[3, 3]`, its local axes as columns, from the centre to the faces of the cube around it.
        surface: for a round piece, the profile `[3]` (`p`, `q`, `w`), with a squared radius in [0, 1] at every height
            `l_z`; for a block, the planes `[6, 4]`, a normal `n` and an offset `h` each.
        points: `[n, 3]` in local coordinates, on the surface; their convex hull is close to the piece.
    """

    centre: Floats
    axes: Floats
    surface: Floats
    points: Floats

    def outline(self) -> Floats:
        """The points `[n, 3]` on the surface, in world coordinates."""
        return self.centre + self.points @ self.axes.T


Solid = tuple[Piece, ...]


class Light(NamedTuple):
    """A distant lamp, a sky that is brightest above, and the background.

    Attributes:
        direction: `[3]` unit vector towards the lamp.
        lamp, sky, ambient: brightness that each adds to a white surface. `lamp` is for a surface that faces the lamp,
            `sky` for one that faces up (half of it sideways, 0 down), `ambient` for every surface.
        background: brightness where a ray hits nothing.
    """

    direction: Floats
    lamp: float
    sky: float
    ambient: float
    background: float


def ray_positions(size: int) -> Floats:
    """Positions of the rays along one axis of an image `[RAYS size]`, in pixels from its middle."""
    return (np.arange(RAYS * size) + 0.5) / RAYS - size / 2


def moved(solid: Solid, linear: Floats, shift: Floats | float = 0.0) -> Solid:
    """The solid after `x -> linear x + shift`, `linear` `[3, 3]`."""
    return tuple(replace(piece, centre=linear @ piece.centre + shift, axes=linear @ piece.axes) for piece in solid)


def cast(solid: Solid, grey: float, turn: Floats, eye: Floats, frame: Floats, light: Light, size: int) -> Floats:
    """Brightness `[size, size]` (0 black, 1 white) of a solid that is in front of a pinhole camera.

    Args:
        grey: share of the light that the solid reflects.
        turn: `[3, 3]`, the solid's rotation about the world's origin.
        eye: `[3]`, the centre of the camera.
        frame: `[3, 3]`, with columns `right`, `down` and `ahead`. At `t` = 1, `right` and `down` are one pixel long,
            and `ahead` goes from the eye to the middle of the image.
    """
    positions = ray_positions(size)
    nearest = np.full((len(positions), len(positions)), np.inf)
    bright = np.full(nearest.shape, light.background)
    # Maps from the world to each piece, and the camera in each piece's coordinates.
    inverse = np.einsum("jab,cb->jac", np.linalg.inv([piece.axes for piece in solid]), turn)
    centre = np.einsum("ab,jb->ja", turn, [piece.centre for piece in solid])
    eyes = np.einsum("jab,jb->ja", inverse, eye - centre)
    frames = np.einsum("jab,bc->jac", inverse, frame)
    for piece, each, at, axes, (rows, columns) in zip(
        solid, inverse, eyes, frames, _rectangles(eyes, frames, positions), strict=True
    ):
        u, v = positions[columns], positions[rows, None]
        x, y, z = (right * u + (down * v + ahead) for right, down, ahead in axes)
        meet = _meet_round if piece.surface.ndim == 1 else _meet_block
        with np.errstate(invalid="ignore"):  # square roots where a ray misses
            distance, normals = meet(piece.surface, at, (x, y, z))
        near = nearest[rows, columns]
        seen = distance < near
        near[seen] = distance[seen]
        x, y, z = (along[seen] for along in normals)
        bright[rows, columns][seen] = grey * _lit(_unit(each, (x, y, z)), light)
    fine = bright.reshape(size, RAYS, size, RAYS)
    total = np.zeros((size, size))
    for row in range(RAYS):  # the same order of summation on every machine
        for column in range(RAYS):
            total += fine[:, row, :, column]
    return total / RAYS**2


def _lit(normals: Vectors, light: Light) -> Floats:
    """Light reflected by a white surface with the given unit normals."""
    x, y, z = light.direction
    facing = normals[0] * x + normals[1] * y + normals[2] * z
    return light.ambient + light.sky * (0.5 + 0.5 * normals[2]) + light.lamp * np.maximum(facing, 0)


def _rectangles(eyes: Floats, frames: Floats, positions: Floats) -> list[tuple[slice, slice]]:
    """For each piece, the rows and columns of the rays through the bounding rectangle of its cube, given the eyes
    `[P, 3]` and frames `[P, 3, 3]` in the pieces' coordinates.
    """
    # (u, v, 1) times `t`, for each corner of the cube
    seen = np.einsum("jab,jcb->jca", np.linalg.inv(frames), _CUBE - eyes[:, None])
    flat = seen[..., :2] / seen[..., 2:]
    spacing = positions[1] - positions[0]
    first = np.ceil((flat.min(axis=1) - positions[0]) / spacing - 1e-6).clip(0).astype(int)
    end = np.floor((flat.max(axis=1) - positions[0]) / spacing + 1e-6).clip(-1).astype(int) + 1
    return [(slice(y, below), slice(x, after)) for (x, y), (after, below) in zip(first, end, strict=True)]


def _away_from_zero(values: Floats) -> Floats:
    return np.where(np.abs(values) < _TINY, _TINY, values)


def _meet_round(profile: Floats, eye: Floats, direction: Vectors) -> tuple[Floats, Vectors]:
    """`t` where rays meet a round piece (infinite where they miss it), and the surface normals there, of any length, in
    the piece's coordinates.

    Along a ray, the surface is at a root of `f(t) = a t^2 + 2 b t + c`. `f` is negative inside the piece.

    A ray enters through the first flat end if `f` is negative there. Otherwise it enters where `f` falls to zero
    between the ends. The falling root is `(-b - sqrt(b^2 - a c)) / a` for either sign of `a`: the other half of a cone
    lies beyond the ends and is never reached.
    """
    p, q, w = profile
    ex, ey, ez = eye
    dx, dy, dz = direction
    a = dx * dx + dy * dy - w * (dz * dz)
    b = ex * dx + ey * dy - (q / 2 + w * ez) * dz
    c = ex * ex + ey * ey - p - (q + w * ez) * ez
    square = b * b - a * c
    slope = _away_from_zero(dz)
    facing = np.where(slope > 0, -1.0, 1.0)  # the end that the ray reaches first
    enter, leave = (facing - ez) / slope, (-facing - ez) / slope
    falls = (-b - np.sqrt(square)) / _away_from_zero(a)
    by_end = (a * enter + 2 * b) * enter + c <= 0
    met = (square > 0) & (by_end | ((falls > enter) & (falls < leave)))
    distance = np.where(met, np.where(by_end, enter, falls), np.inf)
    x, y, z = (start + falls * along for start, along in zip(eye, direction, strict=True))
    up = np.where(by_end, facing, -(q / 2) - w * z)
    return distance, (np.where(by_end, 0.0, x), np.where(by_end, 0.0, y), up)


def _meet_block(planes: Floats, eye: Floats, direction: Vectors) -> tuple[Floats, Vectors]:
    """As `_meet_round`, for the planes `[6, 4]` of a block: a ray enters at the last plane that it crosses inwards, if
    it crosses no plane outwards before.
    """
    normals, offsets = planes[:, :3], planes[:, 3]
    nx, ny, nz = normals.T[..., None, None]
    dx, dy, dz = direction
    speed = _away_from_zero(nx * dx + ny * dy + nz * dz)  # outwards
    t = (offsets - np.einsum("ka,a->k", normals, eye))[:, None, None] / speed
    entering = np.where(speed < 0, t, -np.inf)
    enter, leave = entering.max(axis=0), np.where(speed < 0, np.inf, t).min(axis=0)
    x, y, z = normals[entering.argmax(axis=0)].transpose(2, 0, 1)
    return np.where(enter < leave, enter, np.inf), (x, y, z)


def _unit(inverse: Floats, gradient: Vectors) -> Vectors:
    """Unit normals in the world, from local normals of any length and the map `[3, 3]` from world to local axes."""
    gx, gy, gz = gradient
    x, y, z = (a * gx + b * gy + c * gz for a, b, c in inverse.T)
    length = np.sqrt(x * x + y * y + z * z)
    return x / length, y / length, z / length
