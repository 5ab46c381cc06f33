"""Renders toys: stereo images of simple solids with smallNORB's category, instance, azimuth, elevation and lighting.

As in smallNORB, a toy stands on a turntable (azimuth) in front of two cameras that move up together (elevation). Each
lighting has a fixed lamp. Images are rendered by ray casting without shadows. They are identical on every machine with
IEEE double precision.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline.data.toys.pieces import sine_cosine
from pipeline.data.toys.ray_casting import Floats, Ints, Light, cast
from pipeline.data.toys.shapes import toy

SIZE = 48
"""Height and width in pixels."""

AZIMUTHS = tuple(range(0, 360, 20))
"""Rotation of the toy in degrees."""
ELEVATIONS = tuple(range(30, 75, 5))
"""Height of the cameras above the horizon in degrees."""

DISTANCE = 6.5
"""Distance from a toy's centre to the midpoint of the cameras. A toy's radius is about 1."""
BASELINE = 1.0
"""Distance between the two cameras."""
PIXEL = 1 / 18.5
"""Width of a pixel at the toy's centre."""

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


def turntable(azimuth: float) -> Floats:
    """The rotation `[3, 3]` by `azimuth` degrees about the vertical axis, from the front (x) to the left (y)."""
    s, c = sine_cosine(azimuth)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def stereo_cameras(elevation: float) -> list[tuple[Floats, Floats]]:
    """The left and the right camera: the eye and the frame of each, as `cast` takes them. The cameras look at the
    world's origin from the front (x), `elevation` degrees above the horizon.

    They share one image plane through the origin. A point on this plane has the same position in both images. A nearer
    point is further right in the left image than in the right image.
    """
    s, c = sine_cosine(elevation)
    back, right, down = np.array([[c, 0, s], [0, 1, 0], [s, 0, -c]])
    eyes = [DISTANCE * back + side * BASELINE * right for side in (-0.5, 0.5)]
    return [(eye, np.stack([PIXEL * right, PIXEL * down, -eye], axis=-1)) for eye in eyes]


def light_of(lighting: int) -> Light:
    """The `Light` of a lighting, 0 to 5."""
    around, up, *brightness = LIGHTINGS[lighting]
    (sa, ca), (su, cu) = sine_cosine(around), sine_cosine(up)
    return Light(np.array([ca * cu, sa * cu, su]), *brightness)


def render(category: Ints, instance: Ints, azimuth: Ints, elevation: Ints, lighting: Ints) -> NDArray[np.uint8]:
    """Render stereo pairs `[N, 2, 48, 48]`, left before right.

    Args:
        category, instance, lighting: `[N]` each: 0 to 4 in smallNORB's order, 0 to 9, 0 to 5.
        azimuth, elevation: `[N]` indices into `AZIMUTHS` and `ELEVATIONS`.
    """
    images = np.empty((len(category), 2, SIZE, SIZE), np.uint8)
    for number, (c, i, a, e, k) in enumerate(zip(category, instance, azimuth, elevation, lighting, strict=True)):
        solid, grey = toy(int(c), int(i))
        for side, (eye, frame) in enumerate(stereo_cameras(ELEVATIONS[e])):
            bright = cast(solid, grey, turntable(AZIMUTHS[a]), eye, frame, light_of(k), SIZE)
            images[number, side] = np.floor(255 * bright.clip(0, 1) + 0.5)
    return images
