"""Incremental and online EM share EM's fixed points, and get there."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from planted import fixed_point, planted, step

from pipeline.systems.regression.experiments.online import Online, incremental, split
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems

DOUBLE, RIDGE = torch.float64, 0.05


def em(problems: Problems, W: torch.Tensor, iterations: int) -> torch.Tensor:
    for _ in range(iterations):
        W, _ = step(problems, W)
    return W


def start(decision: Any = "multiclass") -> tuple[Problems, torch.Tensor, Any, Any]:
    X, y = planted(120, 4, 3, noise=1.2, seed=4)
    # With a ridge the optimum is no place at infinity, and EM is there soon.
    problems = Problems(X, y, build_architecture(decision, 2, 3), ridge=RIDGE, dtype=DOUBLE)
    batches = split(problems.examples, 4, torch.Generator().manual_seed(0))
    return problems, problems.subspace_start(), batches, (X, y)


@pytest.mark.parametrize("decision", ["multiclass", "one-vs-all", "all-vs-all"])
def test_an_incremental_fixed_point_is_ems(decision: Any) -> None:
    """At EM's fixed point no visit of a batch moves the weights; from elsewhere the first update is EM's."""
    problems, W, batches, _ = start(decision)
    assert [batch.bounds for batch in batches] == [[0, 10, 20, 30]] * 4
    rows = torch.cat([batch.inputs for batch in batches])
    assert torch.equal(rows.sort(dim=0).values, problems.examples.inputs.sort(dim=0).values)
    fixed = fixed_point(problems, W)
    torch.testing.assert_close(em(problems, fixed, 1), fixed, rtol=0, atol=1e-6)
    for weights in islice(incremental(problems, batches, fixed, 0.0), 6):
        torch.testing.assert_close(weights, fixed, rtol=0, atol=1e-5)
    moved = next(incremental(problems, batches, W, 0.0))
    torch.testing.assert_close(moved, em(problems, W, 1))
    assert (moved - W).abs().max() > 1e-3


def test_momentum_adds_the_last_change_of_the_weights() -> None:
    """With a single batch, incremental EM with momentum is equation 27."""
    problems, W, _, _ = start()
    ours, previous = W, W
    for weights in islice(incremental(problems, [problems.examples], W, 0.7), 4):
        ours, previous = em(problems, ours, 1) + 0.7 * (ours - previous), ours
        torch.testing.assert_close(weights, ours)
    assert (ours - em(problems, W, 4)).abs().max() > 1e-2


@pytest.mark.parametrize("momentum", [0.3, 0.45])
def test_momentum_over_a_pass_makes_incremental_em_faster(momentum: float) -> None:
    """Let (1 - d)^k be the slow part of the distance from the fixed point after k updates. To first order, equation
    27 over a pass of B updates gives d ((B + 1) / 2 - B gamma) = a constant: 48 plain passes need so many fewer.
    """
    problems, W, batches, _ = start()
    fixed, b = fixed_point(problems, W), len(batches)
    passes = 48 * (b + 1 - 2 * b * momentum) / (b + 1)
    far, near = (
        float((next(islice(incremental(problems, batches, W, gamma), round(b * k), None)) - fixed).norm())
        for gamma, k in ((0.0, 48), (momentum, passes))
    )
    assert near == pytest.approx(far, rel=0.05)


def test_online_em_stays_at_a_fixed_point_in_the_mean() -> None:
    """Where the means are EM's own, the steps of all batches of the data together cancel."""
    problems, W, _, (X, y) = start()
    fixed = problems.own_coordinates(fixed_point(problems, W))
    inputs = problems.moments / 120
    gram = inputs.sum(0)
    gram = gram + RIDGE * gram.diagonal().mean() * torch.eye(4, dtype=DOUBLE)
    posteriors = fixed @ gram
    steps = []
    for rows in torch.arange(120).split(30):  # equal shares of every class
        online = Online(problems.architecture, fixed, ridge=RIDGE, rate=0.6)
        online.inputs, online.posteriors, online.seen = inputs, posteriors, 50
        online.learn(X[rows], y[rows])
        steps.append(online.posteriors - posteriors)
    assert min(float(step.abs().max()) for step in steps) > 1e-3
    torch.testing.assert_close(sum(steps), torch.zeros_like(fixed), rtol=0, atol=1e-6)


def test_online_em_comes_near_the_likelihood_of_em() -> None:
    problems, W, _, (X, y) = start()
    which = torch.arange(1)
    online = Online(problems.architecture, problems.own_coordinates(W), ridge=RIDGE, rate=0.7)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        for rows in torch.randperm(120, generator=generator).split(40):
            online.learn(X[rows], y[rows])
    first, ours, far = (
        float(problems.passed(each, which, None, problems.examples).log_likelihood[0])
        for each in (W, problems.whitened(online.W), fixed_point(problems, W))
    )
    assert far - ours < 0.05 * (far - first)
