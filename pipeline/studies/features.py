"""What a trained model says about images, as plain arrays: the features that probes are fit on.

Document 000, section 5.1: the logits of q(t0); these with the mean of A0; for the VAE mu and sigma. Appendix D: the
expected number of children of each object under the exact posterior over parents; for the stacked capsule autoencoder
the prior and the posterior presences of its objects; for CapsNet its class capsules.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data import warps
from pipeline.layers.hierarchy import join
from pipeline.models import Model
from pipeline.models.capsnet import CapsNet
from pipeline.models.generative import Capsules, GenerativeModel
from pipeline.models.scae import SCAE
from pipeline.models.vae import VAE

BATCH = 500

Features = dict[str, NDArray[np.float32]]
"""Feature arrays `[N, d]` by name."""


def generative_features(model: GenerativeModel, posterior: Capsules) -> dict[str, Tensor]:
    """Features of a batch from its posterior: t0 (logits), t0_A0, children (expected, by object)."""
    t0, A0, temperature = posterior.object_logits, posterior.object_poses, model.temperature
    # The states without noise, (log odds + noise) / temperature
    layer = model.parts_given_objects(t0 / temperature, A0)
    children = layer.expected_children(join(posterior.part_logits / temperature, posterior.part_poses))
    return {"t0": t0, "t0_A0": torch.cat([t0, A0.flatten(1)], dim=1), "children": children}


def scae_features(model: SCAE, images: Tensor) -> dict[str, Tensor]:
    """Features of a batch, without noise: prior (presences a_k max_m a_km), posterior (parts explained), by object."""
    parts = model.encode_parts(images)
    objects = model.encode_objects(parts)
    posterior = model.posterior_presence(model.part_explanations(parts, objects))
    return {"prior": objects.presence, "posterior": posterior}


def encode(model: Model, images: Tensor) -> dict[str, Tensor]:
    """Features `[B, d]` by name of a batch of images `[B, 1, S, S]` in [0, 1]."""
    if isinstance(model, GenerativeModel):
        return generative_features(model, model.encode(images))
    if isinstance(model, VAE):
        code = model.encode(images)
        return {"mu_sigma": torch.cat([code.mu, code.sigma], dim=1)}
    if isinstance(model, SCAE):
        return scae_features(model, images)
    if isinstance(model, CapsNet):
        return {"class_capsules": model.encode(images).flatten(1)}
    raise TypeError(f"no features are defined for {type(model).__name__}")


@torch.no_grad()
def features(
    model: Model, images: NDArray[np.uint8], device: torch.device, warp: Callable[[int], Tensor] | None = None
) -> Features:
    """Features of uint8 images `[N, 1, S, S]`, in batches on the device.

    Args:
        warp: gives the warps `[B, 2, 3]` of the next B images; None: the images as they are.
    """
    collected: dict[str, list[Tensor]] = {}
    for start in range(0, len(images), BATCH):
        batch = torch.from_numpy(images[start : start + BATCH]).to(device)
        pixels = batch.float() / 255 if warp is None else warps.warp(batch, warp(len(batch)))
        for name, value in encode(model, pixels).items():
            collected.setdefault(name, []).append(value)
    return {name: torch.cat(values).cpu().numpy() for name, values in collected.items()}
