"""The paper profile's parameters, and a training step of one seed, as `learning.gradient` takes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

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
    """

    run: Run
    size: int
    device: torch.device
    batch: int
    channels: int = 1
    classes: int = CLASSES

    def __post_init__(self) -> None:
        self.replicas = Replicas(lambda: build_model(self.run, self.size), [0], self.device)
        self.gradients = recorded(self.replicas.gradients, self.device)
        self.optimiser = build_optimiser(self.run.training, list(self.replicas.trained.values()))
        generator = torch.Generator(self.device).manual_seed(0)
        self.images = torch.rand(
            1, self.batch, self.channels, self.size, self.size, generator=generator, device=self.device
        )
        self.labels = torch.arange(self.batch, device=self.device).unsqueeze(0) % self.classes
        self.noise = self.replicas.skeleton.draw_noise((1, self.batch), generator, self.device)
        self.epoch = torch.tensor(0.0, device=self.device)

    def __call__(self) -> None:
        gradients, _ = self.gradients(self.images, self.noise, self.epoch, self.labels)
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
        """The network as a module of its own."""
        return self.replicas.model(0)
