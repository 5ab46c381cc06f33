"""CapsNet at its published size: its training step and a step of iterative inference, against convolutions alone."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from benchmarks.machine import Budget, in_turn, paired_ratio
from benchmarks.rows import Mark, Row, duration
from benchmarks.training import Step, paper_params
from pipeline.systems.capsnet.inference.predictive_coding import Objective, forward_pass, step
from pipeline.systems.capsnet.model.capsnet import CapsNet
from pipeline.systems.capsnet.settings import CapsNetRun

IMAGE, BATCH, INFERRED = 28, 128, 1000
ITERATIONS = (0, 3)
MOST = 1.3
"""Times the two convolutions that a training step is to take at most, on a CPU."""
PEER_MS = 44.0
"""Forward and backward of public PyTorch code of CapsNet, per image on one CPU thread; others took up to 52."""


def paper_run(iterations: int) -> CapsNetRun:
    """The first run of the paper profile with CapsNet, with so many iterations of routing."""
    run = next(run for run in paper_params().runs.values() if isinstance(run, CapsNetRun))
    return run.model_copy(update={"model": run.model.model_copy(update={"iterations": iterations})})


def network(step: Step) -> CapsNet:
    """The step's network."""
    model = step.model
    assert isinstance(model, CapsNet)
    return model


def convolutions(step: Step) -> Callable[[], object]:
    """Forward and backward of the two convolutions alone, with the ReLU between them."""
    net, images = network(step), step.images
    outputs = net.second(net.feature_maps(images))
    gradient = torch.randn_like(outputs)
    parameters = [*net.first.parameters(), *net.second.parameters()]

    return lambda: torch.autograd.grad(net.second(net.feature_maps(images)), parameters, gradient)


def inference_step(net: CapsNet, images: Tensor) -> Callable[[], object]:
    """One step of predictive coding for all images, label clamped, L1."""
    layers = net.layers()
    activities = forward_pass(layers[:-1], images)
    target = torch.eye(net.params.classes, device=images.device)[torch.arange(len(images)) % net.params.classes]
    objective = Objective("predicted", target, "L1", 1.0)
    return lambda: step(layers, activities[0], activities, objective, 0.01)


def second_convolution(net: CapsNet, images: Tensor) -> Callable[[], object]:
    """What of that nothing can spare: the second convolution, and its derivative by what it sees."""
    features = net.feature_maps(images).detach().requires_grad_()
    gradient = torch.randn_like(net.second(features))
    return lambda: torch.autograd.grad(net.second(features), features, gradient)


def measure(device: torch.device, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """Every row about the network.

    Args:
        limit: seconds to spend, about.
    """
    batch = 4 if quick else BATCH
    threads = torch.get_num_threads()
    rows = _training(device, batch, limit * 0.5, budget, "", None)
    rows += _inference(device, batch if device.type == "cpu" else INFERRED, limit * 0.2, budget)
    if device.type == "cuda":
        return rows
    torch.set_num_threads(1)
    try:
        peer = Mark(PEER_MS, "public PyTorch code at the same sizes, a thread of another CPU (44 to 52)")
        return rows + _training(device, batch, limit * 0.3, budget, ", one CPU thread", peer)
    finally:
        torch.set_num_threads(threads)


def _training(
    device: torch.device, batch: int, limit: float, budget: Budget, where: str, peer: Mark | None
) -> list[Row]:
    steps = {iterations: Step(paper_run(iterations), IMAGE, device, batch) for iterations in ITERATIONS}
    works: dict[str, Callable[[], object]] = {f"{iterations} iterations": step for iterations, step in steps.items()}
    works["convolutions"] = convolutions(steps[0])
    found = in_turn(works, device, limit, budget)
    alone = median(found["convolutions"]) / batch * 1e3
    least = Mark(alone, f"the two convolutions alone, same rounds; target: {MOST} times that at most")
    rows = []
    for iterations in ITERATIONS:
        samples = found[f"{iterations} iterations"]
        ratio = paired_ratio(samples, found["convolutions"])
        note = f"{ratio:.2f} times the convolutions (median of {len(samples)} rounds), batch {batch}, "
        note += f"{1e3 / (ratio * alone):.0f} images/s"
        name = f"capsnet: training step, {iterations} iterations{where}"
        rows.append(duration(name, ratio * alone, "ms/image", least, peer, note))
    return rows


def _inference(device: torch.device, count: int, limit: float, budget: Budget) -> list[Row]:
    net = network(Step(paper_run(0), IMAGE, device, 1)).requires_grad_(False)
    images = torch.rand(count, 1, IMAGE, IMAGE, generator=torch.Generator(device).manual_seed(0), device=device)
    works = {"step": inference_step(net, images), "convolution": second_convolution(net, images)}
    found = in_turn(works, device, limit, budget)
    ratio, alone = paired_ratio(found["step"], found["convolution"]), median(found["convolution"]) / count * 1e3
    least = Mark(alone, "the second convolution and its derivative by its input, same rounds")
    note = f"{ratio:.2f} times that (median of {len(found['step'])} rounds), {count} images at once"
    return [duration("capsnet: a step of iterative inference", ratio * alone, "ms/image", least, note=note)]
