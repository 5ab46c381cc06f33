"""Engines: every image gains by them, and each fares as it would alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from small import engine
from torch import Tensor

from pipeline.systems.generative.inference.analytic_bound import analytic_bound, pack
from pipeline.systems.generative.inference.free_form import minimise_bound
from pipeline.systems.generative.inference.methods import Problem
from pipeline.systems.generative.model.generative_model import GenerativeModel


def test_a_restart_keeps_the_better_of_two_results(model: GenerativeModel, images: Tensor) -> None:
    with torch.no_grad():
        start = pack(model.encode(images))
    once, twice = (
        minimise_bound(
            Problem(model, images, torch.Generator().manual_seed(0)),
            start,
            engine("gauss-newton", steps=15, restarts=restarts),
        )
        for restarts in (0, 1)
    )
    assert (twice.values <= once.values + 1e-9).all()
    assert (twice.evaluations > once.evaluations).all()
    assert twice.rounds > once.rounds


@pytest.mark.parametrize("method", ["adam", "l-bfgs", "gauss-newton"])
def test_an_image_fares_as_it_does_alone(model: GenerativeModel, images: Tensor, method: str) -> None:
    """When it leaves the batch, too, does not depend on its neighbours; the progress is seen after every round, and the
    values are those of the bound.
    """
    own = {"bound": "analytic", "learning_rate": 0.1} if method == "adam" else {"restarts": 0}
    asked = engine(method, steps=60, tolerance=1.0, **own)
    start = pack(model.encode(images)).detach()
    task = Problem(model.requires_grad_(False), images, torch.Generator().manual_seed(0))
    seen: list[tuple[int, float]] = []
    together = minimise_bound(task, start, asked, lambda each: seen.append((each.rounds, each.values.sum().item())))
    assert [rounds for rounds, _ in seen] == list(range(1, together.rounds + 1))
    assert all(after <= before for (_, before), (_, after) in pairwise(seen))
    with torch.no_grad():
        before, after = (analytic_bound(model, images, states) for states in (start, together.states))
    assert (after > before).all()
    torch.testing.assert_close(-together.values, after, rtol=1e-9, atol=1e-9)
    for index in range(len(images)):
        row = torch.tensor([index])
        alone = minimise_bound(task.rows(row), start[row], asked)
        torch.testing.assert_close(alone.values, together.values[row], rtol=1e-6, atol=1e-6)
        assert torch.equal(alone.evaluations, together.evaluations[row])
