"""Capsule regression at the paper's sizes: an iteration of EM against the matrix products in it, alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.machine import Budget, in_turn, paired_ratio
from benchmarks.rows import Mark, Row, duration
from pipeline.systems.regression.model.architectures import Decision, build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems

EXAMPLES, FEATURES, CLASSES = 50_000, 196, 10
SIZES = (1, 2, 4, 8, 16)
ARCHITECTURES: tuple[tuple[Decision, tuple[int, ...]], ...] = (("multiclass", SIZES), ("all-vs-all", (16,)))
MOST = 1.5
"""Times the products alone that an iteration is to take at most, in float32 on a CPU."""


def iteration(problems: Problems, W: Tensor) -> Callable[[], Tensor]:
    """One update of all problems (equation 26), thresholds among it, nothing validated."""
    which = torch.arange(len(W))
    thresholds = torch.full((len(W),), 0.4, device=W.device)
    return lambda: problems.update(problems.passed(W, which, thresholds, problems.examples).moments, which)


def products(problems: Problems, W: Tensor) -> Callable[[], list[Tensor]]:
    """The two products of each block of examples in that, and nothing else."""
    numbers = W[0, ..., 0].numel()
    blocks = [
        (problems.examples.inputs[rows], (W if which is None else W[which]).flatten(0, 2))
        for rows, which, _ in problems.examples.blocks(problems.architecture.capsules, numbers)
    ]
    return lambda: [(weights @ rows.T) @ rows for rows, weights in blocks]


def measure(device: torch.device, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """Every row about the model. What an iteration costs does not depend on the inputs: they are noise.

    Args:
        limit: seconds to spend, about.
    """
    n = 500 if quick else EXAMPLES
    generator = torch.Generator(device).manual_seed(0)
    X = torch.randn(n, FEATURES, generator=generator, device=device)
    y = torch.arange(n, device=device) % CLASSES
    cases = [(decision, size) for decision, sizes in ARCHITECTURES for size in sizes]
    rows = []
    for decision, size in cases:
        problems = Problems(X, y, build_architecture(decision, size, CLASSES))
        W = problems.subspace_start()
        works = {"iteration": iteration(problems, W), "products": products(problems, W)}
        found = in_turn(works, device, limit / len(cases), budget)
        # Paired within rounds: the machine's speed drifts by more than what is asked for.
        ratio = paired_ratio(found["iteration"], found["products"])
        best = sorted(found["products"])[len(found["products"]) // 2]
        rows.append(
            duration(
                f"regression: EM iteration, {decision}, d = {size}",
                ratio * best * 1e3,
                "ms",
                Mark(best * 1e3, f"its matrix products alone, same rounds; target: {MOST} times that at most"),
                note=f"{ratio:.2f} times the products (median of {len(found['products'])} rounds), "
                f"{n:,} x {FEATURES} float32, {CLASSES} classes",
            )
        )
    return rows
