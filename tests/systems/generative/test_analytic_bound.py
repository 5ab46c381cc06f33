"""The bound without noise: each of its pieces against samples or integrals, and the whole against the sampled bound.
Gauss-Newton steps on it: gradient and curvature against autograd, the eliminated system against a dense one.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from pipeline.layers.rendering import composite, warp_templates
from pipeline.systems.generative.inference.analytic_bound import (
    STATE,
    analytic_bound,
    expected_presence_log_prob,
    expected_softplus,
    hierarchy_bound,
    pack,
    picture_moments,
    presence_moments,
    stratified_noise,
    unpack,
)
from pipeline.systems.generative.inference.curvature import linearise, solve
from pipeline.systems.generative.inference.free_form import mean_bound
from pipeline.systems.generative.model.distributions import Capsules, logistic_noise, presence_log_prob
from pipeline.systems.generative.model.generative_model import GenerativeModel


def integral(function: object) -> float:
    """The mean of a function of standard logistic noise, by adaptive quadrature."""

    def weighted(noise: float) -> float:
        density = 0.25 / math.cosh(noise / 2) ** 2
        return density * function(noise)  # type: ignore[operator]

    return float(quad(weighted, -40, 40, limit=400, points=[0.0], epsabs=1e-12)[0])


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
@pytest.mark.parametrize("a", [-9.0, -0.7, 0.0, 3.0])
def test_moments_of_a_relaxed_presence(a: float, temperature: float) -> None:
    mean, square = presence_moments(torch.tensor([a], dtype=torch.float64), temperature)

    def t(noise: float) -> float:
        return 1 / (1 + math.exp(-(a + noise) / temperature))

    assert mean.item() == pytest.approx(integral(t), abs=3e-6)
    assert square.item() == pytest.approx(integral(lambda noise: t(noise) ** 2), abs=3e-6)


@pytest.mark.parametrize("c", [-30.0, -2.0, -0.011, -0.009, 0.0, 0.004, 0.02, 5.0, 50.0])
def test_expected_softplus(c: float) -> None:
    ours = expected_softplus(torch.tensor(c, dtype=torch.float64)).item()
    assert ours == pytest.approx(integral(lambda noise: np.logaddexp(0, c + noise)), rel=1e-6, abs=1e-9)


def test_expected_log_density_of_a_presence() -> None:
    a, logits, temperature = torch.tensor(1.3, dtype=torch.float64), -0.8, 0.6

    def log_density(noise: float) -> float:
        return presence_log_prob((a + noise) / temperature, torch.tensor(logits).double(), temperature).item()

    ours = expected_presence_log_prob(a, logits, temperature).item()
    assert ours == pytest.approx(integral(log_density), rel=1e-7)


def test_picture_moments_against_every_combination_of_presences() -> None:
    """Presences that take two values each: mean and second moment by enumeration."""
    generator = torch.Generator().manual_seed(0)
    parts, size = 4, 3
    colour, alpha = torch.rand(2, 1, parts, size, size, generator=generator, dtype=torch.float64)
    values = torch.rand(parts, 2, generator=generator, dtype=torch.float64)
    share = torch.rand(parts, generator=generator, dtype=torch.float64)
    first, second = torch.zeros(2, 1, size, size, dtype=torch.float64)
    for index in range(2**parts):
        chosen = torch.tensor([(index >> j) & 1 for j in range(parts)])
        weight = torch.where(chosen == 1, share, 1 - share).prod()
        t = values[torch.arange(parts), chosen]
        picture = composite(torch.stack([colour, alpha * t[:, None, None]], dim=2))
        first, second = first + weight * picture, second + weight * picture**2
    mean = share * values[:, 1] + (1 - share) * values[:, 0]
    square = share * values[:, 1] ** 2 + (1 - share) * values[:, 0] ** 2
    ours = picture_moments(colour, alpha, mean[None], square[None])
    torch.testing.assert_close(ours[0], first, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ours[1], second, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def sampled_bounds(model: GenerativeModel, images: Tensor, found: Capsules, noise: Tensor) -> Tensor:
    """Means of the sampled bound over every fortieth of the samples `noise [samples, N, noise_size]`, `[40, N]`."""
    states, samples = pack(found).repeat(40, 1), noise.unflatten(0, (-1, 40)).flatten(1, 2)
    bounds, _ = mean_bound(model, images.repeat(40, 1, 1, 1), unpack(states, model.params.parts), samples)
    return bounds.view(40, -1)


def test_nothing_is_lost_where_presences_are_settled(model: GenerativeModel, images: Tensor) -> None:
    """With log odds of +-15 no sample changes who is there, so Jensen's inequality is an equality, and what noise is
    left in the sampled bound is a sum over presences: one series of quantiles averages over all of them at once.
    """
    found = model.encode(images)
    turns = (-1.0) ** torch.arange(found.part_logits.shape[1])
    found = replace(
        found,
        part_logits=15 * turns.expand_as(found.part_logits).to(found.part_logits),
        object_logits=15 * (-1.0) ** torch.arange(found.object_logits.shape[1]).expand_as(found.object_logits).double(),
    )
    levels = ((torch.arange(2000).double() + 0.5) / 2000).logit()
    noise = levels[:, None, None].expand(-1, len(images), model.noise_size)
    ours, sampled = analytic_bound(model, images, pack(found)), sampled_bounds(model, images, found, noise).mean(0)
    torch.testing.assert_close(ours.detach(), sampled, rtol=0, atol=0.02)


def test_strata_keep_the_tails_of_the_noise() -> None:
    """Their means, by quadrature: a function that is linear in every stratum has its exact mean."""
    samples = 16
    noise = stratified_noise(samples, 3).sort(0).values
    for k in range(samples):
        mean = samples * quad(lambda u: math.log(u / (1 - u)), k / samples, (k + 1) / samples)[0]
        torch.testing.assert_close(noise[k], torch.full((3,), mean, dtype=torch.float64), rtol=1e-6, atol=1e-9)


def test_it_lies_a_little_below_the_mean_of_the_sampled_bound(model: GenerativeModel, images: Tensor) -> None:
    """800 samples; the bound may exceed their mean by five standard errors (once in three million draws) and by a
    twentieth of a nat, what stratified samples of the objects' presences may be off.
    """
    with torch.no_grad():
        found = model.encode(images)
        ours = analytic_bound(model, images, pack(found))
    noise = logistic_noise((800, len(images), model.noise_size), torch.Generator().manual_seed(2), "cpu").double()
    means = sampled_bounds(model, images, found, noise)
    error = means.std(0) / math.sqrt(len(means))
    gap = means.mean(0) - ours
    assert (gap > -5 * error - 0.05).all()
    assert (gap < 3).all()


# ---- Gauss-Newton steps


@pytest.fixture
def states(model: GenerativeModel, images: Tensor) -> Tensor:
    """Away from the encoder's output; in the last image a part is so flat that its determinant is held."""
    with torch.no_grad():
        states = pack(model.encode(images))
        states += torch.randn(states.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64) * 0.1
        flat = states[-1].unflatten(0, (-1, STATE))[1]
        flat[1:4] = torch.tensor([-0.5, 0.2, 0.1])
        flat[4:7] = torch.tensor([0.5, -0.7999, 0.0])
    return states


def mean_picture(model: GenerativeModel, state: Tensor) -> Tensor:
    found = unpack(state[None], model.params.parts)
    moments = presence_moments(found.part_logits, model.temperature)
    colour, alpha = warp_templates(model.templates, found.part_poses, model.image_size).unbind(2)
    return picture_moments(colour, alpha, *moments)[0].flatten()


def vote_energy(model: GenerativeModel, state: Tensor, routing: Tensor, t: Tensor) -> Tensor:
    """The quadratic of all poses, with the routing and the presences as they are."""
    found = unpack(state[None], model.params.parts)
    layer = model.parts_given_objects(found.object_logits, found.object_poses)
    distance = (found.part_poses.unsqueeze(-2) - layer.votes).square().sum(-1)
    votes = (routing * t.unsqueeze(-1) / model.c**2 * distance).sum()
    off = (found.part_poses - layer.inactive_pose).square().sum(-1)
    absent = ((1 - t) * off).sum() / model.params.inactive_pose_sd**2
    return 0.5 * (votes + absent + found.object_poses.square().sum())


def dense(model: GenerativeModel, state: Tensor) -> tuple[Tensor, Tensor]:
    """The Gauss-Newton curvature of one image in full, logits' own terms left out, and that of its pixels alone."""
    jacobian = torch.autograd.functional.jacobian(lambda x: mean_picture(model, x), state)
    found = unpack(state[None], model.params.parts)
    t = presence_moments(found.part_logits, model.temperature)[0].detach()
    routing = hierarchy_bound(model, found, t)[1].detach()
    quadratic = torch.autograd.functional.hessian(lambda x: vote_energy(model, x, routing, t), state)
    of_pixels = jacobian.T @ jacobian / model.params.pixel_sd**2
    return of_pixels + quadratic, of_pixels


def test_value_and_gradient_are_those_of_the_bound(model: GenerativeModel, images: Tensor, states: Tensor) -> None:
    x = states.clone().requires_grad_()
    value = -analytic_bound(model, images, x)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    found = linearise(model, images, states)
    torch.testing.assert_close(found.value, value.detach(), rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(found.gradient, gradient, rtol=1e-9, atol=1e-8)


def test_a_step_is_that_of_the_dense_system(model: GenerativeModel, images: Tensor, states: Tensor) -> None:
    found = linearise(model, images, states)
    damping = torch.linspace(0.01, 2.0, len(states), dtype=torch.float64)
    ours = solve(found, damping, floor=0.7)
    logits = torch.arange(0, states.shape[1], STATE)
    for image, state in enumerate(states):
        whole, of_pixels = dense(model, state)
        # The logits' own curvature is an approximation by choice: taken over as it is.
        own = found.diagonal()[image][logits]
        assert (own >= of_pixels[logits, logits] - 1e-9)[: model.params.parts].all()
        whole[logits, logits] = own
        torch.testing.assert_close(found.diagonal()[image], whole.diagonal(), rtol=1e-8, atol=1e-8)
        damped = whole + torch.diag(damping[image] * whole.diagonal() + 0.7)
        reference = -torch.linalg.solve(damped, found.gradient[image])
        torch.testing.assert_close(ours[image], reference, rtol=1e-7, atol=1e-9)


def test_an_image_without_a_solution_stays(model: GenerativeModel, images: Tensor, states: Tensor) -> None:
    found = linearise(model, images, states)
    found.parts[1] = -found.parts[1]
    steps = solve(found, torch.full((len(states),), 0.1, dtype=torch.float64), floor=0.0)
    assert (steps[1] == 0).all()
    assert (steps[[0, 2, 3, 4]] != 0).any(1).all()
