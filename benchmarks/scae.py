"""The stacked capsule autoencoder at its published sizes with 24 + 24 capsules: its training step."""

from __future__ import annotations

from statistics import median

import torch

from benchmarks.generative import PEER_MS, operations
from benchmarks.machine import Budget, in_turn
from benchmarks.rows import Mark, Row, duration, rate
from benchmarks.training import Step, paper_params
from pipeline.systems.scae.settings import SCAERun

IMAGE, BATCH = 40, 128


def paper_run() -> SCAERun:
    """The first run of the paper profile with stacked capsule autoencoders."""
    return next(run for run in paper_params().runs.values() if isinstance(run, SCAERun))


def measure(device: torch.device, multiplied: float, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """Every row about the model.

    Args:
        multiplied: the machine's ceiling, operations per second.
        limit: seconds to spend, about.
    """
    batch = 4 if quick else BATCH
    run = paper_run()
    step = Step(run, IMAGE, device, batch)
    model = step.model
    arithmetic = operations(lambda: model(step.images, step.noise, step.epoch)[0].backward())
    found = in_turn({"step": step}, device, limit * (1.0 if device.type == "cuda" else 0.5), budget, least=2)["step"]
    best = Mark(batch * multiplied / arithmetic, f"{arithmetic / 1e9:.3g} GFLOP at the machine's matrix product rate")
    how = f"median of {len(found)} rounds, {run.model.objects}+{run.model.parts} capsules, batch {batch}"
    rows = [rate("scae: training step", batch / median(found), "images/s", best, note=how)]
    if device.type == "cuda":
        return rows
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone = in_turn({"one thread": step}, device, limit * 0.5, budget, least=2)["one thread"]
    finally:
        torch.set_num_threads(threads)
    peer = Mark(PEER_MS, "public PyTorch code of the same model at the same sizes, a thread of another CPU")
    return [*rows, duration("scae: training step, one CPU thread", median(alone) / batch * 1e3, "ms/image", None, peer)]
