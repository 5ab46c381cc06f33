"""Arrays that figures are drawn from: templates, reconstructions, part arrangements, samples of the prior."""

from __future__ import annotations

import colorsys

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data import warps
from pipeline.layers.rendering import render
from pipeline.systems.generative.model.generative_model import Capsules, GenerativeModel
from pipeline.systems.generative.model.hierarchy import join

Arrays = dict[str, NDArray[np.float32]]


def part_colours(count: int) -> NDArray[np.float32]:
    """`[count, 3]` RGB colours, as far apart as hues and two brightnesses allow; neighbours differ most."""
    golden = 0.618034
    colours = [colorsys.hsv_to_rgb((i * golden) % 1, 0.75 if i % 2 else 1.0, 1.0) for i in range(count)]
    return np.asarray(colours, dtype=np.float32)


def reconstruct(model: GenerativeModel, posterior: Capsules) -> Tensor:
    """The pictures `[B, S, S]` of parts at their posterior means."""
    return model.draw(join(posterior.part_logits / model.temperature, posterior.part_poses))


def arrange(model: GenerativeModel, posterior: Capsules) -> Tensor:
    """The same pictures with each part in a colour of its own, `[B, S, S, 3]` in [0, 1]."""
    presence = (posterior.part_logits / model.temperature).sigmoid()
    colour, alpha = model.templates.unbind(1)  # (P, h, w)
    tints = torch.from_numpy(part_colours(model.params.parts)).to(colour)
    tinted = [torch.stack([colour * tint[:, None, None], alpha], dim=1) for tint in tints.T]  # by channel
    channels = [render(templates, posterior.part_poses, presence, model.image_size) for templates in tinted]
    return torch.stack(channels, dim=-1)


def turned(image: NDArray[np.uint8], angles: NDArray[np.float32], device: torch.device) -> Tensor:
    """One uint8 image `[1, S, S]` turned by each of `angles` (degrees): `[N, 1, S, S]` in [0, 1]."""
    batch = torch.from_numpy(image).to(device).expand(len(angles), *image.shape)
    return warps.warp(batch, warps.rotations(torch.from_numpy(angles).to(device)))


def _arrays(**tensors: Tensor) -> Arrays:
    return {name: tensor.detach().cpu().numpy().astype(np.float32) for name, tensor in tensors.items()}


@torch.no_grad()
def evaluation_examples(model: GenerativeModel, image: NDArray[np.uint8], seed: int, device: torch.device) -> Arrays:
    """One digit turned in steps of 30 degrees with its reconstructions and arrangements (Figure 5), the templates
    (Figure 6), and 16 samples of the prior.

    Args:
        image: uint8 `[1, S, S]`.
    """
    angles = np.arange(-180, 180, 30, dtype=np.float32)
    images = turned(image, angles, device)
    posterior = model.encode(images)
    templates = model.templates
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        samples = model.model(None, 16)
    return _arrays(
        templates=templates[:, 0],
        alphas=templates[:, 1],
        images=images[:, 0],
        reconstructions=reconstruct(model, posterior),
        arrangements=arrange(model, posterior),
        prior_samples=samples,
    ) | {"angles": angles}
