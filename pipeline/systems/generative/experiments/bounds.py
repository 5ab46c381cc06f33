"""Lower bounds on log p(x) of images: the evidence lower bound, and the importance-weighted bound."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from pipeline.probes.features import batches
from pipeline.systems.generative.model.bound import trace_bound
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.model.hierarchy import ChildrenGivenParents


def importance_weighted(log_weights: Tensor) -> Tensor:
    """`log 1/K sum_k exp(log w_k)` over the first dimension of `log_weights [K, ...]` (Burda et al. 2016)."""
    return log_weights.logsumexp(0) - math.log(len(log_weights))


def normalised_log_prob(layer: ChildrenGivenParents, value: Tensor) -> Tensor:
    """`log_prob` of `value [..., m, 7]` if the layer's density of poses is divided by its integral Z_ij(t_j): `[...]`.

    This is the density that `layer.sample` draws from (see `model.hierarchy`).
    """
    if layer.slots == "own":
        return (layer.joint_log_prob(value) - layer.log_normaliser(value[..., 0])).logsumexp(-1).sum(-1)
    m = value.shape[-2]
    places = ChildrenGivenParents(
        layer.log_pi.unsqueeze(-3), layer.gamma, layer.votes.unsqueeze(-4), layer.c, layer.inactive_pose,
        layer.inactive_sd, layer.temperature,
    )  # fmt: skip
    value = value.unsqueeze(-2).expand(*value.shape[:-1], m, value.shape[-1])  # each child in each place
    joint = places.joint_log_prob(value) - places.log_normaliser(value[..., 0])  # (..., m, m, 1 + n)
    return (joint.logsumexp((-2, -1)) - math.log(m)).sum(-1)


def draw_weights(
    model: GenerativeModel, images: Tensor, samples: int, generator: Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw K = `samples` samples z_k of the guide for each of images `[B, 1, S, S]`.

    The mean of log weights over k estimates the evidence lower bound, `importance_weighted` a tighter one. Both bound
    log p(x) of the model with the choice of parent summed out, from below.

    Returns:
        tensors `[K, B]`: `log p(x, z_k) - log q(z_k | x)`, with the document's density of the parts' poses, which
        integrates to Z <= 1 (see `model.hierarchy`), so that what these bound lies itself below log p(x) of the
        normalised model: equally far for all guides of one model, not for those of another; the same with the
        normalised density, by which different models can be compared; squared pixel errors, summed over the pixels.

    Raises:
        ValueError: the guide's poses are deltas, which have no density: its "bound" is of no one quantity.
    """
    if not model.gaussian:
        raise ValueError("importance weights need a guide with a density: Gaussian poses")
    weights, normalised, errors = torch.empty(3, samples, len(images), device=images.device)
    for k in range(samples):
        # A trace holds every feature map of the images: it is not kept.
        trace = trace_bound(model, images, model.draw_noise((len(images),), generator, images.device))
        layer = model.parts_given_objects(trace.y0, trace.object_poses)
        weights[k], errors[k] = trace.bound, trace.error
        normalised[k] = trace.bound - trace.log_parts + normalised_log_prob(layer, trace.parts)
    return weights, normalised, errors


@torch.no_grad()
def image_bounds(
    model: GenerativeModel, images: NDArray[np.uint8], samples: int, seed: int, device: torch.device
) -> pd.DataFrame:
    """Bounds of every one of uint8 images `[N, 1, S, S]`, from `samples` samples each.

    Returns:
        columns elbo, iwae, elbo_normalised (nats) and pixel_error (squared, summed over the pixels), one row per image.
    """
    generator = torch.Generator(device).manual_seed(seed)
    tables = []
    for batch in batches(images, device):
        weights, normalised, errors = draw_weights(model, batch, samples, generator)
        columns = {
            "elbo": weights.mean(0),
            "iwae": importance_weighted(weights),
            "elbo_normalised": normalised.mean(0),
            "pixel_error": errors.mean(0),
        }
        tables.append(pd.DataFrame({name: column.double().cpu().numpy() for name, column in columns.items()}))
    return pd.concat(tables, ignore_index=True)
