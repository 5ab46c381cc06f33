"""Toys: stereo images of simple solids with category, instance, azimuth, elevation and lighting, like smallNORB's.

As in smallNORB, a toy stands on a turntable (azimuth) in front of two cameras that move up together (elevation), and
the lamps of each lighting are fixed. The images are rendered by ray casting without shadows. They are identical on
every machine with IEEE double precision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.data.toys.pieces import sine_cosine
from pipeline.data.toys.ray_casting import Cameras, Floats, Ints, Lights, cast
from pipeline.data.toys.shapes import toy

SIZE = 48
"""Height and width in pixels."""

AZIMUTHS = tuple(range(0, 360, 20))
"""Rotation of the toy in degrees."""
ELEVATIONS = tuple(range(30, 75, 5))
"""Height of the cameras above the horizon in degrees."""

DISTANCE = 6.5
"""From a toy's centre to the midpoint between the cameras; a toy's radius is about 1."""
BASELINE = 1.0
"""Distance between the two cameras."""
PIXEL = 1 / 18.5
"""Width of a pixel at the toy's centre."""

_BATCH = 64  # pairs rendered at once: few enough for the CPU's cache

# Direction of the lamp (degrees to the right of the cameras, degrees up) and the brightness of lamp, sky, ambient light
# and background.
LIGHTINGS = (
    (-50, 40, 0.95, 0.22, 0.16, 0.88),
    (50, 40, 0.95, 0.22, 0.16, 0.84),
    (0, 65, 0.85, 0.2, 0.22, 0.92),
    (-120, 50, 0.85, 0.3, 0.2, 0.8),
    (120, 50, 0.85, 0.3, 0.2, 0.86),
    (15, 25, 0.75, 0.25, 0.2, 0.9),
)


def turntable(azimuth: Floats) -> Floats:
    """Rotations `[N, 3, 3]` by `[N]` degrees about the vertical axis, from the front (x) to the left (y)."""
    s, c = sine_cosine(azimuth)
    zero, one = np.zeros_like(s), np.ones_like(s)
    return np.stack([np.stack([c, -s, zero], -1), np.stack([s, c, zero], -1), np.stack([zero, zero, one], -1)], -2)


def stereo_cameras(elevation: Floats) -> Cameras:
    """`[2 N]` cameras, left and right alternating, that look at the world's origin from the front (x), `elevation`
    `[N]` degrees above the horizon.

    Both share one image plane, through the origin and perpendicular to the line of sight: a point on it has the same
    position in both images; a nearer point is further to the right in the left one.
    """
    s, c = sine_cosine(elevation)
    zero, one = np.zeros_like(s), np.ones_like(s)
    back, right, down = (np.stack(each, axis=-1) for each in ((c, zero, s), (zero, one, zero), (s, zero, -c)))
    eyes = [DISTANCE * back + side * BASELINE * right for side in (-0.5, 0.5)]
    frames = [np.stack([PIXEL * right, PIXEL * down, -eye], axis=-1) for eye in eyes]
    return Cameras(np.stack(eyes, axis=1).reshape(-1, 3), np.stack(frames, axis=1).reshape(-1, 3, 3))


def lights(lighting: Ints) -> Lights:
    """The light of each lighting `[N]`, 0 to 5."""
    around, up, lamp, sky, ambient, background = np.array(LIGHTINGS, dtype=np.float64)[lighting].T
    (sa, ca), (su, cu) = sine_cosine(around), sine_cosine(up)
    return Lights(np.stack([ca * cu, sa * cu, su], axis=-1), lamp, sky, ambient, background)


def render(category: Ints, instance: Ints, azimuth: Ints, elevation: Ints, lighting: Ints) -> NDArray[np.uint8]:
    """Stereo pairs `[N, 2, 48, 48]`, left before right.

    Args:
        category, instance, lighting: `[N]` 0 to 4, in smallNORB's order, 0 to 9, and 0 to 5.
        azimuth, elevation: `[N]` indices into `AZIMUTHS` and `ELEVATIONS`.
    """
    images = np.empty((len(category), 2, SIZE, SIZE), np.uint8)
    for start in range(0, len(category), _BATCH):
        batch = slice(start, start + _BATCH)
        toys = [toy(int(c), int(i)) for c, i in zip(category[batch], instance[batch], strict=True)]
        turned = np.array(AZIMUTHS, np.float64)[azimuth[batch]]
        raised = np.array(ELEVATIONS, np.float64)[elevation[batch]]
        bright = cast(
            [solid for solid, _ in toys for _ in range(2)],
            np.repeat([grey for _, grey in toys], 2),
            np.repeat(turntable(turned), 2, axis=0),
            stereo_cameras(raised),
            lights(np.repeat(lighting[batch], 2)),
            SIZE,
        )
        images[batch] = np.floor(255 * bright.clip(0, 1) + 0.5).reshape(-1, 2, SIZE, SIZE)
    return images
