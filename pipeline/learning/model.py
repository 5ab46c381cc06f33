"""The interface of models for training and probing."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from torch import Generator, Tensor, device, nn


class Model(nn.Module):
    """What training asks of a model. Images are `[B, C, S, S]` in [0, 1]."""

    noise_size: int
    """Random numbers that one image's loss takes."""

    stackable: ClassVar[bool] = True
    """Whether several seeds can step as one, under `vmap`. A model that fills the device by itself gains nothing."""

    batch_statistics: ClassVar[frozenset[str]] = frozenset()
    """Metrics of the whole batch, not means over images; they can be compared only between batches of equal size."""

    statistics_images: int = 0
    """Training images that `end_epoch` asks for."""

    @abstractmethod
    def draw_noise(self, shape: tuple[int, ...], generator: Generator, device: device | str) -> Tensor:
        """Noise for `shape` images, `[*shape, noise_size]`."""

    @abstractmethod
    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and metrics by name: scalar tensors, means over the batch.

        Random numbers come in as `noise [B, noise_size]`, so that a seed trains alike alone and stacked beside others.

        Args:
            epoch: scalar tensor, passes over the data so far, with fraction.
            labels: classes `[B]`, for models that learn from them.
        """

    def begin_epoch(self, epoch: int, images: Tensor) -> None:
        """Change the model between epochs, given some training images `[B, 1, S, S]`."""

    def end_epoch(self, images: Tensor, batch: int) -> None:
        """Measure what evaluation needs, after an epoch, on training images `[N, C, S, S]` in batches of so many: set
        parameters that have no gradient. Not called where `statistics_images` is 0.
        """

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """What probes read of images `[B, C, S, S]`: arrays `[B, d]` by name; none where there is nothing to probe."""
        return {}

    @abstractmethod
    def generative_parameters(self) -> int:
        """How many numbers the generative side learns, the encoder's not counted."""
