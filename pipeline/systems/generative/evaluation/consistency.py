"""Whether digits of one class are drawn by the same parts (document 000, section 5.4, Figure 7).

Rotated images are encoded. The poses of parts are rotated back by the known angle, so that digits of a class overlap.
Each pixel with ink is assigned to the part that contributes most to the pixel's brightness. The consistency of part use
is how often a pixel is assigned to the same part in two digits of a class, corrected for chance.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import comb
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.layers.rendering import warp_templates
from pipeline.probes.features import batches
from pipeline.systems.generative.evaluation.examples import Arrays, arrange
from pipeline.systems.generative.model.generative_model import GenerativeModel

BATCH = 100
"""Images per batch. It is small because every part of each image needs a picture of its own in memory."""
INK = 0.5
"""Brightness above which a pixel of a reconstruction counts as ink."""
NO_INK = -1
EXAMPLES = 10
"""Maximum number of digits of class 2 in the figure."""


def consistency(parts: NDArray[np.int64], classes: NDArray[np.int64]) -> float:
    """How often two images of one class have the same part at a pixel, beyond chance (Scott's pi).

    In each pair of images of one class, the pixels with ink in both images are compared. Agreement is the share of
    compared pixels with the same part. Chance is the probability that two random pixels with ink have the same part.
    The result is (agreement - chance) / (1 - chance), or 0 if chance is 1 (one part draws everything) or no pixels can
    be compared. `parts [N, S, S]` has the index of the part at each pixel, or `NO_INK`. Classes are `[N]`.
    """
    ink = parts[parts != NO_INK]
    names, uses = np.unique(ink, return_counts=True)
    pairs = agreeing = 0.0
    for name in np.unique(classes):
        of_class = parts[classes == name]
        pairs += float(comb((of_class != NO_INK).sum(0), 2).sum())
        agreeing += sum(float(comb((of_class == part).sum(0), 2).sum()) for part in names)
    chance = float(((uses / max(len(ink), 1)) ** 2).sum())
    if pairs == 0 or chance == 1:
        return 0.0
    return (agreeing / pairs - chance) / (1 - chance)


def responsible_parts(model: GenerativeModel, states: Tensor) -> Tensor:
    """Index of the part that contributes most to each pixel, `[B, S, S]`; `NO_INK` if the brightness is at most `INK`.

    Let C_j be the intensity of part j at a pixel, and a_j its opacity times its presence. The part contributes
    C_j a_j prod_{k > j} (1 - a_k), because later parts hide it. `states [B, P, 7]`: presence logits, then poses.
    """
    colour, alpha = model.templates.unbind(1)
    weighted = states[..., :1, None].sigmoid() * alpha  # (B, P, h, w)
    layers = torch.stack([colour.expand_as(weighted), weighted], dim=2)
    C, a = warp_templates(layers, states[..., 1:], model.image_size).unbind(2)  # (B, P, S, S)
    through = (1 - a).flip(1).cumprod(1).flip(1)  # prod_{k >= j} (1 - a_k)
    share = C * a * torch.cat([through[:, 1:], torch.ones_like(through[:, :1])], dim=1)
    return torch.where(share.sum(1) > INK, share.argmax(1), NO_INK)


@torch.no_grad()
def part_use(
    model: GenerativeModel, images: NDArray[np.uint8], classes: NDArray[np.int64], angle: float, seed: int
) -> tuple[float, Arrays]:
    """Consistency of part use on images rotated within +-angle degrees, and arrays for a figure of digits of class 2.

    The images are upright, uint8 `[N, 1, S, S]`, classes `[N]`. Arrays, in [0, 1], show the first n digits of class 2:
    upright `images [n, S, S]`, and `arrangements [n, S, S, 3]`, reconstructions rotated back, with a colour per part.
    """
    generator = torch.Generator().manual_seed(seed)  # on the CPU, so that angles are the same on all devices
    maps, colours = [], []
    for pixels in batches(images, model.device, BATCH):
        turn = warps.uniform_rotations(pixels, angle, generator)
        posterior = model.encode(warps.warp(pixels, turn))
        back = poses.compose(poses.invert(turn).unsqueeze(1), poses.to_matrix(posterior.part_poses))
        found = replace(posterior, part_poses=poses.to_offset(back))
        maps.append(responsible_parts(model, model.states(found)).cpu().numpy())
        colours.append(arrange(model, found).cpu().numpy())
    shown = np.flatnonzero(classes == 2)[:EXAMPLES]
    arrays = {"images": images[shown, 0].astype(np.float32) / 255, "arrangements": np.concatenate(colours)[shown]}
    return consistency(np.concatenate(maps), classes), arrays
