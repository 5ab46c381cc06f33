"""The parts of the measures of equivariance: what moves an image, how values follow, and what an error is."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from small import SCAE_SIZE, small_run
from torch import Tensor

from pipeline.probes.equivariance import errors
from pipeline.probes.equivariance.actions import FeatureMaps, FromTheLeft, Pairs, Poses, linear_map, plain
from pipeline.probes.equivariance.controls import MomentAction, QuarterTurnAction, moments, quarter_turn_network
from pipeline.probes.equivariance.errors_by_layer import changes
from pipeline.probes.equivariance.transformations import FAMILIES, Transformation, View, velocity
from pipeline.systems import MODELS, SYSTEMS, build_model

SIZE = 24
EVERYTHING, CROP = View(None), View(16)
NOTHING = Pairs(torch.zeros(0, 1, 1), torch.zeros(0, 1, 1), torch.zeros(0, 1))


def small(family: str, h: float) -> Transformation:
    """By h of the units that derivatives are per."""
    magnitude = {"scale": math.exp(0.01 * h), "shear": 0.01 * h}.get(family, h)
    return Transformation(family, magnitude)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def blobs(
    count: int = 6, channels: int = 1, size: int = SIZE, width: float = 0.16, centre: Tensor | None = None
) -> Tensor:
    """Images of a smooth blob in each channel, by default somewhere in the middle, `[count, channels, size, size]`."""
    if centre is None:
        centre = 0.5 * torch.rand(count, channels, 2, generator=seeded(1)) - 0.25
    ticks = (torch.arange(size) * 2 + 1) / size - 1
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    squared = (x - centre[..., 0, None, None]) ** 2 + (y - centre[..., 1, None, None]) ** 2
    return (-squared / (2 * width**2)).exp()


# ---- moving images


@pytest.mark.parametrize("family", FAMILIES)
def test_a_velocity_is_the_derivative_of_the_matrices(family: str) -> None:
    h = 1e-4
    g = small(family, h)
    identity = torch.eye(2, 3, dtype=torch.float64)
    torch.testing.assert_close((g.matrix(SIZE) - identity) / h, velocity(family, SIZE), rtol=0.01, atol=1e-6)
    torch.testing.assert_close(g.inverse.matrix(SIZE) - identity, identity - g.matrix(SIZE), rtol=0.01, atol=1e-8)


@pytest.mark.parametrize("view", [EVERYTHING, CROP], ids=["everything", "crop"])
def test_resampling_there_and_back_is_exact_on_the_grid_alone(view: View) -> None:
    images = blobs(width=0.06)
    exact = [Transformation("rotation", 90.0), Transformation("rotation", 180.0), Transformation("shift", 3.0)]
    for g in [*exact, Transformation("rotation", 15.0), Transformation("scale", 1.2)]:
        off = (view.there_and_back(images, g) - view.seen(images)).abs().max()
        assert (float(off) < 1e-4) == (g in exact), g


@pytest.mark.parametrize("family", FAMILIES)
def test_moving_is_the_central_difference_of_resampling(family: str) -> None:
    """Exactly for shifts, which bilinear resampling is linear in; the others to the order of the step. Of all that is
    in the frame, `black maps` below are the same.
    """
    images = blobs()
    h = 0.05
    g = small(family, h)
    difference = (CROP.moved(images, g) - CROP.moved(images, g.inverse)) / (2 * h)
    change = CROP.moving(images, family)
    atol = 1e-4 if family == "shift" else 0.02 * float(change.abs().max())
    torch.testing.assert_close(change, difference, rtol=0, atol=atol)
    assert float(change.abs().max()) > 1e-3


# ---- how values follow

POINTS: dict[str, tuple[Any, Tensor]] = {
    "poses": (Poses(), torch.randn(4, 3, 6, dtype=torch.float64, generator=seeded(0))),
    "moments": (MomentAction(), torch.rand(4, 1, 5, dtype=torch.float64, generator=seeded(0))),
    "maps": (FeatureMaps(SIZE, "border"), blobs(4, 3).double().flatten(2)),
    "black maps": (FeatureMaps(SIZE, "zeros"), blobs(4, 3).double().flatten(2)),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", POINTS)
def test_a_generator_is_the_derivative_of_an_action(name: str, family: str) -> None:
    action, values = POINTS[name]
    h = 0.05 if "maps" in name else 1e-3
    g = small(family, h)
    ahead, back = (action.finite(each.matrix(SIZE), NOTHING) for each in (g, g.inverse))
    generator = action.generator(velocity(family, SIZE), NOTHING)
    change = generator(values)
    atol = (0.02 if "maps" in name else 1e-5) * float(change.abs().max()) + 1e-9
    torch.testing.assert_close(change, (ahead(values) - back(values)) / (2 * h), rtol=0, atol=atol)


def test_a_matrix_from_the_right_is_not_found() -> None:
    generator = seeded(0)
    before, T = torch.randn(50, 3, 16, generator=generator), torch.randn(4, 4, generator=generator)
    after = (before.unflatten(-1, (4, 4)) @ T).flatten(-2)
    found = FromTheLeft(4).finite(torch.zeros(2, 3), Pairs(before, after, torch.ones(50, 3)))(before)
    assert float((found - after).square().mean()) > 0.3 * float(after.square().mean())


def test_a_matrix_from_the_left_and_a_linear_map_are_found_and_not_bent_by_absent_capsules() -> None:
    """One of three capsules is absent from every third image, and its values there are no matrix times the others. The
    map of the others holds there, too: for this capsule it was not fitted to these images.
    """
    generator = seeded(0)
    before, T = torch.randn(150, 3, 16, generator=generator), torch.randn(4, 4, generator=generator)
    W = torch.randn(48, 48, generator=generator)
    fits: list[tuple[Any, Tensor, float]] = [
        (FromTheLeft(4), (T @ before.unflatten(-1, (4, 4))).flatten(-2), 1e-4),
        (None, (before.flatten(1) @ W + 3).unflatten(-1, (3, 16)), 1e-3),
    ]
    for action, expected, tolerance in fits:
        after, weights = expected.clone(), torch.ones(150, 3)
        after[::3, 1], weights[::3, 1] = 100.0, 0.0
        pairs = Pairs(before, after, weights)
        rho = action.finite(torch.zeros(2, 3), pairs) if action else linear_map(pairs, [1e-9])
        torch.testing.assert_close(rho(before), expected, rtol=tolerance, atol=tolerance)


def test_the_penalty_is_chosen_on_images_that_the_map_was_not_fitted_to() -> None:
    """Targets of pure noise, as many numbers as images: without a penalty the map fits them, and predicts worse than
    the mean.
    """
    generator = seeded(0)
    before, after, others = (torch.randn(40, 1, 30, generator=generator) for _ in range(3))
    ones = torch.ones(40, 1)

    def size(penalties: list[float]) -> float:
        return float(linear_map(Pairs(before, after, ones), penalties)(others).square().mean())

    assert size([1e-9]) > 1
    assert size([1e-9, 100.0]) == pytest.approx(size([100.0]))
    assert size([100.0]) < 0.1
    louder = linear_map(Pairs(1000 * before, after, ones), [0.1])(1000 * others)
    torch.testing.assert_close(louder, linear_map(Pairs(before, after, ones), [0.1])(others))


# ---- errors


def error(prediction: Tensor, values: Tensor, after: Tensor) -> float:
    weights = torch.ones(values.shape[:2])
    scale = (errors.deviations(values, weights) + errors.deviations(after, weights)) / 2
    return errors.relative(errors.squared(after - prediction, weights), scale, 50, 0)[0]


def test_an_error_is_relative_to_how_features_vary_over_images() -> None:
    values = torch.randn(4000, 1, 8, generator=seeded(0), dtype=torch.float64)
    after = values.roll(1, -1)
    assert error(after, values, after) == 0
    assert error(after.mean(0, keepdim=True), values, after) == pytest.approx(1, abs=1e-6)
    assert error(after.roll(1, 0), values, after) == pytest.approx(2**0.5, rel=0.02)
    off = error(after + 0.1, values, after)
    assert off == pytest.approx(0.1, rel=0.02)
    for scale, constant in ((1e-3, 0.0), (50.0, 0.0), (1.0, 1000.0), (1e-2, 5.0)):
        moved = error(scale * (after + 0.1) + constant, scale * values + constant, scale * after + constant)
        assert moved == pytest.approx(off, rel=1e-6), "neither small features nor a large constant are rewarded"


def test_the_standard_error_is_that_of_the_mean_over_images() -> None:
    """Errors that are all alike have none; squares of half ones and half zeros have sd / sqrt(N) / (2 root)."""
    ones = torch.ones(400)
    assert errors.relative(0.25 * ones, ones, 200, 0) == pytest.approx((0.5, 0.0), abs=1e-7)
    half = (torch.arange(400) % 2).double()
    root, se = errors.relative(half, ones, 2000, 0)
    assert root == pytest.approx(0.5**0.5)
    assert se == pytest.approx(0.5 / 400**0.5 / (2 * root), rel=0.1)


# ---- derivatives


def test_a_network_that_stops_gradients_has_a_derivative() -> None:
    """x + x^2 whose square is detached: automatic differentiation gives 1 in place of 1 + 2 x."""
    x, u = torch.full((3, 1, 2, 2), 2.0, dtype=torch.float64), torch.ones(3, 1, 2, 2, dtype=torch.float64)
    found = changes(lambda v: {"f": plain((v + v.detach() ** 2).flatten(2), None)}, x, u)
    torch.testing.assert_close(found["f"], torch.full((3, 1, 4), 5.0, dtype=torch.float64), rtol=1e-6, atol=1e-6)


BY_HAND = ("matrix_capsules", "scae")
"""Routing has gradients written by hand; SCAE stops gradients from objects to parts."""


@pytest.mark.parametrize("variant", MODELS)
def test_derivatives_of_every_system_are_those_of_automatic_differentiation(variant: str) -> None:
    """J u, since v -> J^T v is linear in v: its derivative along u is J u."""
    run = small_run(variant)
    size = SCAE_SIZE if variant == "scae" else 12
    model = build_model(run, size).double().eval()
    side = run.augmentation.seen_size(size)
    images, direction = torch.rand(4, 1, side, side).double(), torch.randn(4, 1, side, side).double()
    read = partial(SYSTEMS[variant].part("equivariance").read, model)
    found = changes(read, images, direction)
    seen = images.requires_grad_()
    layers = read(seen)
    assert found.keys() == layers.keys()
    assert all(layer.weights.shape == layer.numbers.shape[:2] for layer in layers.values())
    for name, layer in layers.items():
        assert float(found[name].abs().max()) > 0, name
        if variant in BY_HAND:
            continue
        cotangent = torch.zeros_like(layer.numbers, requires_grad=True)
        (gradient,) = torch.autograd.grad(layer.numbers, seen, cotangent, create_graph=True)
        (expected,) = torch.autograd.grad(gradient, cotangent, direction, retain_graph=True)
        torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_layers_are_read_with_their_own_presences_and_actions() -> None:
    """Those of SCAE and of the generative model are beside their models' tests."""
    models, layers, images = {}, {}, torch.rand(4, 1, 12, 12)
    for variant in ("capsnet", "matrix_capsules", "vae", "cnn"):
        run = small_run(variant)
        seen = images[..., : run.augmentation.seen_size(12), : run.augmentation.seen_size(12)]
        models[variant] = build_model(run, 12).eval()
        layers[variant] = SYSTEMS[variant].part("equivariance").read(models[variant], seen)
    capsules = models["capsnet"].encode(images)
    torch.testing.assert_close(layers["capsnet"]["capsules"].numbers, capsules)
    torch.testing.assert_close(layers["capsnet"]["capsules"].weights, capsules.norm(dim=-1))
    poses, activations = models["matrix_capsules"].capsules(images[..., :10, :10])[-1]
    torch.testing.assert_close(layers["matrix_capsules"]["poses"].numbers, poses[:, 0])
    torch.testing.assert_close(layers["matrix_capsules"]["poses"].weights, activations[:, 0])
    torch.testing.assert_close(layers["vae"]["code"].numbers[:, 0], models["vae"].encode(images)[0])
    action = layers["cnn"]["maps"].action
    assert action == FeatureMaps(models["cnn"].maps(images[..., :10, :10]).shape[-1], "border")


# ---- controls


@pytest.mark.parametrize("turns", [1, 2])
def test_the_quarter_turn_network_is_exact_for_quarter_turns(turns: int) -> None:
    network, action = quarter_turn_network, QuarterTurnAction()
    images = torch.rand(5, 2, 16, 16, dtype=torch.float64, generator=seeded(0))
    matrix = Transformation("rotation", 90.0 * turns).matrix(16)
    rho = action.finite(matrix, NOTHING)
    assert rho
    before, after = network(images), network(images.rot90(turns, (-2, -1)))
    torch.testing.assert_close(after, rho(before), rtol=1e-9, atol=1e-12)
    assert float((after - before).abs().max()) > 1e-3 * float(before.abs().max()), "not by being invariant"
    resampled = network(View(None).moved(images.float(), Transformation("rotation", 90.0 * turns)).double())
    torch.testing.assert_close(resampled, rho(before), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("family", "magnitude"), [("rotation", 30.0), ("shift", 2.0), ("scale", 1.2), ("shear", 0.2)])
def test_moments_and_pixels_move_as_they_should(family: str, magnitude: float) -> None:
    g, images = Transformation(family, magnitude), blobs(20)
    weights = torch.ones(20, 1)
    before, after = moments(images), moments(EVERYTHING.moved(images, g))
    rho = MomentAction().finite(g.matrix(SIZE), NOTHING)
    scale = errors.deviations(after, weights)
    assert errors.relative(errors.squared(after - rho(before), weights), scale, 10, 0)[0] < 0.03
    assert errors.relative(errors.squared(after - before, weights), scale, 10, 0)[0] > 0.1
    pixels, moved = images.flatten(2), EVERYTHING.moved(images, g).flatten(2)
    torch.testing.assert_close(
        FeatureMaps(SIZE, "zeros").finite(g.matrix(SIZE), NOTHING)(pixels), moved, rtol=0, atol=1e-5
    )
