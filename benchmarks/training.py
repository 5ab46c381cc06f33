"""The paper profile's parameters, and a training step as `learning.train` takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pipeline import kernels
from pipeline.learning.model import Model
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.train import clip
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
        at_epoch: of the training.
    """

    run: Run
    size: int
    device: torch.device
    batch: int
    channels: int = 1
    classes: int = CLASSES
    at_epoch: float = 0.0

    def __post_init__(self) -> None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model: Model = build_model(self.run, self.size).to(self.device).train()
        self.trained = [value for value in self.model.parameters() if value.requires_grad]
        self.optimiser = build_optimiser(self.run.training, self.trained)
        generator = torch.Generator(self.device).manual_seed(0)
        pixels = (self.channels, self.size, self.size)
        self.images = torch.rand(self.batch, *pixels, generator=generator, device=self.device)
        self.labels = torch.arange(self.batch, device=self.device) % self.classes
        self.noise = self.model.draw_noise((self.batch,), generator, self.device)
        self.epoch = torch.tensor(self.at_epoch, device=self.device)

    def __call__(self) -> None:
        loss, _ = self.model(self.images, self.noise, self.epoch, self.labels)
        self.update(torch.autograd.grad(loss, self.trained))

    def update(self, gradients: Sequence[Tensor]) -> None:
        """Clip and take a step of the optimiser."""
        clip(gradients, self.run.training.gradient_clip)
        for parameter, gradient in zip(self.trained, gradients, strict=True):
            parameter.grad = gradient
        self.optimiser.step()


def without_kernels(work: Callable[[], object]) -> Callable[[], None]:
    """The same in PyTorch's operators alone."""

    def take() -> None:
        with kernels.switched_off():
            work()

    return take
