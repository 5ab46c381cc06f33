"""The fifty toys: ten instances of each of smallNORB's five categories.

Instances differ in proportions, pose and details. They also differ slightly in size and grey level, which do not depend
on the category. Each toy is built in its own coordinates, then centred and scaled.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from pipeline.data.toys.pieces import SIDES, Pair, Point, ball, block, box, polar, rod, sine_cosine, wheels, wing
from pipeline.data.toys.ray_casting import Floats, Piece, Solid, moved

Four = tuple[float, float, float, float]
Limbs = tuple[Pair, Pair]
"""Angles of the two parts of the left limb and of the right limb, degrees forward."""


def _animal(size: Pair, limbs: Pair, nape: Pair, face: Pair, rump: Pair, stride: float, extra: str) -> list[Piece]:
    """An animal with four legs. `size` is half the length and half the height of the body. `limbs` is the length and
    the radius of the legs, `nape` the length of the neck and its angle upwards in degrees, `face` the radius of the
    head and the length of the muzzle, `rump` the length of the tail and its angle downwards. The front feet are
    `stride` further forward and the rear feet further back. `extra` names a further part, such as ears.
    """
    (length, girth), (legs, leg), (neck, rise), (head, muzzle), (tail, droop) = size, limbs, nape, face, rump
    back = legs + 0.8 * girth
    pieces: list[Piece] = [ball((0, 0, back), length, 0.8 * girth, girth)]
    for x, first in ((0.66 * length, 1.0), (-0.68 * length, -1.0)):
        for side in SIDES:
            hip, foot = (x, 0.5 * side * girth, back), (x + first * side * stride, 0.5 * side * girth, 0.0)
            pieces.append(rod(hip, foot, 1.5 * leg, 0.85 * leg))
    withers = (0.68 * length, 0.0, back + 0.2 * girth)
    top = polar(withers, neck, rise)
    pieces += [ball(withers, 0.62 * girth, 0.55 * girth, 0.62 * girth), rod(withers, top, 0.6 * girth, 0.75 * head)]

    def at(x: float, y: float, z: float) -> Floats:
        """A point relative to the head, in units of its radius."""
        return top + head * np.array([x, y, z])

    nose = at(1 + muzzle / head, 0, -0.4 - 0.3 * muzzle / head)
    pieces.append(ball(at(0.25, 0, 0), 1.25 * head, 0.85 * head, head, pitch=-15))
    pieces.append(rod(at(0.5, 0, -0.1), nose, 0.7 * head, 0.42 * head))
    croup = (-0.9 * length, 0.0, back + 0.35 * girth)
    pieces.append(rod(croup, polar(croup, -tail, droop), 0.15 * girth + 0.02, 0.08 * girth + 0.015))
    match extra:
        case "ears":
            pieces += [
                rod(at(-0.2, 0.5 * side, 0.5), at(-0.3, 0.7 * side, 1.4), 0.26 * head, 0.06 * head) for side in SIDES
            ]
        case "trunk":
            pieces.append(rod(at(1.1, 0, -0.2), (top[0] + 1.9 * head, 0, 0.25 * top[2]), 0.38 * head, 0.18 * head))
            for side in SIDES:
                pieces.append(ball(at(-0.2, 1.05 * side, 0), 0.3 * head, 0.6 * head, 0.95 * head))
                pieces.append(rod(at(1, 0.4 * side, -0.5), at(2.2, 0.5 * side, -0.7), 0.14 * head, 0.06 * head))
        case "horns":
            pieces += [
                rod(at(0, 0.5 * side, 0.6), at(0.3, 1.7 * side, 1.5), 0.22 * head, 0.08 * head) for side in SIDES
            ]
        case "antlers":
            for side in SIDES:
                for x in (-0.9, 0.5):
                    pieces.append(rod(at(0, 0.35 * side, 0.6), at(x, 1.6 * side, 2.4), 0.18 * head, 0.1 * head))
        case "mane":
            pieces.append(ball(at(-0.35, 0, -0.1), 0.75 * head, 1.5 * head, 1.65 * head))
        case "hump":
            pieces.append(ball((-0.05 * length, 0, back + 0.9 * girth), 0.4 * length, 0.5 * girth, 0.7 * girth))
        case "horn":
            tusk = 0.6 * muzzle / head
            pieces.append(rod(at(0.9 + tusk, 0, -0.3), at(1.1 + tusk, 0, 1.3), 0.3 * head, 0.04 * head))
    return pieces


_ANIMALS = (
    # size, limbs, nape, face, rump, stride, extra
    ((0.72, 0.31), (0.78, 0.080), (0.62, 55), (0.17, 0.27), (0.60, 65), 0.12, "ears"),  # horse
    ((0.78, 0.50), (0.62, 0.170), (0.22, 35), (0.30, 0.05), (0.40, 75), 0.12, "trunk"),  # elephant
    ((0.60, 0.24), (0.50, 0.075), (0.28, 50), (0.19, 0.20), (0.50, -50), 0.12, "ears"),  # dog
    ((0.80, 0.40), (0.50, 0.095), (0.30, 20), (0.20, 0.22), (0.55, 80), 0.10, "horns"),  # cow
    ((0.74, 0.29), (0.50, 0.090), (0.30, 40), (0.21, 0.12), (0.70, 30), 0.20, "mane"),  # lion
    ((0.58, 0.24), (0.72, 0.060), (0.50, 60), (0.14, 0.18), (0.16, 20), 0.12, "antlers"),  # deer
    ((0.66, 0.33), (0.80, 0.080), (0.75, 40), (0.16, 0.20), (0.40, 75), 0.12, "hump"),  # camel
    ((0.84, 0.44), (0.42, 0.130), (0.28, 0), (0.25, 0.26), (0.35, 70), 0.10, "horn"),  # rhinoceros
    ((0.64, 0.22), (0.42, 0.070), (0.20, 45), (0.19, 0.06), (0.75, -60), 0.20, "ears"),  # cat
    ((0.66, 0.30), (0.60, 0.080), (0.45, 45), (0.18, 0.26), (0.45, 75), 0.05, "ears"),  # donkey
)


def _limb(start: Point, length: float, swings: Pair, aside: float, radius: float) -> tuple[list[Piece], Point]:
    """An arm or a leg of two parts, each `length` long, and its end point. `swings` are the angles of the parts in
    degrees forward (0 hangs down). Each part leans to the left by the angle whose tangent is `aside`.
    """
    pieces: list[Piece] = []
    for swing, first, last in zip(swings, (1.0, 0.85), (0.85, 0.65), strict=True):
        s, c = sine_cosine(swing)
        step = np.array([s, aside, -c])
        end = start + step * (length / np.sqrt((step * step).sum()))
        pieces.append(rod(start, end, first * radius, last * radius))
        start = end
    return pieces, start


def _human(arms: Limbs, legs: Limbs, aside: Pair, bulk: float, leg: float, hat: str, stick: Pair) -> list[Piece]:
    """A figure on a round base. `aside` is how far arms and legs lean outwards, `bulk` the thickness of the body, `leg`
    the length of half a leg. `stick` is the length of the stick in the right hand and its angle in degrees (90 points
    forward).
    """
    shoulder = 0.45
    pieces: list[Piece] = [
        ball((0, 0, 0.04), 0.15 * bulk, 0.2 * bulk, 0.17),
        block((0, 0, 0.26), np.diag([0.13 * bulk, 0.23 * bulk, -0.26]), 0.3, 0.3, 0.5, 0.5),
        ball((0, 0, shoulder), 0.14 * bulk, 0.27 * bulk, 0.13),
        rod((0, 0, shoulder), (0.02, 0, shoulder + 0.25), 0.08),
        ball((0.03, 0, shoulder + 0.34), 0.17, 0.15, 0.19),
    ]
    soles = []
    for side, swings in zip(SIDES, legs, strict=True):
        parts, foot = _limb((0, 0.11 * side * bulk, 0), leg, swings, side * aside[1], 0.12 * bulk)
        pieces += [*parts, ball(foot + np.array([0.07, 0, 0]), 0.16, 0.08, 0.07)]
        soles.append(foot[2] - 0.05)
    hand: Point = (0, 0, 0)
    for side, swings in zip(SIDES, arms, strict=True):
        parts, hand = _limb((0, 0.26 * side * bulk, shoulder + 0.03), 0.32, swings, side * aside[0], 0.09 * bulk)
        pieces += [*parts, ball(hand, 0.08, 0.08, 0.08)]
    reach, swing = stick
    if reach:
        pieces.append(rod(polar(hand, -0.3 * reach, swing - 90), polar(hand, 0.7 * reach, swing - 90), 0.045))
    crown = shoulder + 0.34
    match hat:
        case "brim":
            pieces.append(rod((0.03, 0, crown + 0.08), (0.03, 0, crown + 0.12), 0.28))
            pieces.append(rod((0.03, 0, crown + 0.1), (0.03, 0, crown + 0.27), 0.17, 0.13))
        case "cone":
            pieces.append(rod((0.03, 0, crown + 0.06), (0.03, 0, crown + 0.45), 0.21, 0.01))
        case "helmet":
            pieces.append(ball((0.01, 0, crown + 0.07), 0.22, 0.21, 0.15))
    ground = min(soles)
    return [*pieces, rod((0, 0, ground - 0.06), (0, 0, ground), 0.36)]


_HUMANS = (
    # arms, legs, aside, bulk, leg, hat, stick
    (((5, 20), (5, 20)), ((0, 0), (0, 0)), (0.30, 0.10), 1.10, 0.46, "", (0.0, 0)),
    (((30, 80), (75, 95)), ((25, 5), (-20, -25)), (0.15, 0.10), 1.00, 0.46, "brim", (0.6, 90)),
    (((-40, 20), (50, 110)), ((50, -10), (-25, -60)), (0.20, 0.05), 1.00, 0.46, "", (0.0, 0)),
    (((0, 0), (0, 0)), ((0, 0), (0, 0)), (3.00, 0.35), 1.15, 0.44, "", (0.0, 0)),
    (((10, 30), (60, 100)), ((10, 0), (-10, -10)), (0.20, 0.12), 1.05, 0.44, "helmet", (1.3, 188)),
    (((60, 85), (80, 90)), ((30, 10), (-30, -30)), (0.10, 0.15), 1.20, 0.42, "helmet", (0.8, 90)),
    (((160, 175), (160, 175)), ((0, 0), (0, 0)), (0.40, 0.30), 1.05, 0.44, "", (0.0, 0)),
    (((25, 60), (-25, 10)), ((-25, -35), (28, 5)), (0.25, 0.05), 1.15, 0.46, "cone", (0.0, 0)),
    (((15, 70), (140, 165)), ((5, 0), (-5, -5)), (0.20, 0.35), 1.05, 0.44, "brim", (0.8, 140)),
    (((60, 85), (50, 80)), ((60, -20), (10, -60)), (0.20, 0.10), 1.05, 0.48, "", (0.0, 0)),
)


def _airplane(hull: Pair, wings: Four, root: Pair, fins: Pair, engines: int, extra: str) -> list[Piece]:
    """A body with wings and a tail.

    Args:
        hull: half the length of the body, and its radius.
        wings: length, half chord and taper of one wing, and how far back the tip is.
        root: where the wings begin: along the body, and from its belly (-1) to its back (1).
        fins: span of the tailplane on one side, height of the fin.
        engines: number of engines under the wings.
        extra: "propeller", or "biplane" for a propeller and a second pair of wings.
    """
    (length, body), (span, chord, taper, sweep), (place, level), (tail, fin) = hull, wings, root, fins
    z = 0.7 * level * body
    rear, stern = -0.86 * length, 0.55 * chord
    pieces: list[Piece] = [
        ball((0.05 * length, 0, 0), 0.95 * length, body, body),
        rod((-0.1 * length, 0, 0), (-length, 0, 0.25 * body), 0.92 * body, 0.3 * body),
        ball((0.38 * length, 0, 0.75 * body), 0.2 * length, 0.55 * body, 0.5 * body),
        wing((rear + 0.02, 0, 0), (rear - 0.1 - 0.3 * sweep, 0, fin), 1.1 * stern, 0.55, 0.04),
    ]
    for side in SIDES:
        pieces.append(wing((place, 0, z), (place - sweep, side * span, z + 0.06 * span), chord, taper, 0.05))
        stabiliser = (rear - 0.4 * sweep, side * tail, 0.15 * body)
        pieces.append(wing((rear, 0, 0.15 * body), stabiliser, stern, 0.6, 0.04))
        for engine in range(engines // 2):
            share = 0.36 + 0.3 * engine
            x, y, below = place - share * sweep, side * share * span, z - 0.1
            pieces.append(rod((x - 0.1, y, below), (x + 1.3 * chord, y, below), 0.085))
        if extra == "biplane":
            pieces.append(wing((place, 0, z + 0.45), (place, side * span, z + 0.47), chord, taper, 0.05))
            pieces.append(rod((place, 0.7 * side * span, z), (place, 0.7 * side * span, z + 0.47), 0.04))
    if extra in ("propeller", "biplane"):
        pieces.append(rod((0.75 * length, 0, 0), (1.02 * length, 0, 0), 0.7 * body, 0.5 * body))
        pieces.append(block((1.03 * length, 0, 0), np.diag([0.03, 0.34, 0.06])))
    return pieces


_AIRPLANES = (
    # hull, wings, root, fins, engines, extra
    ((1.00, 0.16), (1.00, 0.23, 0.45, 0.45), (0.12, -0.8), (0.40, 0.46), 2, ""),
    ((0.80, 0.17), (1.00, 0.22, 0.85, 0.00), (0.22, 1.0), (0.38, 0.38), 0, "propeller"),
    ((0.95, 0.15), (0.68, 0.50, 0.15, 0.60), (-0.12, -0.5), (0.30, 0.42), 0, ""),
    ((0.72, 0.17), (0.90, 0.20, 0.90, 0.00), (0.25, -0.9), (0.34, 0.34), 0, "biplane"),
    ((1.05, 0.18), (1.05, 0.21, 0.40, 0.50), (0.15, -0.8), (0.42, 0.50), 4, ""),
    ((0.85, 0.12), (1.15, 0.15, 0.60, 0.05), (0.20, 0.6), (0.34, 0.36), 0, ""),
    ((0.85, 0.16), (0.95, 0.24, 0.60, 0.10), (0.18, -0.9), (0.40, 0.36), 0, "propeller"),
    ((0.95, 0.13), (0.75, 0.36, 0.30, 0.55), (0.00, 0.3), (0.36, 0.44), 0, ""),
    ((0.90, 0.18), (1.05, 0.21, 0.70, 0.00), (0.15, 1.0), (0.42, 0.46), 2, ""),
    ((0.78, 0.16), (0.85, 0.20, 0.90, 0.10), (0.22, -0.9), (0.36, 0.36), 0, "biplane"),
)


def _truck(size: Pair, front: Four, axles: int, cargo: tuple[str, float]) -> list[Piece]:
    """A cab with a load, or a bus. `size` is half its length and half its width. `front` is the length and height of
    the cab, the length of the bonnet, and how far the windscreen leans back. `cargo` is a load and its height.
    """
    (length, width), (cab, cab_height, hood, slope), (load, height) = size, front, cargo
    floor = 0.3
    pieces: list[Piece] = [box((-length, length - 0.05), 0.75 * width, (0.16, floor))]
    behind = length - hood - cab
    bed = (-length, behind - 0.06)
    middle, half = (bed[0] + bed[1]) / 2, (bed[1] - bed[0]) / 2
    if load == "bus":
        top = floor + height
        pieces.append(box((-length, length), width, (0.14, top), front=slope, rear=0.02, side=0.12))
        pieces.append(box((-0.7 * length, 0.5 * length), 0.5 * width, (top - 0.01, top + 0.07), side=0.2))
    else:
        pieces.append(box((behind, length - hood), 0.95 * width, (0.16, floor + cab_height), front=slope, side=0.12))
    if hood:
        bonnet = (length - hood - 0.02, length)
        pieces.append(box(bonnet, 0.82 * width, (0.16, floor + 0.48 * cab_height), front=0.15, side=0.15))
    match load:
        case "box":
            pieces.append(box(bed, width, (floor, floor + height)))
        case "tank":
            z = floor + 0.5 * height
            pieces.append(rod((bed[0], 0, z), (bed[1], 0, z), 0.55 * height))
            pieces.append(rod((middle, 0, z), (middle, 0, z + 0.68 * height), 0.12))
        case "tipper":
            s, c = sine_cosine(18)
            turn = np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])
            centre = (middle - 0.05, 0.0, floor + 0.75 * height)
            pieces.append(block(centre, turn * np.array([half, width, -0.5 * height]), 0.35, 0.2, 0.15, 0.15))
        case "bed":
            pieces.append(box(bed, width, (floor - 0.04, floor + 0.06)))
            pieces.append(box((bed[0], bed[0] + 0.06), width, (floor, floor + height)))
            for side in SIDES:
                plank = (middle, side * (width - 0.03), floor + height / 2)
                pieces.append(block(plank, np.diag([half, 0.03, height / 2])))
    rear_axles = (-length + 0.3,) if axles == 2 else (-length + 0.62, -length + 0.26)
    return pieces + wheels((length - 0.26, *rear_axles), width - 0.04, 0.17, 0.08)


_TRUCKS = (
    # size, front, axles, cargo
    ((1.00, 0.36), (0.45, 0.55, 0.00, 0.25), 2, ("box", 0.72)),
    ((1.05, 0.34), (0.40, 0.52, 0.30, 0.25), 3, ("tank", 0.56)),
    ((0.95, 0.38), (0.45, 0.50, 0.00, 0.25), 2, ("tipper", 0.42)),
    ((1.00, 0.36), (0.00, 0.60, 0.00, 0.04), 2, ("bus", 0.62)),
    ((1.00, 0.35), (0.42, 0.58, 0.28, 0.25), 3, ("box", 0.60)),
    ((0.95, 0.38), (0.50, 0.50, 0.30, 0.35), 2, ("bed", 0.24)),
    ((1.00, 0.38), (0.42, 0.55, 0.00, 0.25), 2, ("tank", 0.64)),
    ((0.90, 0.40), (0.00, 0.55, 0.00, 0.25), 2, ("bus", 0.70)),
    ((1.00, 0.37), (0.42, 0.50, 0.25, 0.25), 3, ("tipper", 0.50)),
    ((1.00, 0.37), (0.45, 0.52, 0.00, 0.25), 2, ("bed", 0.28)),
)


def _car(size: Pair, hull: Pair, cabin: Pair, glass: Point, extra: str) -> list[Piece]:
    """A low body with a narrower cabin. `size` is half its length and half its width. `hull` is the height of the body
    and how far its front leans back, `cabin` the x of the cabin's rear and front, `glass` the cabin's height, and how
    far windscreen and rear window lean in. `extra` is a further part, "open" for no roof, or "round" for a domed roof.
    """
    (length, width), (body, nose), (roof, screen, back) = size, hull, glass
    low, waist = 0.12, 0.12 + 0.62 * body
    top = low + body
    pieces: list[Piece] = [
        box((-length, length), width, (low, waist), front=0.05, rear=0.04, side=0.04),
        box((-length, length), 0.97 * width, (waist, top), front=nose, rear=0.12, side=0.16),
    ]
    match extra:
        case "open":
            pieces.append(box((cabin[1] - 0.1, cabin[1] + 0.12), 0.8 * width, (top, top + roof), front=1.6, side=0.15))
            pieces.append(box((cabin[0] - 0.05, cabin[0] + 0.12), 0.85 * width, (top, top + 0.1), rear=0.8, side=0.2))
            pieces += [ball((cabin[0] + 0.25, 0.4 * side * width, top), 0.09, 0.14, 0.22) for side in SIDES]
        case "round":
            pieces.append(ball(((cabin[0] + cabin[1]) / 2, 0, top), (cabin[1] - cabin[0]) / 2, 0.86 * width, roof))
            pieces.append(ball((0.6 * length, 0, top - 0.06), 0.42 * length, 0.62 * width, 0.16))
        case _:
            pieces.append(box(cabin, 0.88 * width, (top, top + roof), front=screen, rear=back, side=0.34))
    match extra:
        case "spoiler":
            pieces.append(box((-length, -length + 0.24), 0.95 * width, (top + 0.15, top + 0.2)))
            for side in SIDES:
                foot = (-length + 0.12, 0.7 * side * width, top)
                pieces.append(rod(foot, polar(foot, 0.16, 90), 0.04))
        case "rack":
            luggage = (cabin[0] + 0.25, cabin[1] - 0.3)
            pieces.append(box(luggage, 0.5 * width, (top + roof, top + roof + 0.1), front=0.2, rear=0.2))
        case "spare":
            pieces.append(rod((-length - 0.09, 0, top - 0.12), (-length, 0, top - 0.12), 0.17))
    return pieces + wheels((0.62 * length, -0.62 * length), width - 0.035, 0.165, 0.08)


_CARS = (
    # size, hull, cabin, glass, extra
    ((1.00, 0.42), (0.34, 0.10), (-0.68, 0.38), (0.30, 0.75, 0.50), ""),
    ((0.86, 0.42), (0.36, 0.12), (-0.80, 0.36), (0.32, 0.70, 0.18), ""),
    ((1.00, 0.46), (0.27, 0.45), (-0.70, 0.30), (0.22, 1.00, 0.70), "spoiler"),
    ((0.98, 0.42), (0.32, 0.12), (-0.45, 0.25), (0.24, 0.80, 0.50), "open"),
    ((0.98, 0.42), (0.33, 0.12), (-0.92, 0.36), (0.30, 0.55, 0.15), "rack"),
    ((0.88, 0.42), (0.34, 0.25), (-0.72, 0.36), (0.36, 0.70, 0.50), "round"),
    ((1.02, 0.45), (0.28, 0.40), (-0.62, 0.28), (0.23, 1.00, 0.90), ""),
    ((0.86, 0.43), (0.42, 0.08), (-0.82, 0.34), (0.36, 0.40, 0.08), "spare"),
    ((0.96, 0.43), (0.30, 0.25), (-0.50, 0.22), (0.24, 0.90, 0.60), "open"),
    ((0.96, 0.41), (0.34, 0.12), (-0.62, 0.32), (0.33, 0.65, 0.60), "spoiler"),
)

_KINDS: tuple[tuple[Callable[..., list[Piece]], Sequence[tuple[Any, ...]]], ...] = (
    (_animal, _ANIMALS),
    (_human, _HUMANS),
    (_airplane, _AIRPLANES),
    (_truck, _TRUCKS),
    (_car, _CARS),
)


@cache
def toy(category: int, instance: int) -> tuple[Solid, float]:
    """The solid of an instance (0 to 9) of a category (0 to 4 in smallNORB's order), and the share of light that it
    reflects. The solid is centred on the origin. The radius of its bounding sphere is about 1.
    """
    make, forms = _KINDS[category]
    solid = tuple(make(*forms[instance]))
    # Size and grey level are drawn separately for each toy, from the same ranges for every category.
    size, paint = np.random.default_rng([category, instance]).random(2).tolist()
    outline = np.concatenate([piece.outline() for piece in solid])
    middle = (outline.min(axis=0) + outline.max(axis=0)) / 2
    reach = float(np.sqrt(((outline - middle) ** 2).sum(axis=1).max()))
    scale = (0.94 + 0.12 * size) / reach
    return moved(solid, np.eye(3) * scale, -middle * scale), 0.62 + 0.12 * paint
