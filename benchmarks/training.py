"""The paper profile's parameters, and a training step of one or several seeds, as `learning.gradient` takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pipeline import kernels
from pipeline.learning.model import Model
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.recording import Recorded, recorded
from pipeline.learning.replicas import Replicas, clip, gradient_norms
from pipeline.params import Params, load_params
from pipeline.profiles import Profiles
from pipeline.systems import Run, build_model

CLASSES = 10


def paper_params() -> Params:
    """The parameters of the paper profile.

    Raises:
        ProfileError: there is no such profile.
    """
    return load_params(Profiles(Path(__file__).parents[1]).params_path("paper"))


@dataclass
class Step:
    """The step on images that do not change: what it costs does not depend on the pixels.

    Args:
        size: pixels a side of the images.
        batch: images.
        channels: of an image.
        classes: that images are of.
        seeds: models that take the step together.
        at_epoch: of the training.
    """

    run: Run
    size: int
    device: torch.device
    batch: int
    channels: int = 1
    classes: int = CLASSES
    seeds: int = 1
    at_epoch: float = 0.0

    def __post_init__(self) -> None:
        self.replicas = Replicas(lambda: build_model(self.run, self.size), range(self.seeds), self.device)
        self.gradients = recorded(self.replicas.gradients, self.device)
        self.optimiser = build_optimiser(self.run.training, list(self.replicas.trained.values()))
        generator = torch.Generator(self.device).manual_seed(0)
        shape = (self.seeds, self.batch)
        pixels = (self.channels, self.size, self.size)
        self.images = torch.rand(*shape, *pixels, generator=generator, device=self.device)
        self.labels = (torch.arange(self.batch, device=self.device) % self.classes).expand(shape)
        self.noise = self.replicas.skeleton.draw_noise(shape, generator, self.device)
        self.epoch = torch.tensor(self.at_epoch, device=self.device)

    def __call__(self) -> None:
        gradients, _ = self.gradients(self.images, self.noise, self.epoch, self.labels)
        self.update(gradients)

    def update(self, gradients: dict[str, Tensor]) -> None:
        """Clip and take a step of the optimiser."""
        clip(gradients, gradient_norms(gradients), self.run.training.gradient_clip)
        for name, parameter in self.replicas.trained.items():
            parameter.grad = gradients[name]
        self.optimiser.step()

    @property
    def how(self) -> str:
        """How a step that was taken is launched, for a benchmark's note; nothing to say on a CPU."""
        if not isinstance(self.gradients, Recorded):
            return ""
        return ", replayed" if self.gradients.recording else ", NOT recorded: launched kernel by kernel"

    @property
    def model(self) -> Model:
        """The first seed's network as a module of its own."""
        return self.replicas.model(0)


def without_kernels(work: Callable[[], object]) -> Callable[[], None]:
    """The same in PyTorch's operators alone."""

    def take() -> None:
        with kernels.switched_off():
            work()

    return take
