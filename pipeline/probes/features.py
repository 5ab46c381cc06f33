"""Computes outputs of a trained model: the features that probes are fit on, and the metrics on test images."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from pipeline.data import warps
from pipeline.data.datasets import Dataset
from pipeline.learning.model import Model

BATCH = 500

Features = dict[str, NDArray[np.float32]]
"""Feature arrays `[N, d]` by name."""


def batches(images: NDArray[np.uint8], device: torch.device, size: int = BATCH) -> Iterator[Tensor]:
    """Yield uint8 images `[N, C, S, S]` as float batches `[B, C, S, S]` in [0, 1], on the device, B <= `size`."""
    for start in range(0, len(images), size):
        yield torch.from_numpy(images[start : start + size]).to(device).float() / 255


@torch.no_grad()
def features(
    model: Model,
    images: NDArray[np.uint8],
    device: torch.device,
    warp: Callable[[Tensor], Tensor] | None = None,
    samples: Generator | None = None,
) -> Features:
    """Features of uint8 images `[N, C, S, S]`, computed in batches on the device.

    Args:
        warp: a function that returns warps `[B, 2, 3]` for a batch of uint8 images. By default, images are not warped.
        samples: a generator on the CPU. If it is given, features sampled from the posterior are added.

    Raises:
        TypeError: if the model has no features.
    """
    collected: list[dict[str, Tensor]] = []
    for start in range(0, len(images), BATCH):
        batch = torch.from_numpy(images[start : start + BATCH]).to(device)
        pixels = batch.float() / 255 if warp is None else warps.warp(batch, warp(batch))
        result = model.features(pixels)
        if not result:
            raise TypeError(f"no features are defined for {type(model).__name__}")
        if samples is not None:
            result = result | model.sampled_features(result, samples)
        collected.append(result)
    return {name: torch.cat([each[name] for each in collected]).cpu().numpy() for name in collected[0]}


@torch.no_grad()
def metrics_on_test_images(model: Model, dataset: Dataset, seed: int, device: torch.device) -> dict[str, float]:
    """The metrics of the model on the test images, by name, with one noise sample per image.
    The model's `batch_statistics` are left out, because they depend on the batch size, and training uses another one.
    """
    images, labels = dataset.part("test")
    generator = torch.Generator(device).manual_seed(seed)
    epoch = torch.tensor(1e9, device=device)  # so high that all schedules have ended
    sums: dict[str, float] = {}
    of_batches = torch.from_numpy(labels).to(device).split(BATCH)
    for batch, classes in zip(batches(images, device, BATCH), of_batches, strict=True):
        noise = model.draw_noise((len(batch),), generator)
        for name, value in model(batch, noise, epoch, classes)[1].items():
            if name not in model.batch_statistics:
                sums[name] = sums.get(name, 0.0) + float(value) * len(batch)
    return {name: total / len(images) for name, total in sums.items()}
