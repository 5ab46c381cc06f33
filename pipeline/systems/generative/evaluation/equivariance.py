"""Do poses rotate with the image (document 000, section 5.4, Figure 5)?

If an encoder finds the same arrangement of parts at every angle, its poses in an image rotated by R are R (I + A), with
the poses I + A of the upright image (`pipeline.layers.poses`). The deviation from this is measured, and for comparison
the deviation of poses that stay unchanged: if both are equal, poses do not rotate at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.probes.features import BATCH
from pipeline.systems.generative.model.generative_model import GenerativeModel


@torch.no_grad()
def equivariance(
    model: GenerativeModel, images: NDArray[np.uint8], angles: Sequence[float], device: torch.device
) -> pd.DataFrame:
    """Poses in turned images against the turned poses.

    Distances are root mean squares over the numbers of a pose, in units of the image's half width, capsules weighted
    by their presence in both images: the pose of an absent one means nothing.

    Args:
        images: uint8 `[N, 1, S, S]`.
        angles: degrees, each applied to every image.

    Returns:
        one row per layer ("parts", "objects") and angle: columns layer, angle; deviation over all images; unfollowed,
        what it would be had no pose followed; missed, the deviation as a share of that.
    """
    compared: dict[tuple[str, float], list[tuple[Tensor, ...]]] = {}
    for batch in torch.from_numpy(images).to(device).split(BATCH):
        plain = _layers(model, batch.float() / 255)
        for angle in angles:
            turn = warps.rotations(torch.full((len(batch),), float(angle), device=device))
            turned = _layers(model, warps.warp(batch, turn))
            for layer in plain:
                compared.setdefault((layer, float(angle)), []).append(_compare(plain[layer], turned[layer], turn))
    rows = [
        {"layer": layer, "angle": angle} | _summary(*map(torch.cat, zip(*parts, strict=True)))
        for (layer, angle), parts in compared.items()
    ]
    return pd.DataFrame(rows)


def _layers(model: GenerativeModel, pixels: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Presences `[B, n]` and poses `[B, n, 2, 3]` of each layer."""
    posterior = model.encode(pixels)
    t1, t0 = ((y / model.temperature).sigmoid() for y in (posterior.part_logits, posterior.object_logits))
    A1, A0 = (poses.to_matrix(A) for A in (posterior.part_poses, posterior.object_poses))
    return {"parts": (t1, A1), "objects": (t0, A0)}


def _compare(plain: tuple[Tensor, Tensor], turned: tuple[Tensor, Tensor], turn: Tensor) -> tuple[Tensor, ...]:
    """Of each capsule of each image: its weight; squared distances to the turned pose, of the pose found and of the
    pose of the upright image, means over the numbers of a pose: `[B, n]` each.
    """
    (t, matrix), (t_turned, found) = plain, turned
    expected = poses.compose(turn.unsqueeze(1), matrix)
    return t * t_turned, *(((each - expected) ** 2).mean((-1, -2)) for each in (found, matrix))


def _summary(weight: Tensor, deviation: Tensor, identity: Tensor) -> dict[str, float]:
    error, identity_error = (
        float(((weight * square).sum((0, 1)) / weight.sum((0, 1)).clamp_min(1e-12)).sqrt())
        for square in (deviation, identity)
    )
    return {"deviation": error, "unfollowed": identity_error, "missed": error / max(identity_error, 1e-12)}
