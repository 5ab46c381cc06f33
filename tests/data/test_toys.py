"""The rendered toys: rays against a referee that knows no algebra, cameras against geometry by hand."""

import numpy as np
import pytest

from pipeline.data import toys
from pipeline.data.published import CATEGORIES
from pipeline.data.toys import Ellipsoid, Light, Toy, ball, cast, rod, stereo_cameras, toy, turntable

INSTANCES = 10
FLAT = Light(0, 50, 0, 0, 0, 0.9)

MIXED: Toy = (
    ball((0.1, -0.2, 0.3), 0.5, 0.25, 0.3),
    rod((-0.5, -0.4, -0.4), (0.3, 0.5, 0.1), 0.15),
    rod((0, 0, 0.1), (-0.3, 0.8, 0.2), 0.3, 0.05, across=(1, 0, 0)),
)


def pair(solid: Toy, azimuth: float, elevation: float, light: Light, size: int = 48) -> list[np.ndarray]:
    """Left and right image of a solid that reflects 0.8 of the light."""
    scale = np.array([48 / size, 48 / size, 1])
    return [cast(solid, 0.8, azimuth, eye, scale * frame, light, size) for eye, frame in stereo_cameras(elevation)]


def outside(piece: Ellipsoid, points: np.ndarray) -> np.ndarray:
    """Positive for points `[n, 3]` outside an ellipsoid, negative inside."""
    return (np.linalg.solve(piece.axes, (points - piece.centre).T) ** 2).sum(axis=0) - 1


def walked(solid: Toy, eye: np.ndarray, way: np.ndarray, light: Light, lamp: np.ndarray) -> float:
    """Brightness along one ray: step along it, halve the first step that goes inside, feel which way is out."""
    best, found = np.inf, light.background
    steps = np.linspace(0.75, 1.25, 501)
    for piece in solid:
        inside = outside(piece, eye + steps[:, None] * way) < 0
        if not inside.any():
            continue
        before, after = steps[inside.argmax() - 1], steps[inside.argmax()]
        for _ in range(50):
            middle = (before + after) / 2
            before, after = (before, middle) if outside(piece, (eye + middle * way)[None])[0] < 0 else (middle, after)
        if after < best:
            best = after
            levels = outside(piece, eye + after * way + 1e-6 * np.concatenate([np.eye(3), -np.eye(3)]))
            normal = (levels[:3] - levels[3:]) / np.linalg.norm(levels[:3] - levels[3:])
            shine = light.ambient + light.sky * (1 + normal[2]) / 2 + light.lamp * max(0.0, float(normal @ lamp))
            found = 0.8 * shine
    return found


def test_every_ray_meets_what_one_walking_along_it_meets() -> None:
    size, azimuth, light = 12, 50, Light(60, 50, 0.6, 0.2, 0.1, 0.9)
    around, up = np.deg2rad([60, 50])
    lamp = np.array([np.cos(around) * np.cos(up), np.sin(around) * np.cos(up), np.sin(up)])
    turn = turntable(azimuth)
    turned = tuple(Ellipsoid(turn @ centre, turn @ axes) for centre, axes in MIXED)
    positions = np.arange(0.25 - size / 2, size / 2, 0.5)  # two rays a pixel
    pictures = pair(MIXED, azimuth, 35, light, size)
    for (eye, frame), picture in zip(stereo_cameras(35), pictures, strict=True):
        ways = [frame @ np.array([u * 48 / size, v * 48 / size, 1]) for v in positions for u in positions]
        rays = np.array([walked(turned, eye, way, light, lamp) for way in ways])
        expected = rays.reshape(size, 2, size, 2).mean(axis=(1, 3))
        assert (expected < 0.85).mean() > 0.1, "the solid must be seen"
        np.testing.assert_allclose(picture, expected, atol=1e-6)


def middle(picture: np.ndarray, background: float = 0.9) -> np.ndarray:
    """Where the middle of what is not background lies: `[2]` pixels to the right and down from the picture's."""
    ink = background - picture
    places = np.arange(len(picture)) + 0.5 - len(picture) / 2
    return np.array([(ink.sum(axis=0) * places).sum(), (ink.sum(axis=1) * places).sum()]) / ink.sum()


@pytest.mark.parametrize("nearer", [-1.0, 0.0, 0.8])
def test_nearer_things_are_further_right_for_the_left_eye(nearer: float) -> None:
    """By similar triangles `nearer b / (d - nearer)` apart on the plane through the origin, `b` between the eyes."""
    elevation = np.deg2rad(40)
    towards = np.array([np.cos(elevation), 0, np.sin(elevation)])
    small = (ball(nearer * towards, 0.3, 0.3, 0.3),)
    left, right = (middle(picture) for picture in pair(small, 0, 40, FLAT))
    expected = nearer * toys.BASELINE / (toys.DISTANCE - nearer) / toys.PIXEL
    assert left[0] - right[0] == pytest.approx(expected, abs=0.1)
    assert left[1] == pytest.approx(right[1], abs=0.02)


def test_cameras_look_from_ahead_with_left_to_their_right() -> None:
    """The toy's left (y) is to the right, up is up, and its front is nearer, so lower in the picture. A quarter turn
    brings its front to the left side.
    """
    for place, azimuth, axis, sign in (
        ((0, 0.5, 0), 0, 0, 1),
        ((0, 0, 0.5), 0, 1, -1),
        ((0.5, 0, 0), 0, 1, 1),
        ((0.5, 0, 0), 90, 0, 1),
    ):
        for picture in pair((ball(place, 0.15, 0.15, 0.15),), azimuth, 45, FLAT):
            assert sign * middle(picture)[axis] > 3


def test_a_rod_ends_where_it_is_told_to() -> None:
    start, end = np.array([-0.5, -0.4, -0.4]), np.array([0.3, 0.5, 0.1])
    piece = rod(start, end, 0.15, 0.05)
    half = (end - start) / 2
    third = np.cross(half, [0, 1, 0]) / np.linalg.norm(np.cross(half, [0, 1, 0]))
    surface = [start, end, start + half + [0, 0.15, 0], start + half + 0.05 * third]
    np.testing.assert_allclose(outside(piece, np.array(surface)), 0, atol=1e-12)


def test_toys_differ_and_fill_a_sphere_that_images_show() -> None:
    """Half an image is 24 pixels, 1.3 units at the toy's centre."""
    for category in range(len(CATEGORIES)):
        solids = [toy(category, instance)[0] for instance in range(INSTANCES)]
        assert len({str(solid) for solid in solids}) == INSTANCES
        for solid in solids:
            directions = np.random.default_rng(0).normal(size=(2000, 3))
            directions /= np.linalg.norm(directions, axis=1, keepdims=True)
            surface = np.concatenate([centre + directions @ axes.T for centre, axes in solid])
            assert 0.9 < np.linalg.norm(surface, axis=1).max() < 1.1


def test_toys_are_seen_from_every_side_in_every_light() -> None:
    category, lighting = np.indices((len(CATEGORIES), len(toys.LIGHTINGS))).reshape(2, -1)
    views = [toys.render(category, 0 * category, 0 * category + turn, 0 * category, lighting) for turn in (0, 5)]
    for pictures in views:
        assert pictures.shape == (30, 2, 48, 48)
        border = pictures.reshape(60, 48, 48)[:, [0, -1]].reshape(60, -1)
        background = np.rint(255 * np.repeat([light.background for light in toys.LIGHTINGS], 2))
        assert (border == np.tile(background, len(CATEGORIES))[:, None]).all()
        assert ((pictures.reshape(60, -1) != border[:, :1]).mean(axis=1) > 0.05).all()
    assert (views[0] != views[1]).any(axis=(1, 2, 3)).all()
