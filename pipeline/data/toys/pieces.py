"""The pieces of toys: ellipsoids, rods, boxes, wedges and wings. x points forward, y left, z up, in any unit."""

import numpy as np

from pipeline.data.toys.ray_casting import Floats, Piece

Pair = tuple[float, float]
Point = tuple[float, float, float] | Floats

SIDES = (1.0, -1.0)
"""Left and right."""


def sine_cosine(degrees: Floats | float) -> tuple[Floats, Floats]:
    """Sine and cosine, rounded to 12 digits. Maths libraries differ in the last bit, but images must be identical."""
    radians: Floats = np.asarray(degrees, np.float64) * (np.pi / 180)
    return np.sin(radians).round(12), np.cos(radians).round(12)


def polar(start: Point, length: float, degrees: float) -> Floats:
    """The point at distance `length` from `start`, in the forward direction raised by `degrees`."""
    s, c = sine_cosine(degrees)
    return start + length * np.array([c, 0, s])


def round_piece(centre: Floats, axes: Floats, profile: tuple[float, float, float]) -> Piece:
    """A round `Piece` with 9 rings of 12 points."""
    p, q, w = profile
    height = np.linspace(-1, 1, 9)
    radius = np.sqrt(np.clip(p + q * height + w * height**2, 0, None))
    angle = np.arange(12) * (np.pi / 6)
    ring = radius[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    points = np.concatenate([ring, np.broadcast_to(height[:, None, None], (9, 12, 1))], axis=-1)
    return Piece(centre, axes, np.array(profile), points.reshape(-1, 3))


def ball(centre: Point, length: float, width: float, height: float, pitch: float = 0.0) -> Piece:
    """An ellipsoid with semi-axes `length`, `width` and `height`. Its front is raised by `pitch` degrees."""
    s, c = sine_cosine(pitch)
    turn = np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])
    return round_piece(np.array(centre), turn * np.array([length, width, height]), (1.0, 0.0, -1.0))


def rod(start: Point, end: Point, radius: float, end_radius: float | None = None) -> Piece:
    """A cylinder from one point to another, or a truncated cone if the radii differ."""
    last = radius if end_radius is None else end_radius
    half = (np.array(end) - np.array(start)) / 2
    along = half / np.sqrt((half * half).sum())
    side = np.cross([0.0, 0.0, 1.0] if abs(along[2]) < 0.9 else [1.0, 0.0, 0.0], along)
    side /= np.sqrt((side * side).sum())
    widest = max(radius, last)
    axes = np.stack([side * widest, np.cross(along, side) * widest, half], axis=1)
    # The radius at height z is m + h z; the profile is its square.
    m, h = (last + radius) / (2 * widest), (last - radius) / (2 * widest)
    return round_piece(np.array(start) + half, axes, (1.0, 0.0, 0.0) if last == radius else (m * m, 2 * m * h, h * h))


def block(
    centre: Point, axes: Floats, front: float = 0.0, rear: float = 0.0, left: float = 0.0, right: float = 0.0
) -> Piece:
    """A box whose top (local z = 1) is shortened on each side, by fractions of half its length or width.

    With `front` 1, the front edge of the top is in the middle. With 2, it is at the rear, which gives a wedge. The
    columns of `axes` `[3, 3]` are half the length, width and height.
    """
    planes = [
        [0, 0, -1, 1],
        [0, 0, 1, 1],
        [1, 0, front / 2, 1 - front / 2],
        [-1, 0, rear / 2, 1 - rear / 2],
        [0, 1, left / 2, 1 - left / 2],
        [0, -1, right / 2, 1 - right / 2],
    ]
    corners = [(x, y, -1.0) for x in SIDES for y in SIDES]
    corners += [(x, y, 1.0) for x in (rear - 1, 1 - front) for y in (right - 1, 1 - left)]
    return Piece(np.array(centre), axes, np.array(planes, np.float64), np.array(corners))


def box(x: Pair, width: float, z: Pair, front: float = 0.0, rear: float = 0.0, side: float = 0.0) -> Piece:
    """A `block` from rear to front (`x`), from `-width` to `width`, and from bottom to top (`z`)."""
    axes = np.diag([(x[1] - x[0]) / 2, width, (z[1] - z[0]) / 2])
    return block(((x[0] + x[1]) / 2, 0.0, (z[0] + z[1]) / 2), axes, front, rear, side, side)


def wing(root: Point, tip: Point, chord: float, taper: float, thickness: float) -> Piece:
    """A flat wing between the middles of its root and its tip, swept if their x differs. `chord` is half the length of
    the root from front to rear, `taper` the ratio of tip chord to root chord, `thickness` half the wing's thickness.
    """
    span = (np.array(tip) - np.array(root)) / 2
    across = np.cross(span, [1.0, 0.0, 0.0])
    across *= thickness / np.sqrt((across * across).sum())
    axes = np.stack([np.array([chord, 0.0, 0.0]), across, span], axis=1)
    return block(root + span, axes, 1 - taper, 1 - taper, 0.5, 0.5)


def wheels(places: tuple[float, ...], track: float, radius: float, width: float) -> list[Piece]:
    """Pairs of wheels on the ground at `places` along x, `track` to each side. `width` is half a wheel's width."""
    return [
        rod((x, side * track - width, radius), (x, side * track + width, radius), radius)
        for x in places
        for side in SIDES
    ]
