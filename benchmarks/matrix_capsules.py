"""The training step of matrix capsules at 68,000 parameters, against the traffic of their votes and public code."""

from __future__ import annotations

from statistics import median

import torch

from benchmarks.machine import Budget, in_turn
from benchmarks.rows import Mark, Row, duration
from benchmarks.training import Step, paper_params
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules, RoutedCapsules
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun

BATCH, QUICK_BATCH = 64, 2
PEER_MS = {2: 226.0, 3: 304.0}
"""Forward and backward of public PyTorch code, per image on one CPU thread, by routing iterations."""
LEAST = 10.0
"""Times as fast as that a step is to be, at least."""
_FLOAT = 4


def small_run(iterations: int) -> MatrixCapsulesRun:
    """The run of the paper profile with 68,000 parameters, with so many iterations of routing."""
    runs = paper_params().runs.values()
    run = next(run for run in runs if isinstance(run, MatrixCapsulesRun) and run.model.types == [16, 16])
    return run.model_copy(update={"model": run.model.model_copy(update={"iterations": iterations})})


def vote_numbers(model: MatrixCapsules) -> int:
    """Numbers of all votes for one image, over all layers."""
    return sum(
        len(layer.fields.children) * layer.full_transformations().numel() // model.params.pose_side**2
        for layer in model.routed
        if isinstance(layer, RoutedCapsules)
    )


def traffic(votes: int, iterations: int) -> int:
    """Bytes that one image's step reads and writes of votes and their squares, at the least number of passes.

    Forward: they are written once, and read by every M-step and by each E-step between two. Backward: the same again,
    then read once for the gradient of every assignment, once for that of every E-step's coefficients, and their
    gradient is written and read.
    """
    forward = 1 + iterations + (iterations - 1)
    backward = forward + iterations + (iterations - 1) + 2
    return 2 * _FLOAT * votes * (forward + backward)


def measure(device: torch.device, copied: float, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """The step with two and with three iterations; on a CPU by one thread, as public code was measured.

    Args:
        copied: bytes that the device copies a second, read and written.
        limit: seconds to spend, about.
    """
    batch, threads = QUICK_BATCH if quick else BATCH, torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        steps = {n: Step(small_run(n), 32, device, batch, channels=2, classes=5) for n in PEER_MS}
        found = in_turn({f"{n} iterations": step for n, step in steps.items()}, device, limit, budget)
    finally:
        torch.set_num_threads(threads)
    rows = []
    for n, step in steps.items():
        assert isinstance(step.model, MatrixCapsules)
        moved = traffic(vote_numbers(step.model), n)
        samples = found[f"{n} iterations"]
        each = median(samples) / batch * 1e3
        least = Mark(moved / copied * 1e3, f"{moved / 1e6:.0f} MB of votes at the copy rate of {copied / 1e9:.1f} GB/s")
        peer = Mark(PEER_MS[n], f"public PyTorch code, a thread of another CPU; target: {LEAST:g} times as fast")
        where = ", one CPU thread" if device.type == "cpu" else ""
        note = f"median of {len(samples)} rounds, batch {batch}, {1e3 / each:.0f} images/s, "
        note += f"{moved / each / 1e6:.1f} GB/s of votes{step.how}"
        name = f"matrix capsules: training step, {n} iterations{where}"
        rows.append(duration(name, each, "ms/image", least, peer if device.type == "cpu" else None, note))
    return rows
