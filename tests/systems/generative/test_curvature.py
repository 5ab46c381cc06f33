"""Gauss-Newton steps: gradient and curvature against autograd, the eliminated system against a dense one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pipeline.layers.rendering import warp_templates
from pipeline.systems.generative.inference.analytic_bound import (
    STATE,
    analytic_bound,
    hierarchy_bound,
    pack,
    picture_moments,
    presence_moments,
    unpack,
)
from pipeline.systems.generative.inference.curvature import linearise, solve
from pipeline.systems.generative.model.generative_model import GenerativeModel


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


def dense(model: GenerativeModel, state: Tensor) -> Tensor:
    """The Gauss-Newton curvature of one image in full, logits' own terms left out."""
    jacobian = torch.autograd.functional.jacobian(lambda x: mean_picture(model, x), state)
    found = unpack(state[None], model.params.parts)
    t = presence_moments(found.part_logits, model.temperature)[0].detach()
    routing = hierarchy_bound(model, found, t)[1].detach()
    quadratic = torch.autograd.functional.hessian(lambda x: vote_energy(model, x, routing, t), state)
    return jacobian.T @ jacobian / model.params.pixel_sd**2 + quadratic


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
        whole = dense(model, state)
        # The logits' own curvature is an approximation by choice: taken over as it is.
        own = found.diagonal()[image][logits]
        parts = logits[: model.params.parts]
        pixels = torch.autograd.functional.jacobian(lambda x: mean_picture(model, x), state)[:, parts]
        assert (own[: len(parts)] >= pixels.square().sum(0) / model.params.pixel_sd**2 - 1e-9).all()
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
