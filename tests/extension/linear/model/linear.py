"""Logistic regression on pixels: images `[B, 1, S, S]`, n classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pipeline.classification.classifier import Classifier
from pipeline.systems.linear.settings import LinearModelParams


class Linear(Classifier):
    """The model."""

    def __init__(self, params: LinearModelParams, image_size: int) -> None:
        super().__init__()
        self.last = nn.Linear(image_size**2, params.classes)

    def scores(self, images: Tensor, noise: Tensor | None = None) -> Tensor:
        """Logits `[B, n]`."""
        logits: Tensor = self.last(images.flatten(1))
        return logits

    def losses(self, scores: Tensor, labels: Tensor, epoch: Tensor) -> Tensor:
        """Cross-entropy."""
        return torch.nn.functional.cross_entropy(scores, labels, reduction="none")
