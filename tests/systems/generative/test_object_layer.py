"""Objects are refined to an optimum of the bound given the parts, and what optimisation does to t0 follows from it."""

from __future__ import annotations

import pytest
import torch
from small import ENGINES, SMALL, engine
from torch import Tensor

from pipeline.systems.generative.inference.analytic_bound import STATE, analytic_bound, pack, unpack
from pipeline.systems.generative.inference.free_form import minimise_bound
from pipeline.systems.generative.inference.methods import Problem, refine_objects
from pipeline.systems.generative.model.generative_model import GenerativeModel

PARTS = int(SMALL["parts"])
FLAT = 0.02
"""Nats per unit: the gradient where the bound rises by 1e-4 nats no more."""
CLOSE = 0.01
"""Log odds of t0 that differ by less are the same; between images they differ by a tenth to a quarter."""


@pytest.fixture
def task(model: GenerativeModel, images: Tensor) -> Problem:
    return Problem(model.requires_grad_(False), images, torch.Generator().manual_seed(0))


@pytest.fixture
def start(task: Problem) -> Tensor:
    return pack(task.model.encode(task.images))


def bound(task: Problem, states: Tensor) -> Tensor:
    return analytic_bound(task.model, task.images, states)


def slope(task: Problem, states: Tensor) -> Tensor:
    """The largest derivative of the whole bound by a number of an object, of each image."""
    x = states.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(bound(task, x).sum(), x)
    return gradient[:, STATE * PARTS :].abs().amax(1)


def t0(states: Tensor) -> Tensor:
    return unpack(states, PARTS).object_logits


def test_refined_objects_are_an_optimum_for_their_parts(task: Problem, start: Tensor) -> None:
    settled, rise = refine_objects(task, start)
    assert (slope(task, start) > 5 * FLAT).all()
    assert (slope(task, settled) < FLAT).all()
    assert (rise > 0).all()
    torch.testing.assert_close(bound(task, settled) - bound(task, start), rise, rtol=1e-9, atol=1e-9)
    assert torch.equal(settled[:, : STATE * PARTS], start[:, : STATE * PARTS])
    # Another optimiser, on the whole bound, finds nothing better close by.
    objects = settled[:, STATE * PARTS :].clone().requires_grad_()
    optimiser = torch.optim.LBFGS([objects], max_iter=200, tolerance_change=1e-12, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = -bound(task, torch.cat([start[:, : STATE * PARTS], objects], dim=1)).sum()
        value.backward()
        return value

    optimiser.step(loss)  # type: ignore[arg-type]
    best = torch.cat([start[:, : STATE * PARTS], objects.detach()], dim=1)
    assert (bound(task, best) - bound(task, settled)).max() < 1e-3
    assert (t0(best) - t0(settled)).abs().max() < CLOSE


def test_the_objects_of_an_image_are_refined_as_they_are_alone(task: Problem, start: Tensor) -> None:
    together, rise = refine_objects(task, start)
    for image in range(len(start)):
        row = torch.tensor([image])
        alone, rise_alone = refine_objects(task.rows(row), start[row])
        torch.testing.assert_close(alone, together[row], rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(rise_alone, rise[row], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", list(ENGINES))
def test_after_every_engine_objects_are_refined(task: Problem, start: Tensor, name: str) -> None:
    found = minimise_bound(task, start, engine(name))
    assert (slope(task, found.once) < FLAT).all()
    assert (slope(task, found.states) < FLAT).all()
    unsettled = minimise_bound(task, start, engine(name), refine=False)
    assert (slope(task, unsettled.states) > FLAT).any()


@pytest.mark.parametrize(("name", "more"), [("gauss-newton", {"steps": 40}), ("l-bfgs", {"steps": 100, "memory": 10})])
def test_noise_on_log_odds_stays_in_t0_unless_objects_are_refined(
    task: Problem, start: Tensor, name: str, more: dict[str, int]
) -> None:
    """Restarts with several seeds from one optimum: how much t0 then differs between the seeds."""
    settings = engine(name, restarts=1, **more)
    optimum = minimise_bound(task, start, settings.model_copy(update={"restarts": 0})).states

    def scatter(logit_sd: float, refine: bool) -> float:
        found = [
            minimise_bound(
                Problem(task.model, task.images, torch.Generator().manual_seed(seed)),
                optimum,
                settings,
                logit_sd=logit_sd,
                refine=refine,
            )
            for seed in range(5)
        ]
        return torch.stack([t0(each.states) for each in found]).std(0).mean().item()

    kicked, between_images = scatter(1.0, refine=False), t0(optimum).std(0).mean().item()
    assert kicked > 0.5 * between_images
    assert scatter(0.0, refine=False) < kicked / 2, "poses only"
    for logit_sd in (0.0, 1.0):
        assert scatter(logit_sd, refine=True) < min(kicked, between_images) / 2
