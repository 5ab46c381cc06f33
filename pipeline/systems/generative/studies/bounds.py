"""Lower bounds on log p(x) of images: the evidence lower bound, and the importance-weighted bound."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from pipeline.probes.features import BATCH
from pipeline.systems.generative.model.generative_model import GenerativeModel, trace_bound


def importance_weighted(log_weights: Tensor) -> Tensor:
    """`log 1/K sum_k exp(log w_k)` over the first dimension of `log_weights [K, ...]` (Burda et al. 2016)."""
    return log_weights.logsumexp(0) - math.log(len(log_weights))


def log_weights(model: GenerativeModel, images: Tensor, samples: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """`log p(x, z_k) - log q(z_k | x)` of K samples z_k of the guide, `[K, B]`, and their squared pixel errors.

    Their mean over k estimates the evidence lower bound, `importance_weighted` a tighter one. Both bound
    log p(x) of the model with the choice of parent summed out, from below. The density of the parts' poses integrates
    to Z <= 1 (see `layers.hierarchy`), so that what is bounded lies itself below log p(x) of the normalised model: a
    bound of a bound: the same for all guides of one model, as far below as Z is from 1 for another's.

    Raises:
        ValueError: the guide's poses are deltas, which have no density: its "bound" is of no one quantity.
    """
    if not model.gaussian:
        raise ValueError("importance weights need a guide with a density: Gaussian poses")
    weights, errors = torch.empty(2, samples, len(images), device=images.device)
    for k in range(samples):
        # A trace holds every feature map of the images: it is not kept.
        trace = trace_bound(model, images, model.draw_noise((len(images),), generator, images.device))
        weights[k], errors[k] = trace.bound, trace.error
    return weights, errors


@torch.no_grad()
def image_bounds(
    model: GenerativeModel, images: NDArray[np.uint8], samples: int, seed: int, device: torch.device
) -> pd.DataFrame:
    """Bounds of every one of uint8 images `[N, 1, S, S]`, from `samples` samples each.

    Returns:
        columns elbo, iwae (nats) and pixel_error (squared, summed over the pixels), one row per image.
    """
    generator = torch.Generator(device).manual_seed(seed)
    tables = []
    for start in range(0, len(images), BATCH):
        batch = torch.from_numpy(images[start : start + BATCH]).to(device).float() / 255
        weights, errors = log_weights(model, batch, samples, generator)
        columns = torch.stack([weights.mean(0), importance_weighted(weights), errors.mean(0)], dim=1)
        tables.append(pd.DataFrame(columns.double().cpu().numpy(), columns=["elbo", "iwae", "pixel_error"]))
    return pd.concat(tables, ignore_index=True)
