"""The interface of models for training and probing, and the inputs of their evaluation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Generator, Tensor, nn

from pipeline.data.datasets import Dataset, Labelled
from pipeline.learning.settings import RunSettings

if TYPE_CHECKING:
    from pipeline.shared_params import SharedParams


class Model(nn.Module):
    """The interface that training needs. Images are `[B, C, S, S]`, in [0, 1] unless `augment` changes brightness."""

    noise_size: int = 0
    """Number of random numbers per image that the loss needs."""

    batch_statistics: ClassVar[frozenset[str]] = frozenset()
    """Metrics that are not means over images. They can be compared only between batches of equal size."""

    keeps_last: ClassVar[bool] = False
    """Whether training keeps the last epoch's parameters instead of those with the lowest validation loss."""

    statistics_images: int = 0
    """Number of training images that `end_epoch` needs."""

    def draw_noise(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Noise `[*shape, noise_size]` on `generator`'s device. `shape` may be (steps, batch). Empty by default."""
        return torch.empty((*shape, 0), device=generator.device)

    @abstractmethod
    def forward(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and metrics by name. All are scalar tensors: means over images, or `batch_statistics`.

        Random numbers are passed as `noise [B, noise_size]`, so that they depend only on the seed and the epoch. The
        scalar tensor `epoch` is the number of passes over the data so far, such as 2.5. Models may use `labels [B]`.
        """

    def beginning_images(self, epoch: int) -> int:
        """Maximum number of training images passed to `begin_epoch` before epoch number `epoch` (counted from 0)."""
        return 0

    def begin_epoch(self, images: Tensor) -> None:
        """Change the model before an epoch, using images `[B, C, S, S]`. Not called if `beginning_images` is 0."""

    def end_epoch(self, images: Tensor, batch: int) -> None:
        """Set parameters that have no gradient, such as the means and variances of batch norm, from training images
        `[N, C, S, S]` in batches of `batch`. Called after every epoch, unless `statistics_images` is 0.
        """

    def features(self, images: Tensor) -> dict[str, Tensor]:
        """Features `[B, d]` of images `[B, C, S, S]` for probes, by name. Empty if the model is not probed."""
        return {}

    def sampled_features(self, found: dict[str, Tensor], generator: Generator) -> dict[str, Tensor]:
        """Further features for probes: samples `[B, d]` from the posterior, by name. Empty if samples are not probed.
        `found` is the result of `features`. `generator` is on the CPU.
        """
        return {}

    def generative_parameters(self) -> int:
        """Number of parameters of the generative part, without the encoder. 0 if the model has no generative part."""
        return 0


@dataclass(frozen=True)
class EvaluationInputs:
    """The inputs for the evaluation of a trained run.

    Attributes:
        official: affNIST's test images and classes. None if `official_affnist` is false, or if `dataset` is not 40x40.
    """

    models: Sequence[Model]
    dataset: Dataset
    run: RunSettings
    params: SharedParams
    device: torch.device
    title: str
    official: Labelled | None = None


def count_parameters(model: nn.Module) -> int:
    """Number of parameters that are trained by gradient descent."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
