"""The rendered toys: rays against a referee that knows no algebra, cameras against geometry by hand."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from pipeline.data import toys
from pipeline.data.published import CATEGORIES
from pipeline.data.toys.pieces import ball, block, box, rod, round_piece, wing
from pipeline.data.toys.ray_casting import Light, Piece, Solid, cast, moved, ray_positions
from pipeline.data.toys.shapes import toy

STILL = np.eye(3)
Cameras = list[tuple[np.ndarray, np.ndarray]]
INSTANCES = 10

MIXED: Solid = (
    ball((0.1, -0.2, 0.3), 0.5, 0.25, 0.3, pitch=25),
    rod((-0.5, -0.4, -0.4), (0.3, 0.5, 0.1), 0.15),
    rod((0.5, 0.2, -0.5), (0.4, 0.1, 0.7), 0.3, 0.02),
    round_piece(np.array([-0.4, 0.4, 0.2]), np.diag([0.2, 0.3, 0.35]), (0.5, -0.5, 0.0)),
    box((-0.8, -0.1), 0.2, (-0.6, -0.2), front=0.5, rear=1.2, side=0.3),
    wing((0, 0, 0.1), (-0.3, 0.8, 0.2), 0.3, 0.4, 0.05),
    block((0.5, -0.5, -0.3), np.array([[0.2, 0.1, 0], [-0.1, 0.2, 0.1], [0, 0, 0.25]]), 1.6, 0.2, 0.1, 0.4),
)


def light(*towards: float, **changes: float) -> Light:
    direction = np.array(towards or (0.6, 0.0, 0.8))
    values = {"lamp": 0.6, "sky": 0.2, "ambient": 0.1, "background": 0.9, **changes}
    return Light(direction / np.linalg.norm(direction), **values)


def stereo(azimuth: float, elevation: float) -> Cameras:
    """Cameras that see the world as though it were turned the other way."""
    turn = toys.turntable(azimuth)
    return [(turn @ eye, turn @ frame) for eye, frame in toys.stereo_cameras(elevation)]


def pair(solid: Solid, cameras: Cameras, light: Light, turn: np.ndarray = STILL, size: int = 48) -> list[np.ndarray]:
    """Reflecting 0.8 of the light."""
    return [cast(solid, 0.8, turn, eye, frame, light, size) for eye, frame in cameras]


def outside(piece: Piece, points: np.ndarray) -> np.ndarray:
    """How far beyond its worst surface each point `[n, 3]` is, in no particular unit; negative inside."""
    local = np.linalg.solve(piece.axes, (points - piece.centre).T).T
    if piece.surface.ndim == 2:
        return (local @ piece.surface[:, :3].T - piece.surface[:, 3]).max(axis=1)
    x, y, z = local.T
    p, q, w = piece.surface
    return np.maximum(np.abs(z) - 1, x**2 + y**2 - (p + q * z + w * z**2))


def first_inside(piece: Piece, eye: np.ndarray, way: np.ndarray) -> tuple[float, float] | None:
    """Two places on a ray, outside a piece and then inside it; None where it is missed."""
    steps = np.linspace(0.75, 1.25, 201)
    for _ in range(3):  # closer and closer around where it comes nearest: a corner is cut in few steps
        levels = outside(piece, eye + steps[:, None] * way)
        if (levels < 0).any():
            after = int((levels < 0).argmax())
            return steps[after - 1], steps[after]
        nearest = int(levels[1:-1].argmin()) + 1
        steps = np.linspace(steps[nearest - 1], steps[nearest + 1], 51)
    return None


def walked(solid: Solid, eye: np.ndarray, way: np.ndarray, light: Light) -> float:
    """Brightness along one ray: step along it, halve the first step that goes inside, feel which way is out."""
    best, found = np.inf, light.background
    for piece in solid:
        step = first_inside(piece, eye, way)
        if step is None:
            continue
        before, after = step
        for _ in range(50):
            middle = (before + after) / 2
            before, after = (before, middle) if outside(piece, (eye + middle * way)[None])[0] < 0 else (middle, after)
        if after < best:
            best = after
            near = eye + after * way + 1e-6 * np.concatenate([np.eye(3), -np.eye(3)])
            levels = outside(piece, near)
            normal = (levels[:3] - levels[3:]) / np.linalg.norm(levels[:3] - levels[3:])
            lamp = light.lamp * max(0.0, float(normal @ light.direction))
            found = 0.8 * (light.ambient + light.sky * (1 + normal[2]) / 2 + lamp)
    return found


def test_every_ray_meets_what_one_walking_along_it_meets() -> None:
    size, lamp = 12, light(0.3, 0.5, 0.7)
    cameras = [(eye, frame * np.array([48 / size, 48 / size, 1])) for eye, frame in stereo(30, 35)]
    turn = toys.turntable(20)
    turned, positions = moved(MIXED, turn), ray_positions(size)
    for (eye, frame), picture in zip(cameras, pair(MIXED, cameras, lamp, turn, size), strict=True):
        rays = [walked(turned, eye, frame @ np.array([u, v, 1]), lamp) for v in positions for u in positions]
        expected = np.array(rays).reshape(size, 2, size, 2).mean(axis=(1, 3))
        assert (expected < 0.85).mean() > 0.15, "the solid must be seen"
        np.testing.assert_allclose(picture, expected, atol=1e-6)


def middle(picture: np.ndarray, background: float = 0.9) -> np.ndarray:
    """Where the middle of what is not background lies: `[2]` pixels to the right and down from the picture's."""
    ink = background - picture
    places = np.arange(len(picture)) + 0.5 - len(picture) / 2
    return np.array([(ink.sum(axis=0) * places).sum(), (ink.sum(axis=1) * places).sum()]) / ink.sum()


@pytest.mark.parametrize("nearer", [-1.0, 0.0, 0.8])
def test_nearer_things_are_further_right_for_the_left_eye(nearer: float) -> None:
    """By similar triangles `nearer b / (d - nearer)` apart on the plane through the origin, `b` between the eyes."""
    azimuth, elevation = np.deg2rad(20), np.deg2rad(40)
    towards = np.array([np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)])
    small = moved((ball((0, 0, 0), 0.3, 0.3, 0.3),), np.eye(3), nearer * towards)
    flat = light(lamp=0.0, sky=0.0, ambient=0.0)
    left, right = (middle(picture) for picture in pair(small, stereo(20, 40), flat))
    expected = nearer * toys.BASELINE / (toys.DISTANCE - nearer) / toys.PIXEL
    assert left[0] - right[0] == pytest.approx(expected, abs=0.1)
    assert left[1] == pytest.approx(right[1], abs=0.02)


def test_cameras_look_from_ahead_with_left_to_their_right() -> None:
    """The toy's left (y) is to the right, up is up, and its front is nearer, so lower in the picture."""
    for place, axis, sign in (((0, 0.5, 0), 0, 1), ((0, 0, 0.5), 1, -1), ((0.5, 0, 0), 1, 1)):
        small = moved((ball((0, 0, 0), 0.15, 0.15, 0.15),), np.eye(3), np.array(place))
        for picture in pair(small, stereo(0, 45), light()):
            assert sign * middle(picture)[axis] > 3


def test_the_pictures_are_the_same_on_every_machine() -> None:
    """One view of each toy, to the byte. Whoever changes the toys on purpose changes this number with them."""
    category, instance = np.indices((len(CATEGORIES), INSTANCES)).reshape(2, -1)
    same = np.ones(len(category), np.int64)
    assert zlib.crc32(toys.render(category, instance, 2 * same, 2 * same, 0 * same).tobytes()) == 4035707101


def test_pieces_lie_within_their_cubes_and_outlines_on_their_surfaces() -> None:
    """The cube bounds what rays are tried: a piece beyond it would be cut off."""
    for category in range(len(CATEGORIES)):
        for piece in (piece for instance in range(INSTANCES) for piece in toy(category, instance)[0]):
            local = np.linalg.solve(piece.axes, (piece.outline() - piece.centre).T).T
            assert np.abs(local).max() < 1 + 1e-9
            np.testing.assert_allclose(outside(piece, piece.outline()), 0, atol=1e-9)
            if piece.surface.ndim == 1:
                p, q, w = piece.surface
                heights = np.linspace(-1, 1, 41)
                radius = p + q * heights + w * heights**2
                assert radius.min() > -1e-12
                assert radius.max() < 1 + 1e-12
