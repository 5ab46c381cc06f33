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
    by their presence in both images: the pose of an absent one means nothing. A template that looks the same in several
    poses can follow in another than the one expected; where it is drawn, the last column of its pose, tells without
    that doubt.

    Args:
        images: uint8 `[N, 1, S, S]`.
        angles: degrees, each applied to every image.

    Returns:
        one row per layer ("parts", "objects") and angle: columns layer, angle; deviation over all images; unfollowed,
        what it would be had no pose followed; missed, the deviation as a share of that; centre and centre_unfollowed,
        deviation and unfollowed of the last column alone; switched, the share of the capsules present in either image
        that are absent in the other.
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
    """Of each capsule of each image: its weight `[B, n]`; squared distances `[B, n, 2, 3]` to the turned pose, of the
    pose found and of the pose of the upright image; whether it is present in either image, `[B, n]` each.
    """
    (t, matrix), (t_turned, found) = plain, turned
    expected = poses.compose(turn.unsqueeze(1), matrix)
    return t * t_turned, (found - expected) ** 2, (matrix - expected) ** 2, t > 0.5, t_turned > 0.5


def _summary(weight: Tensor, deviation: Tensor, identity: Tensor, before: Tensor, after: Tensor) -> dict[str, float]:
    def root_mean(square: Tensor) -> float:
        return float(((weight * square.mean((-1, -2))).sum((0, 1)) / weight.sum((0, 1)).clamp_min(1e-12)).sqrt())

    error, identity_error = root_mean(deviation), root_mean(identity)
    return {
        "deviation": error,
        "unfollowed": identity_error,
        "missed": error / max(identity_error, 1e-12),
        "centre": root_mean(deviation[..., 2:]),
        "centre_unfollowed": root_mean(identity[..., 2:]),
        "switched": float((before ^ after).sum() / (before | after).sum().clamp_min(1)),
    }
