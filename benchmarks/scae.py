"""The stacked capsule autoencoder at its published sizes with 24 + 24 capsules: its training step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from benchmarks.generative import PEER_MS, operations
from benchmarks.machine import Budget, in_turn
from benchmarks.rows import Mark, Row, duration, rate
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.replicas import Replicas, clip, gradient_norms
from pipeline.models.scae import SCAE
from pipeline.params import SCAERun, load_params

PARAMS = Path(__file__).parents[1] / "profiles" / "paper" / "params.yaml"
IMAGE, BATCH = 40, 128


def paper_run() -> SCAERun:
    """The first run of the paper profile with stacked capsule autoencoders."""
    return next(run for run in load_params(PARAMS).runs.values() if isinstance(run, SCAERun))


@dataclass
class Step:
    """A training step of one seed, as `learning.gradient` takes it, on images that do not change.

    What a step costs does not depend on the pixels.
    """

    run: SCAERun
    device: torch.device
    batch: int = BATCH

    def __post_init__(self) -> None:
        self.replicas = Replicas(lambda: SCAE(self.run.model, IMAGE), [0], self.device)
        self.optimiser = build_optimiser(self.run.training, list(self.replicas.parameters.values()))
        generator = torch.Generator(self.device).manual_seed(0)
        self.images = torch.rand(1, self.batch, 1, IMAGE, IMAGE, generator=generator, device=self.device)
        self.noise = self.replicas.skeleton.draw_noise((1, self.batch), generator, self.device)
        self.epoch = torch.tensor(0.0, device=self.device)
        self.labels = torch.zeros(1, self.batch, dtype=torch.long, device=self.device)

    def __call__(self) -> None:
        gradients, _ = self.replicas.gradients(self.images, self.noise, self.epoch, self.labels)
        clip(gradients, gradient_norms(gradients), self.run.training.gradient_clip)
        for name, parameter in self.replicas.parameters.items():
            parameter.grad = gradients[name]
        self.optimiser.step()


def measure(device: torch.device, multiplied: float, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """Every row about the model.

    Args:
        multiplied: the machine's ceiling, operations per second.
        limit: seconds to spend, about.
    """
    batch = 4 if quick else BATCH
    run = paper_run()
    step = Step(run, device, batch)
    model = step.replicas.model(0)
    arithmetic = operations(lambda: model(step.images[0], step.noise[0], step.epoch)[0].backward())
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
