"""A model of one number, whose training can be followed with pen and paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from small import STILL, training
from torch import Generator, Tensor, nn

from pipeline.learning.checkpoints import Checkpoint
from pipeline.learning.model import Model
from pipeline.learning.train import Task, Trained, train


class Line(Model):
    """loss = |w - mean of the images|: Adam moves w by its step size, towards the images' brightness, at every step.

    w starts at -0.06 - 0.1 * seed, so that no two epochs are equally good.

    Args:
        bad_from: the epoch (with fraction) from which `bad_term` of the loss is not a number; never where None.
        bad_for: only on batches of this many images, where given.
    """

    def __init__(self, bad_from: float | None = None, bad_for: int | None = None) -> None:
        super().__init__()
        self.noise_size = 1
        self.w = nn.Parameter(torch.tensor([-0.06 - 0.1 * torch.initial_seed()]))
        self.bad_from, self.bad_for = bad_from, bad_for

    def draw_noise(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        return torch.rand((*shape, 1), generator=generator, device=generator.device)

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        bad = torch.zeros(())
        if self.bad_from is not None and self.bad_for in (None, len(images)):
            bad = torch.where(epoch >= self.bad_from, torch.nan, 0.0)
        distance = (self.w[0] - images.mean()).abs()
        return distance + bad, {"good_term": distance.detach(), "bad_term": bad, "w": self.w[0].detach()}


def grey(count: int, brightness: int) -> np.ndarray:
    """Images `[count, 1, 4, 4]` of one brightness."""
    return np.full((count, 1, 4, 4), brightness, np.uint8)


def unlabelled(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Images with a class for all."""
    return images, np.zeros(len(images), np.int64)


def train_line(
    seeds: list[int], checkpoints: list[Checkpoint] | None = None, model: Any = Line, steps: int = 1, **changes: Any
) -> Trained:
    """Train lines on white images, `steps` an epoch, and validate on black ones: w rises, and is best at zero."""
    values = {"batch_size": 2, "learning_rate": 0.1, "final_learning_rate": 0.1, **changes}
    return train(
        Task(model, training(**values), STILL, unlabelled(grey(2 * steps, 255)), unlabelled(grey(3, 0))),
        seeds,
        torch.device("cpu"),
        checkpoints=checkpoints,
    )
