"""Images as inputs of capsule regression: projected onto their leading directions (document 002, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data.datasets import PARTS, Dataset

CHUNK = 8192


@dataclass(frozen=True)
class Inputs:
    """Inputs and classes by part: `train`, `validation`, `test`.

    Attributes:
        X: `[n, p]`, float32.
        y: `[n]`.
        basis: `[pixels, p]`, multiplied with images in [0, 1].
        classes: number of classes.
        images: uint8 `[n, 1, S, S]`.
    """

    X: dict[str, Tensor]
    y: dict[str, Tensor]
    basis: Tensor
    classes: int
    images: dict[str, NDArray[np.uint8]] = field(default_factory=dict)


def build_inputs(dataset: Dataset, features: int, device: torch.device) -> Inputs:
    """Each part's images, projected onto the leading right singular vectors of the training images, without centring.

    Args:
        features: p; at most the number of pixels is used.
    """
    images = {part: dataset.part(part)[0] for part in PARTS}
    pixels = {part: each.reshape(len(each), -1) for part, each in images.items()}
    basis = leading_directions(pixels["train"], features, device)
    return Inputs(
        {part: project(each, basis) for part, each in pixels.items()},
        {part: torch.from_numpy(dataset.part(part)[1]).to(device) for part in PARTS},
        basis,
        len(dataset.classes),
        images,
    )


def leading_directions(images: NDArray[np.uint8], count: int, device: torch.device) -> Tensor:
    """The `count` leading right singular vectors of uint8 images `[n, pixels]`: `[pixels, count]`, float64."""
    moment = torch.zeros(images.shape[1], images.shape[1], dtype=torch.float64, device=device)
    for start in range(0, len(images), CHUNK):
        rows = torch.from_numpy(images[start : start + CHUNK]).to(device).double() / 255
        moment.addmm_(rows.T, rows)
    return torch.linalg.eigh(moment)[1].flip(1)[:, :count].contiguous()


def project(images: NDArray[np.uint8], basis: Tensor) -> Tensor:
    """uint8 images `[n, pixels]`, divided by 255, in a basis `[pixels, p]`: `[n, p]`, float32."""
    parts = [
        (torch.from_numpy(images[start : start + CHUNK]).to(basis.device).float() / 255) @ basis.float()
        for start in range(0, len(images), CHUNK)
    ]
    return torch.cat(parts) if parts else torch.empty(0, basis.shape[1])
