"""The training step of matrix capsules at 68,000 parameters, against the operations it needs, public code and PyTorch's
operators.
"""

from __future__ import annotations

from statistics import median

import torch

from benchmarks.machine import Budget, Works, in_turn, paired_ratio
from benchmarks.rows import Mark, Row, duration
from benchmarks.training import Step, paper_params, without_kernels
from pipeline.systems.matrix_capsules.model import compiled_routing
from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules, RoutedCapsules
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun

BATCH, QUICK_BATCH = 64, 2
PEER_MS = {2: 226.0, 3: 304.0}
"""Forward and backward of public PyTorch code, per image on one CPU thread, by routing iterations."""
LEAST = 10.0
"""Times as fast as that a step is to be, at least."""
_FLOAT = 4
_PRODUCT = 1024
"""Side of the matrices whose product shows what a number of threads can compute."""


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


def operations(votes: int, iterations: int, side: int) -> int:
    """Floating-point operations of routing in one image's step: what the compiled kernel does for every number of a
    vote, which costs `side` multiply-adds each time it is computed.

    Forward: the plain mean; by iteration, moments (2 and the vote); between two, log densities (2 and the vote).
    Backward: by iteration, the gradient by its weights (2 and the vote); between two, moments of the gradient by the
    log densities (2 and the vote); once, the gradient by the vote, from two numbers of every one of these, and from
    there by the pose and by the transformation.
    """
    forward = (side + 1) + iterations * (side + 2) + (iterations - 1) * (side + 2)
    backward = iterations * (side + 2) + (iterations - 1) * (side + 2)
    once = (side + 1) + 2 * (2 * iterations - 1) + 2 * side
    return 2 * votes * (forward + backward + once)


def traffic(votes: int, iterations: int) -> int:
    """Bytes that one image's step reads and writes of votes and their squares, where these are stored (the PyTorch
    form), at the least number of passes.

    Forward: they are written once, and read by every M-step and by each E-step between two. Backward: the same again,
    then read once for the gradient of every assignment, once for that of every E-step's coefficients, and their
    gradient is written and read.
    """
    forward = 1 + iterations + (iterations - 1)
    backward = forward + iterations + (iterations - 1) + 2
    return 2 * _FLOAT * votes * (forward + backward)


def measure(device: torch.device, copied: float, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """The step with two and with three iterations; on a CPU by one thread, as public code was measured, and by all. One
    thread is compared with the PyTorch form, too.

    Args:
        copied: bytes that the device copies a second, read and written.
        limit: seconds to spend, about.
    """
    batch, threads = QUICK_BATCH if quick else BATCH, torch.get_num_threads()
    steps = {n: Step(small_run(n), 32, device, batch, channels=2, classes=5) for n in PEER_MS}
    if device.type != "cpu":
        return _on_gpu(steps, copied, device, limit, budget)
    rows, single = [], dict.fromkeys(steps, 0.0)
    for count in sorted({1, threads}):
        torch.set_num_threads(count)
        try:
            found = in_turn(_works(steps, count == 1), device, limit / len({1, threads}), budget)
        finally:
            torch.set_num_threads(threads)
        computed = 2 * _PRODUCT**3 / min(found["matrix product"])
        for n, step in steps.items():
            assert isinstance(step.model, MatrixCapsules)
            needed = operations(vote_numbers(step.model), n, step.model.params.pose_side)
            samples = found[f"{n} iterations"]
            each = median(samples) / batch * 1e3
            least = (
                f"{needed / 1e6:.0f} million operations of routing at {computed / 1e9:.0f} GFLOP/s, a matrix product's"
            )
            if count == 1:
                single[n] = each
                what = f"public PyTorch code, a thread of another CPU; target: {LEAST:g} times as fast"
                reference = Mark(PEER_MS[n], what)
            else:
                reference = Mark(single[n], "the same by one thread")
            note = f"median of {len(samples)} rounds, batch {batch}, {1e3 / each:.0f} images/s, {_form()}"
            where = "one CPU thread" if count == 1 else f"{count} CPU threads"
            name = f"matrix capsules: training step, {n} iterations, {where}"
            rows.append(duration(name, each, "ms/image", Mark(needed / computed * 1e3, least), reference, note))
            if count == 1:
                slower = each * paired_ratio(found[f"{n} iterations, operators"], samples)
                operators = Mark(slower, "PyTorch's operators alone, same rounds")
                rows.append(duration(f"{name}, compiled kernel", each, "ms/image", None, operators, note))
    return rows


def _works(steps: dict[int, Step], operators: bool) -> Works:
    """The steps, with PyTorch's operators alone, too, if asked for, and a matrix product."""
    left, right = torch.rand(2, _PRODUCT, _PRODUCT)
    product = torch.empty_like(left)
    works: Works = {f"{n} iterations": step for n, step in steps.items()}
    if operators:
        works |= {f"{n} iterations, operators": without_kernels(step) for n, step in steps.items()}
    return {**works, "matrix product": lambda: torch.mm(left, right, out=product)}


def _form() -> str:
    """Which form of routing a CPU uses."""
    kernel = compiled_routing.kernel()
    return f"compiled kernel, {kernel.form}" if kernel else "PyTorch form: the kernel is not compiled"


def _on_gpu(steps: dict[int, Step], copied: float, device: torch.device, limit: float, budget: Budget) -> list[Row]:
    found, rows = in_turn({f"{n} iterations": step for n, step in steps.items()}, device, limit, budget), []
    for n, step in steps.items():
        assert isinstance(step.model, MatrixCapsules)
        moved = traffic(vote_numbers(step.model), n)
        samples = found[f"{n} iterations"]
        each = median(samples) / step.batch * 1e3
        least = Mark(moved / copied * 1e3, f"{moved / 1e6:.0f} MB of votes at the copy rate of {copied / 1e9:.1f} GB/s")
        note = f"median of {len(samples)} rounds, batch {step.batch}, {1e3 / each:.0f} images/s, "
        note += f"{moved / each / 1e6:.1f} GB/s of votes"
        rows.append(duration(f"matrix capsules: training step, {n} iterations", each, "ms/image", least, None, note))
    return rows
