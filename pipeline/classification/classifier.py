"""The base class of networks that only classify."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Generator, Tensor

from pipeline.learning.model import Model


class Classifier(Model):
    """A network from images `[B, C, S, S]` in [0, 1] to one number for each class, the larger the likelier."""

    noise_size = 0

    scores_are_activations: ClassVar[bool] = False
    """Whether scores are activations between 0 and 1, not logits."""

    @abstractmethod
    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """`[B, n]`. `noise [B, noise_size]` is for dropout, which there is in training mode alone."""

    @abstractmethod
    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        """What training makes small, of each image, `[B]`."""

    def logits(self, scores: Tensor) -> Tensor:
        """Scores on a scale whose differences do not end where the network is sure."""
        return scores

    def penalty(self) -> Tensor | float:
        """What is added to the loss whatever the images: weight decay."""
        return 0.0

    def draw_noise(self, shape: tuple[int, ...], generator: Generator, device: torch.device | str) -> Tensor:
        """Uniform in [0, 1), `[*shape, noise_size]`."""
        return torch.rand((*shape, self.noise_size), generator=generator, device=device)

    def generative_parameters(self) -> int:
        """There is no generative side."""
        return 0

    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss per image, and `accuracy`.

        Raises:
            ValueError: labels are missing.
        """
        if labels is None:
            raise ValueError("a classifier learns from labels")
        scores = self.scores(images, noise)
        loss = self.losses(scores, labels, epoch).mean() + self.penalty()
        return loss, {"accuracy": (scores.argmax(-1) == labels).float().mean()}
