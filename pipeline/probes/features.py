"""The features of a trained model that probes are fit on, as plain arrays.

Each model defines them in its method `features`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from pipeline.data import warps
from pipeline.learning.model import Model

BATCH = 500

Features = dict[str, NDArray[np.float32]]
"""Feature arrays `[N, d]` by name."""


def batches(images: NDArray[np.uint8], device: torch.device, size: int = BATCH) -> Iterator[Tensor]:
    """uint8 images `[N, C, S, S]` in batches of `size` on the device, in [0, 1]."""
    for start in range(0, len(images), size):
        yield torch.from_numpy(images[start : start + size]).to(device).float() / 255


@torch.no_grad()
def features(
    model: Model,
    images: NDArray[np.uint8],
    device: torch.device,
    warp: Callable[[int], Tensor] | None = None,
    samples: Generator | None = None,
) -> Features:
    """Features of uint8 images `[N, 1, S, S]`, in batches on the device.

    Args:
        warp: returns the warps `[B, 2, 3]` of the next B images; None: no warp.
        samples: for the features that are sampled, on the CPU; None: without those.

    Raises:
        TypeError: the model has no features.
    """
    collected: dict[str, list[Tensor]] = {}
    for start in range(0, len(images), BATCH):
        batch = torch.from_numpy(images[start : start + BATCH]).to(device)
        pixels = batch.float() / 255 if warp is None else warps.warp(batch, warp(len(batch)))
        result = model.features(pixels)
        if not result:
            raise TypeError(f"no features are defined for {type(model).__name__}")
        if samples is not None:
            result = result | model.sampled_features(result, samples)
        for name, value in result.items():
            collected.setdefault(name, []).append(value)
    return {name: torch.cat(values).cpu().numpy() for name, values in collected.items()}
