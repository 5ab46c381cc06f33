"""Ray casting of solids that consist of a few convex pieces, in closed form and in double precision.

A piece is described in local coordinates `l`, within the cube `|l| <= 1`, and placed in the world by an affine map,
`x = centre + axes l`. There are two kinds:

- *round*: `l_x^2 + l_y^2 <= p + q l_z + w l_z^2` between two flat ends at `l_z = -1` and `1`. `(p, q, w)` is its
  profile: `(1, 0, -1)` an ellipsoid, `(1, 0, 0)` a cylinder, `(1/2, -1/2, 0)` a paraboloid; cones are possible, too.
- *blocks*: six planes, `n . l <= h`. Boxes, wedges and wings.

The rays of a pinhole camera are `x = eye + t (u right + v down + ahead)`, with `u` and `v` in pixels from the middle of
the image. A ray meets the piece with the smallest `t` first; affine maps do not change `t`. Each piece is tested only
against the rays through its bounding rectangle; the n-th pieces of all images are tested together.

Shapes: `V` images, `P` pieces of a solid; world axes are x forward, y left, z up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Vectors = tuple[Floats, Floats, Floats]
"""x, y and z of `n` vectors, `[n]` each: three separate arrays are faster than one `[n, 3]`."""

RAYS = 2
"""Rays per pixel along each axis; a pixel's value is their mean."""

_TINY = 1e-12
"""Replaces zero as a divisor. Too small to move a hit by a thousandth of a pixel."""

_CUBE = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])


@dataclass(frozen=True)
class Piece:
    """A round piece or a block.

    Attributes:
        centre: `[3]`.
        axes: `[3, 3]`, its local axes as columns, from the centre to the faces of the cube around it.
        surface: of a round piece its profile `[3]`: `p`, `q`, `w`; the squared radius must be in [0, 1] at every height
            `l_z`. Of a block its planes `[6, 4]`: the normal `n` and the offset `h` of each.
        points: `[n, 3]` in local coordinates, on the surface; their convex hull is close to the piece.
    """

    centre: Floats
    axes: Floats
    surface: Floats
    points: Floats

    def outline(self) -> Floats:
        """The points `[n, 3]` on its surface, in the world."""
        return self.centre + self.points @ self.axes.T


Solid = tuple[Piece, ...]


@dataclass(frozen=True)
class Cameras:
    """One pinhole camera per image.

    Attributes:
        eye: `[V, 3]`.
        frame: `[V, 3, 3]`, columns `right` and `down`, one pixel long each at `t` = 1, and `ahead`, from the eye to the
            middle of the image at `t` = 1.
    """

    eye: Floats
    frame: Floats


@dataclass(frozen=True)
class Lights:
    """The light in each image: a distant lamp, a sky that is brightest above, and the background.

    Attributes:
        direction: `[V, 3]` unit vectors towards the lamp.
        lamp, sky, ambient: `[V]` what each adds to the brightness of a white surface: the lamp at most (if it faces the
            lamp), the sky at most (if it faces up; half if sideways, 0 if down), and the same in all directions.
        background: `[V]` brightness where a ray hits nothing.
    """

    direction: Floats
    lamp: Floats
    sky: Floats
    ambient: Floats
    background: Floats


def ray_positions(size: int) -> Floats:
    """Positions of the rays along one axis of an image `[RAYS size]`, in pixels from its middle."""
    return (np.arange(RAYS * size) + 0.5) / RAYS - size / 2


def moved(solid: Solid, linear: Floats, shift: Floats | float = 0.0) -> Solid:
    """The solid after `x -> linear x + shift`, `linear` `[3, 3]`."""
    return tuple(replace(piece, centre=linear @ piece.centre + shift, axes=linear @ piece.axes) for piece in solid)


def cast(solids: Sequence[Solid], greys: Floats, turns: Floats, cameras: Cameras, lights: Lights, size: int) -> Floats:
    """Brightness `[V, size, size]` (0 black, 1 white) of one solid per image; each solid must be in front of
    the camera.

    Args:
        solids: `V` solids. Images of the same solid should share one object, which is then processed only once.
        greys, turns: `[V]` share of the light that a solid reflects; `[V, 3, 3]` its rotation about the world's origin.
    """
    side = RAYS * size
    positions = ray_positions(size)
    kinds = {id(solid): solid for solid in solids}  # distinct solids
    number = {key: index for index, key in enumerate(kinds)}
    kind = np.array([number[id(solid)] for solid in solids], np.int64)  # of each image
    nearest = np.full(len(solids) * side * side, np.inf)
    bright = np.repeat(lights.background, side * side)
    for slot in range(max(map(len, kinds.values()), default=0)):
        pieces = [solid[slot] if slot < len(solid) else None for solid in kinds.values()]
        for dimensions, meet in ((1, _meet_rounds), (2, _meet_blocks)):
            chosen = {row: piece for row, piece in enumerate(pieces) if piece and piece.surface.ndim == dimensions}
            rows = np.array(list(chosen), np.int64)
            views = np.flatnonzero(np.isin(kind, rows))
            if len(views) == 0:
                continue
            which = np.searchsorted(rows, kind[views])
            surfaces = np.array([piece.surface for piece in chosen.values()])
            inverse, eye, frame = _place(list(chosen.values()), which, views, turns, cameras)
            job, pixel, direction = _rays(eye, frame, positions)
            ray, distance, normals = meet(surfaces[which], inverse, eye, job, direction)
            pixels = views[job[ray]] * (side * side) + pixel[ray]
            seen = np.flatnonzero(distance < nearest[pixels])  # pixels are unique: one piece an image
            pixels, view = pixels[seen], views[job[ray[seen]]]
            nearest[pixels] = distance[seen]
            x, y, z = normals
            bright[pixels] = greys[view] * _lit((x[seen], y[seen], z[seen]), view, lights)
    fine = bright.reshape(-1, size, RAYS, size, RAYS)
    total = np.zeros((len(solids), size, size))
    for row in range(RAYS):  # the same order of summation on every machine
        for column in range(RAYS):
            total += fine[:, :, row, :, column]
    return total / RAYS**2


def _lit(normals: Vectors, view: Ints, lights: Lights) -> Floats:
    """Light reflected `[n]` by a white surface with the given unit normals."""
    towards = lights.direction[view]
    facing = normals[0] * towards[:, 0] + normals[1] * towards[:, 1] + normals[2] * towards[:, 2]
    diffuse = lights.lamp[view] * np.maximum(facing, 0)
    return lights.ambient[view] + lights.sky[view] * (0.5 + 0.5 * normals[2]) + diffuse


def _place(
    pieces: Sequence[Piece], which: Ints, views: Ints, turns: Floats, cameras: Cameras
) -> tuple[Floats, Floats, Floats]:
    """`J` pieces in their images: the map `[J, 3, 3]` from the world to a piece, and the eye and the frame in its
    coordinates.
    """
    axes = np.stack([piece.axes for piece in pieces])
    centres = np.stack([piece.centre for piece in pieces])
    turn = turns[views]
    inverse = np.einsum("jab,jcb->jac", np.linalg.inv(axes)[which], turn)
    centre = np.einsum("jab,jb->ja", turn, centres[which])
    eye = np.einsum("jab,jb->ja", inverse, cameras.eye[views] - centre)
    return inverse, eye, np.einsum("jab,jbc->jac", inverse, cameras.frame[views])


def _rays(eye: Floats, frame: Floats, positions: Floats) -> tuple[Ints, Ints, Vectors]:
    """All rays through the rectangle around the cube of each piece, in one list of `n`: the piece `[n]`; the pixel's
    index `[n]` in its image, row by row; and the direction in the piece's coordinates.
    """
    side = len(positions)
    # (u, v, 1) times `t`, for each corner of the cube
    seen = np.einsum("jab,jcb->jca", np.linalg.inv(frame), _CUBE - eye[:, None])
    flat = seen[..., :2] / seen[..., 2:]
    spacing = positions[1] - positions[0]
    first = np.ceil((flat.min(axis=1) - positions[0]) / spacing - 1e-6).clip(0, side).astype(np.int64)
    last = np.floor((flat.max(axis=1) - positions[0]) / spacing + 1e-6).clip(-1, side - 1).astype(np.int64)
    width, height = (last - first + 1).clip(0).T
    row_job = np.repeat(np.arange(len(width)), height)
    row = _counted(height) + first[row_job, 1]
    row_width = width[row_job]
    column = _counted(row_width) + np.repeat(first[row_job, 0], row_width)
    u = positions[column]
    v = positions[row]
    direction = []
    for axis in range(3):
        right, down, ahead = frame[:, axis].T
        start = down[row_job] * v + ahead[row_job]
        direction.append(np.repeat(right[row_job], row_width) * u + np.repeat(start, row_width))
    job = np.repeat(row_job, row_width)
    return job, np.repeat(row * side, row_width) + column, (direction[0], direction[1], direction[2])


def _counted(lengths: Ints) -> Ints:
    """0, 1, ... `lengths[0]` - 1, 0, 1, ... `lengths[1]` - 1 and so on."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(starts, lengths)


def _away_from_zero(values: Floats) -> Floats:
    return np.where(np.abs(values) < _TINY, _TINY, values)


_Hits = tuple[Ints, Floats, Vectors]
"""Rays that hit their piece (indices `[m]`), their `t` `[m]`, and the unit normals in the world there."""


def _meet_rounds(profiles: Floats, inverse: Floats, eye: Floats, job: Ints, direction: Vectors) -> _Hits:
    """Where rays hit pieces with the profiles `[J, 3]`.

    Along a ray the surface is the root of `f(t) = a t^2 + 2 b t + c`, which is negative inside.

    A ray enters through the first flat end if `f` is negative there; otherwise where `f` falls to zero between the two
    ends. That is the root `(-b - sqrt(b^2 - a c)) / a` for either sign of `a`: the other half of a cone lies beyond the
    ends and is never reached.
    """
    p, q, w = profiles.T
    ex, ey, ez = eye.T
    dx, dy, dz = direction
    a = dx * dx + dy * dy - w[job] * (dz * dz)
    b = ex[job] * dx + ey[job] * dy - (q / 2 + w * ez)[job] * dz
    c = (ex * ex + ey * ey - p - (q + w * ez) * ez)[job]
    square = b * b - a * c
    ray = np.flatnonzero(square > 0)
    a, b, c, job, dz = a[ray], b[ray], c[ray], job[ray], _away_from_zero(dz[ray])
    facing = np.where(dz > 0, -1.0, 1.0)  # the end that the ray reaches first
    enter, leave = (facing - ez[job]) / dz, (-facing - ez[job]) / dz
    falls = (-b - np.sqrt(square[ray])) / _away_from_zero(a)
    by_end = (a * enter + 2 * b) * enter + c <= 0
    met = np.flatnonzero(by_end | ((falls > enter) & (falls < leave)))
    ray, job, by_end, facing = ray[met], job[met], by_end[met], facing[met]
    distance = np.where(by_end, enter[met], falls[met])
    x, y, z = (eye[job, axis] + distance * direction[axis][ray] for axis in range(3))
    up = np.where(by_end, facing, -(q / 2)[job] - w[job] * z)
    return ray, distance, _unit(inverse[job], (np.where(by_end, 0.0, x), np.where(by_end, 0.0, y), up))


def _meet_blocks(planes: Floats, inverse: Floats, eye: Floats, job: Ints, direction: Vectors) -> _Hits:
    """Where rays enter between planes `[J, 6, 4]`: at the last that is crossed inwards, if none was crossed
    outwards before.
    """
    room = planes[..., 3] - np.einsum("jka,ja->jk", planes[..., :3], eye)
    dx, dy, dz = direction
    enter = np.full(len(job), -np.inf)
    leave = np.full(len(job), np.inf)
    face = np.zeros(len(job), np.int64)
    for plane in range(planes.shape[1]):
        nx, ny, nz, _ = planes[:, plane].T
        speed = _away_from_zero(nx[job] * dx + ny[job] * dy + nz[job] * dz)  # outwards
        t = room[:, plane][job] / speed
        inwards = speed < 0
        later = inwards & (t > enter)
        enter = np.where(later, t, enter)
        face = np.where(later, plane, face)
        leave = np.where(inwards, leave, np.minimum(leave, t))
    ray = np.flatnonzero(enter < leave)
    sides = planes.shape[1]
    nx, ny, nz = planes[..., :3].reshape(-1, 3).T
    x, y, z = _unit(np.repeat(inverse, sides, axis=0), (nx, ny, nz))
    of = job[ray] * sides + face[ray]
    return ray, enter[ray], (x[of], y[of], z[of])


def _unit(inverse: Floats, gradient: Vectors) -> Vectors:
    """Unit normals in the world, from local normals and the maps `[n, 3, 3]` from world to local coordinates."""
    x, y, z = (sum(inverse[:, row, column] * gradient[row] for row in range(3)) for column in range(3))
    length = np.sqrt(x * x + y * y + z * z)
    return x / length, y / length, z / length
