"""Engines: on a small convex problem all find the same optimum; each image climbs as it would alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from small import ENGINES
from torch import Tensor

from pipeline.systems.generative.inference import curvature, engines, l_bfgs, methods
from pipeline.systems.generative.inference.analytic_bound import analytic_bound, pack
from pipeline.systems.generative.inference.curvature import Linearised
from pipeline.systems.generative.inference.engines import Climbed, climb
from pipeline.systems.generative.inference.methods import Task
from pipeline.systems.generative.inference.settings import AdamEngine, Engine, GaussNewtonEngine, LBFGSEngine
from pipeline.systems.generative.model.generative_model import GenerativeModel

PARTS, OBJECTS = 2, 1
SIZE = 7 * (PARTS + OBJECTS)


def engine(method: str, steps: int, tolerance: float = 1e-9, **more: Any) -> Engine:
    form = {"adam": AdamEngine, "l-bfgs": LBFGSEngine, "gauss-newton": GaussNewtonEngine}[method]
    fields = {"bound": "analytic", "learning_rate": 0.1} if method == "adam" else {}
    fields |= {"memory": 10} if method == "l-bfgs" else {}
    fields |= {"restarts": 0} if method != "adam" else {}
    return form.model_validate({"method": method, "steps": steps, "tolerance": tolerance, **fields, **more})


class Bowl:
    """A quadratic of each image, coupled only as Gauss-Newton's curvature allows, in place of the bound."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        half = torch.randn(count, SIZE, SIZE, generator=generator, dtype=torch.float64)
        parts, objects = 7 * PARTS, 7 * OBJECTS
        half[:, :parts, parts:] = half[:, parts:, :parts] = 0
        half[:, parts:, parts:] = torch.eye(objects, dtype=torch.float64)
        self.matrix = half @ half.mT + torch.eye(SIZE, dtype=torch.float64)
        self.best = torch.randn(count, SIZE, generator=generator, dtype=torch.float64)

    def task(self) -> Task:
        rows = torch.arange(len(self.best), dtype=torch.float64).view(-1, 1, 1, 1)
        return Task(None, rows, torch.Generator().manual_seed(1))  # type: ignore[arg-type]

    def value(self, task: Task, states: Tensor) -> tuple[Tensor, Tensor]:
        rows = task.images.flatten().long()  # the images are their own numbers
        away = states - self.best[rows]
        gradient = (self.matrix[rows] @ away.unsqueeze(-1)).squeeze(-1)
        return 0.5 * (away * gradient).sum(-1), gradient

    def linearise(self, model: object, images: Tensor, states: Tensor) -> Linearised:
        value, gradient = self.value(Task(None, images, torch.Generator()), states)  # type: ignore[arg-type]
        matrix, parts = self.matrix[images.flatten().long()], 7 * PARTS
        objects = matrix[:, parts:, parts:].diagonal(dim1=1, dim2=2).unflatten(1, (OBJECTS, 7))
        return Linearised(
            value,
            gradient,
            matrix[:, :parts, :parts],
            torch.zeros(len(states), 3 * PARTS, 3 * OBJECTS, dtype=torch.float64),
            torch.diag_embed(objects[..., 1:4]),
            objects[..., 0],
        )


def put_in_place(monkeypatch: pytest.MonkeyPatch, value: Callable[..., Any], linearise: Callable[..., Any]) -> None:
    """`value` and `linearise` in place of the bound and its curvature; there are no objects to settle."""
    monkeypatch.setattr(engines, "settle", lambda task, states: (states, torch.zeros_like(states[:, 0])))
    for module in (methods, l_bfgs):
        monkeypatch.setattr(module, "analytic_value", value)
    monkeypatch.setattr(curvature, "linearise", linearise)


@pytest.fixture
def bowl(monkeypatch: pytest.MonkeyPatch) -> Bowl:
    bowl = Bowl(4)
    put_in_place(monkeypatch, bowl.value, bowl.linearise)
    return bowl


@pytest.mark.parametrize(("method", "steps"), [("adam", 4000), ("l-bfgs", 300), ("gauss-newton", 200)])
def test_all_engines_find_the_optimum_of_a_convex_problem(bowl: Bowl, method: str, steps: int) -> None:
    found = climb(bowl.task(), torch.zeros(4, SIZE, dtype=torch.float64), engine(method, steps))
    assert found.values.max() < 1e-4
    torch.testing.assert_close(found.states, bowl.best, rtol=0, atol=0.02)


def test_curvature_saves_evaluations(bowl: Bowl) -> None:
    start = torch.zeros(4, SIZE, dtype=torch.float64)
    took = {
        method: climb(bowl.task(), start, engine(method, 4000, tolerance=1e-4)).evaluations.max().item()
        for method in ("adam", "l-bfgs", "gauss-newton")
    }
    assert took["gauss-newton"] < took["adam"] / 5
    assert took["l-bfgs"] < took["adam"] / 3


@pytest.mark.parametrize("method", ["adam", "l-bfgs", "gauss-newton"])
def test_images_that_have_converged_leave_the_batch(bowl: Bowl, method: str) -> None:
    """One starts at its optimum and leaves after the method's patience; the others work on, and come as far."""
    start = torch.zeros(4, SIZE, dtype=torch.float64)
    start[2] = bowl.best[2]
    asked = engine(method, 500, tolerance=1e-6)
    together = climb(bowl.task(), start, asked)
    assert together.evaluations[2] == together.evaluations.min() < together.evaluations.max()
    torch.testing.assert_close(together.states[2], start[2], rtol=1e-9, atol=1e-9)
    rest = torch.tensor([0, 1, 3])
    apart = climb(bowl.task().rows(rest), start[rest], asked)
    torch.testing.assert_close(apart.states, together.states[rest], rtol=1e-9, atol=1e-9)
    assert torch.equal(apart.evaluations, together.evaluations[rest])


def test_a_step_that_leads_up_is_not_taken(bowl: Bowl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient with the wrong sign: every trial is worse, and every engine gives the start back."""

    def wrong(task: Task, states: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = bowl.value(task, states)
        return value, -gradient

    def wrong_linearised(*arguments: Any) -> Linearised:
        found = bowl.linearise(*arguments)
        return found._replace(gradient=-found.gradient)

    put_in_place(monkeypatch, wrong, wrong_linearised)
    start = torch.zeros(4, SIZE, dtype=torch.float64)
    for method in ("adam", "l-bfgs", "gauss-newton"):
        found = climb(bowl.task(), start, engine(method, 20))
        assert torch.equal(found.states, start), method


def test_a_climb_is_watched_after_every_round(bowl: Bowl) -> None:
    seen: list[tuple[int, float]] = []

    def watch(climbed: Climbed) -> None:
        seen.append((climbed.rounds, climbed.values.sum().item()))

    climb(bowl.task(), torch.zeros(4, SIZE, dtype=torch.float64), engine("gauss-newton", 6), watch)
    assert [rounds for rounds, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert all(after < before for (_, before), (_, after) in pairwise(seen))


@pytest.mark.parametrize("name", list(ENGINES))
def test_no_engine_loses_what_it_began_with(model: GenerativeModel, images: Tensor, name: str) -> None:
    asked = {"adam": AdamEngine, "l-bfgs": LBFGSEngine, "gauss-newton": GaussNewtonEngine}[name]
    settings = asked.model_validate({**ENGINES[name], "steps": 15} | ({"bound": "analytic"} if name == "adam" else {}))
    with torch.no_grad():
        start = pack(model.encode(images))
        before = analytic_bound(model, images, start)
    found = climb(Task(model, images, torch.Generator().manual_seed(0)), start, settings)
    with torch.no_grad():
        after = analytic_bound(model, images, found.states)
    assert (after > before).all()
    torch.testing.assert_close(-found.values, after, rtol=1e-9, atol=1e-9)


def test_a_restart_keeps_the_better_of_two_climbs(model: GenerativeModel, images: Tensor) -> None:
    with torch.no_grad():
        start = pack(model.encode(images))
    once, twice = (
        climb(
            Task(model, images, torch.Generator().manual_seed(0)),
            start,
            engine("gauss-newton", 15, tolerance=0.1, restarts=restarts),
        )
        for restarts in (0, 1)
    )
    assert (twice.values <= once.values + 1e-9).all()
    assert (twice.evaluations > once.evaluations).all()
    assert twice.rounds > once.rounds


def test_empty_places_of_the_memory_change_no_direction() -> None:
    """The first direction is steepest descent in the scaled space; after one move with curvature it is BFGS's own."""
    method = l_bfgs.LBFGSMethod(memory=4)
    generator = torch.Generator().manual_seed(3)
    method.gradient = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    method.moves = method.changes = torch.zeros(2, 4, 5, dtype=torch.float64)
    torch.testing.assert_close(method._direction(), -method.gradient)
    move = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    change = move * torch.tensor([1.0, 2.0, 3.0, 0.5, 1.5], dtype=torch.float64)
    method.moves = l_bfgs._push(method.moves, move)
    method.changes = l_bfgs._push(method.changes, change)
    found = method._direction()
    for image in range(2):
        s, y, g = move[image], change[image], method.gradient[image]
        rho, eye = 1 / (s @ y), torch.eye(5, dtype=torch.float64)
        left = eye - rho * torch.outer(s, y)
        inverse = left @ (eye * (s @ y) / (y @ y)) @ left.T + rho * torch.outer(s, s)
        torch.testing.assert_close(found[image], -inverse @ g)
