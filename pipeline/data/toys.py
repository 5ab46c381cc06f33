"""Renders toys: stereo images of simple solids with smallNORB's category, instance, azimuth, elevation and lighting.

A toy consists of ellipsoids. The ten instances of a category have random proportions and poses. As in smallNORB, a
turntable turns the toy by the azimuth, and two cameras in front of the toy are raised by the elevation. Each lighting
has one fixed lamp. Images are rendered by ray casting without shadows.

A toy's x axis points forward, its y axis to its left and its z axis up. At azimuth 0, these are also the world's axes.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SIZE = 48
"""Height and width in pixels."""
RAYS = 2
"""Rays per pixel along each axis. A pixel's value is the mean over its rays."""

AZIMUTHS = tuple(range(0, 360, 20))
"""Rotation of the toy in degrees."""
ELEVATIONS = tuple(range(30, 75, 5))
"""Angle of the cameras above the horizon in degrees."""

DISTANCE = 6.5
"""Distance from a toy's centre to the midpoint of the cameras. The unit of lengths is about a toy's radius."""
BASELINE = 1.0
"""Distance between the two cameras."""
PIXEL = 1 / 18.5
"""Width of a pixel at the toy's centre."""

SIDES = (1.0, -1.0)
"""Signs of y on the left and on the right."""


class Light(NamedTuple):
    """A lighting: a distant lamp, a sky that is brightest above, and the background.

    Attributes:
        around: angle of the lamp to the right of the cameras, as seen in images, in degrees.
        up: angle of the lamp above the horizon, in degrees.
        lamp: brightness that the lamp adds to a white surface that faces it.
        sky: brightness that the sky adds to a white surface that faces up (half if it faces sideways, 0 if down).
        ambient: brightness that is added to every white surface.
        background: brightness of a ray that hits nothing.
    """

    around: float
    up: float
    lamp: float
    sky: float
    ambient: float
    background: float


LIGHTINGS = (
    Light(-50, 40, 0.95, 0.22, 0.16, 0.88),
    Light(50, 40, 0.95, 0.22, 0.16, 0.84),
    Light(0, 65, 0.85, 0.2, 0.22, 0.92),
    Light(-120, 50, 0.85, 0.3, 0.2, 0.8),
    Light(120, 50, 0.85, 0.3, 0.2, 0.86),
    Light(15, 25, 0.75, 0.25, 0.2, 0.9),
)


class Ellipsoid(NamedTuple):
    """The points `centre [3]` + `axes [3, 3]` l with |l| <= 1. The columns of `axes` need not be orthogonal."""

    centre: Floats
    axes: Floats


Toy = tuple[Ellipsoid, ...]
Uniform = Callable[[float, float], float]
"""Draws a number from the uniform distribution between two bounds."""


def ball(centre: ArrayLike, length: float, width: float, height: float) -> Ellipsoid:
    """An ellipsoid with semi-axes `length` along x, `width` along y and `height` along z."""
    return Ellipsoid(np.asarray(centre, np.float64), np.diag([length, width, height]))


def rod(
    start: ArrayLike, end: ArrayLike, radius: float, thickness: float | None = None, across: ArrayLike = (0, 1, 0)
) -> Ellipsoid:
    """An ellipsoid from `start` to `end`. Along the unit vector `across`, its surface is `radius` away from its centre.
    Perpendicular to `across` and to the line from `start` to `end`, it is `thickness` (by default `radius`) away.
    """
    start, end, across = (np.asarray(vector, np.float64) for vector in (start, end, across))
    half = (end - start) / 2
    third = np.cross(half, across)
    third *= (radius if thickness is None else thickness) / np.linalg.norm(third)
    return Ellipsoid(start + half, np.stack([half, radius * across, third], axis=1))


def polar(start: ArrayLike, length: float, degrees: float) -> Floats:
    """The point at distance `length` from `start`, in a direction that is `degrees` above the forward one (x)."""
    angle = np.deg2rad(degrees)
    return np.asarray(start) + length * np.array([np.cos(angle), 0, np.sin(angle)])


def _animal(uniform: Uniform) -> list[Ellipsoid]:
    """A body with a neck, a head with muzzle and ears, a tail and four legs."""
    length, girth, leg = uniform(0.6, 0.8), uniform(0.25, 0.42), uniform(0.45, 0.75)
    back = leg + 0.6 * girth
    chest, croup = (0.7 * length, 0, back + 0.2 * girth), (-0.85 * length, 0, back + 0.3 * girth)
    top = polar(chest, uniform(0.35, 0.65), uniform(25, 60))
    head = uniform(0.18, 0.26)
    pieces = [ball((0, 0, back), length, 0.8 * girth, girth), rod(chest, top, 0.5 * girth), ball(top, head, head, head)]
    pieces.append(rod(top, polar(top, head + uniform(0.1, 0.45), -25), 0.6 * head))  # muzzle
    pieces.append(rod(croup, polar(croup, -uniform(0.2, 0.75), uniform(-50, 80)), 0.06))  # tail
    ear, stride = uniform(0.1, 0.35), uniform(0, 0.2)
    for side in SIDES:
        pieces.append(rod(top, top + np.array([-0.1, 0.8 * side * head, head + ear]), 0.05))
        for end in (1.0, -1.0):
            hip = np.array([0.65 * end * length, 0.5 * side * girth, back])
            pieces.append(rod(hip, hip + np.array([end * side * stride, 0, -back]), 0.35 * girth))
    return pieces


def _human(uniform: Uniform) -> list[Ellipsoid]:
    """A figure with a hat. It stands on a round base. Arms and legs have two pieces each."""
    bulk, arm, leg = uniform(0.9, 1.3), uniform(0.28, 0.36), uniform(0.36, 0.46)
    lean, stance = uniform(0.05, 0.5), uniform(0.03, 0.2)
    pieces = [ball((0, 0, 0.25), 0.14 * bulk, 0.22 * bulk, 0.33), ball((0.03, 0, 0.75), 0.15, 0.14, 0.18)]
    hat, base = uniform(0.08, 0.24), -1.9 * leg
    pieces += [ball((0.02, 0, 0.88), hat, hat, 0.06), ball((0, 0, base), 0.4, 0.4, 0.05)]
    for side in SIDES:
        for height, width, outwards, part, radius, swing, bend in (
            (0.45, 0.24, lean, arm, 0.08, uniform(-40, 80), uniform(0, 80)),
            (0.0, 0.11, stance, leg, 0.11, uniform(-30, 40), uniform(-40, 0)),
        ):
            joint = np.array([0, width * side * bulk, height])
            for angle in (swing, swing + bend):  # degrees forward; at 0, the piece hangs straight down
                end = polar(joint, part, angle - 90) + np.array([0, outwards * side * part, 0])
                pieces.append(rod(joint, end, radius * bulk))
                joint = end
    return pieces


def _airplane(uniform: Uniform) -> list[Ellipsoid]:
    """A body with a cockpit, one or two pairs of wings, a tail and possibly engines."""
    length, hull = uniform(0.75, 1.05), uniform(0.12, 0.19)
    span, chord, sweep, height = uniform(0.85, 1.15), uniform(0.18, 0.32), uniform(0, 0.45), uniform(-0.7, 0.8) * hull
    place, tail, fin = uniform(-0.1, 0.25), uniform(0.32, 0.5), uniform(0.3, 0.5)
    engines, biplane = uniform(0, 1) < 0.5, uniform(0, 1) < 0.3
    rear = -0.85 * length
    pieces = [ball((0, 0, 0), length, hull, hull), ball((0.4 * length, 0, 0.7 * hull), 0.2, 0.6 * hull, 0.5 * hull)]
    pieces.append(rod((rear, 0, 0), (rear - 0.1, 0, fin), 0.12, 0.03, across=(1, 0, 0)))
    for side in SIDES:
        for above in (0, 0.45)[: 1 + biplane]:
            tip = (place - sweep, side * span, height + above + 0.05)
            pieces.append(rod((place, -0.2 * side, height + above), tip, chord, 0.04, across=(1, 0, 0)))
        pieces.append(rod((rear, 0, 0), (rear - 0.3 * sweep, side * tail, 0.05), 0.12, 0.03, across=(1, 0, 0)))
        if engines:
            pieces.append(ball((place + 0.1 - 0.4 * sweep, 0.4 * side * span, height - 0.1), 0.22, 0.09, 0.09))
    return pieces


def _wheels(places: tuple[float, ...], track: float, radius: float) -> list[Ellipsoid]:
    """Pairs of wheels on the ground, at each x of `places` and at y = `track` and -`track`."""
    return [ball((x, side * track, radius), radius, 0.09, radius) for x in places for side in SIDES]


def _truck(uniform: Uniform) -> list[Ellipsoid]:
    """A chassis with a load, a cab with a bonnet, and three pairs of wheels."""
    length, width, load = uniform(0.9, 1.05), uniform(0.34, 0.42), uniform(0.38, 0.5)
    cab, bonnet = uniform(0.24, 0.34), uniform(0, 0.2)
    pieces = [ball((0, 0, 0.26), length, 0.8 * width, 0.12)]
    # Several overlapping ellipsoids have flatter sides than one.
    pieces += [ball((x * length, 0, 0.3 + load), 0.5 * length, width, load) for x in (-0.5, -0.3, -0.1)]
    pieces.append(ball((0.95 * length - bonnet - cab, 0, 0.25 + cab), cab, 0.9 * width, cab))
    pieces.append(ball((length - bonnet - 0.1, 0, 0.35), bonnet + 0.1, 0.75 * width, 0.17))
    return pieces + _wheels((0.7 * length, -0.45 * length, -0.8 * length), width, 0.17)


def _car(uniform: Uniform) -> list[Ellipsoid]:
    """A low body with a cabin, two pairs of wheels and possibly a spoiler."""
    length, width, body = uniform(0.85, 1.02), uniform(0.38, 0.46), uniform(0.12, 0.17)
    cabin, roof = uniform(0.35, 0.55), uniform(0.16, 0.28)
    pieces = [ball((x * length, 0, 0.12 + body), 0.6 * length, width, body) for x in (-0.4, 0.4)]
    pieces.append(ball((uniform(-0.3, 0.05), 0, 0.14 + 1.4 * body), cabin, 0.85 * width, roof))
    if uniform(0, 1) < 0.4:
        spoiler = 0.2 + 2 * body + uniform(0, 0.1)
        pieces.append(ball((0.12 - length, 0, spoiler), 0.12, width, 0.04))
    return pieces + _wheels((0.6 * length, -0.6 * length), width, 0.165)


_CATEGORIES = (_animal, _human, _airplane, _truck, _car)


@cache
def toy(category: int, instance: int) -> tuple[Toy, float]:
    """An instance (0 to 9) of a category (0 to 4 in smallNORB's order), and the share of light that it reflects.

    The toy is centred on the origin. Its radius (about 1) and the share have the same distribution in all categories.
    """
    uniform = np.random.default_rng([category, instance]).uniform
    pieces = _CATEGORIES[category](uniform)
    centres, axes = (np.array(arrays) for arrays in zip(*pieces, strict=True))
    tips = centres[..., None] + np.concatenate([axes, -axes], axis=-1)  # [pieces, 3, 6]
    middle = (tips.min(axis=(0, 2)) + tips.max(axis=(0, 2))) / 2
    reach = np.linalg.norm(tips - middle[:, None], axis=1).max()
    scale = uniform(0.94, 1.06) / reach
    return tuple(Ellipsoid(scale * (c - middle), scale * a) for c, a in pieces), uniform(0.62, 0.74)


def turntable(azimuth: float) -> Floats:
    """The rotation `[3, 3]` by `azimuth` degrees about the vertical axis, from the front (x) to the left (y)."""
    s, c = np.sin(np.deg2rad(azimuth)), np.cos(np.deg2rad(azimuth))
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def stereo_cameras(elevation: float) -> list[tuple[Floats, Floats]]:
    """The left and the right camera, `elevation` degrees above the horizon. They look from the front (x) at the origin.

    The cameras share one image plane through the origin. A point on this plane has the same position in both images. A
    point nearer to the cameras is further right in the left image than in the right image.

    Returns:
        For each camera its `eye` `[3]` and its `frame` `[3, 3]`, with columns `right`, `down` and `ahead`. Points of a
        ray are `eye + t (u right + v down + ahead)`, with `u` and `v` in pixels from the middle of the image.
    """
    s, c = np.sin(np.deg2rad(elevation)), np.cos(np.deg2rad(elevation))
    back, right, down = np.array([[c, 0, s], [0, 1, 0], [s, 0, -c]])
    eyes = [DISTANCE * back + side * BASELINE * right for side in (-0.5, 0.5)]
    return [(eye, np.stack([PIXEL * right, PIXEL * down, -eye], axis=-1)) for eye in eyes]


def cast(solid: Toy, grey: float, azimuth: float, eye: Floats, frame: Floats, light: Light, size: int) -> Floats:
    """The image `[size, size]` of a toy rotated by `azimuth` degrees, as brightness (0 black, 1 white). `eye` and
    `frame` describe the camera as in `stereo_cameras`. `grey` is the share of light that the toy reflects.
    """
    # Everything is computed in the toy's coordinates. In them, camera and lamp turn by minus the azimuth.
    back = turntable(azimuth).T
    lamp = back @ turntable(light.around) @ polar((0, 0, 0), 1, light.up)
    positions = (np.arange(RAYS * size) + 0.5) / RAYS - size / 2  # rays along an axis, in pixels from the middle
    v, u = np.meshgrid(positions, positions, indexing="ij")
    eye, rays = back @ eye, back @ frame @ np.stack([u.ravel(), v.ravel(), np.ones(u.size)])
    nearest = np.full(u.size, np.inf)
    bright = np.full(u.size, light.background)
    for centre, axes in solid:
        # In coordinates where the ellipsoid is the unit sphere, a ray hits it at the smaller root of a t^2 + 2 b t + c.
        inverse = np.linalg.inv(axes)
        start, along = inverse @ (eye - centre), inverse @ rays
        a, b, c = (along**2).sum(axis=0), start @ along, start @ start - 1
        root = b**2 - a * c
        hit = np.flatnonzero(root > 0)
        t = (-b[hit] - np.sqrt(root[hit])) / a[hit]
        nearer = t < nearest[hit]
        hit, t = hit[nearer], t[nearer]
        normals = inverse.T @ (start[:, None] + t * along[:, hit])
        normals /= np.linalg.norm(normals, axis=0)
        nearest[hit] = t
        shine = light.sky * (1 + normals[2]) / 2 + light.lamp * np.maximum(lamp @ normals, 0)
        bright[hit] = grey * (light.ambient + shine)
    return bright.reshape(size, RAYS, size, RAYS).mean(axis=(1, 3))


def render(category: Ints, instance: Ints, azimuth: Ints, elevation: Ints, lighting: Ints) -> NDArray[np.uint8]:
    """Render stereo pairs `[N, 2, 48, 48]`, left before right.

    Args:
        category, instance: `[N]` each, 0 to 4 (in smallNORB's order), and 0 to 9.
        azimuth, elevation, lighting: `[N]` each, indices into `AZIMUTHS`, `ELEVATIONS` and `LIGHTINGS`.
    """
    images = np.empty((len(category), 2, SIZE, SIZE), np.uint8)
    for number, (c, i, a, e, k) in enumerate(zip(category, instance, azimuth, elevation, lighting, strict=True)):
        for side, (eye, frame) in enumerate(stereo_cameras(ELEVATIONS[e])):
            bright = cast(*toy(int(c), int(i)), AZIMUTHS[a], eye, frame, LIGHTINGS[k], SIZE)
            images[number, side] = np.rint(255 * bright.clip(0, 1).round(9))
    return images
