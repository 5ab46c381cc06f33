"""Do poses rotate with the image (document 000, section 5.4, Figure 5)?

If an encoder finds the same arrangement of parts at every angle, its poses in an image rotated by R are R (I + A), with
the poses I + A of the upright image (`pipeline.layers.poses`). The deviation from this is measured, and for comparison
the deviation of poses that stay unchanged: if both are equal, poses do not rotate at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data import warps
from pipeline.layers import poses
from pipeline.probes.features import BATCH
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.model.posteriors import Capsules

MEASURES = ("deviation", "low", "high", "unfollowed", "missed", "centre", "centre_unfollowed", "switched")
"""Columns of `equivariance` beside layer and angle."""


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
        one row per layer ("parts", "objects") and angle: columns layer, angle; deviation over all images; low and
        high, the quartiles of the images' own deviations; unfollowed, what it would be had no pose followed; missed,
        the deviation as a share of that; centre and centre_unfollowed, deviation and unfollowed of the last column
        alone; switched, the share of the capsules present in either image that are absent in the other.
    """
    compared: dict[tuple[str, float], list[_Compared]] = {}
    for start in range(0, len(images), BATCH):
        batch = torch.from_numpy(images[start : start + BATCH]).to(device)
        plain = _capsules(model, batch.float() / 255)
        for angle in angles:
            turn = warps.rotations(torch.full((len(batch),), float(angle), device=device))
            turned = _capsules(model, warps.warp(batch, turn))
            for layer in plain:
                compared.setdefault((layer, float(angle)), []).append(_compare(plain[layer], turned[layer], turn))
    rows = [
        {"layer": layer, "angle": angle} | _summary(_Compared(*map(torch.cat, zip(*parts, strict=True))))
        for (layer, angle), parts in compared.items()
    ]
    return pd.DataFrame(rows, columns=["layer", "angle", *MEASURES])


class _Compared(NamedTuple):
    """Capsules in images and in their turned copies, by image and capsule."""

    weight: Tensor  # (B, n)
    deviation: Tensor  # (B, n, 2, 3), squared
    way: Tensor  # (B, n, 2, 3), squared, from the pose to the turned pose
    before: Tensor  # (B, n), whether present in the image
    after: Tensor  # (B, n), in the turned one


def _capsules(model: GenerativeModel, pixels: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Presences `[B, n]` and poses `[B, n, 2, 3]` of each layer."""
    posterior: Capsules = model.encode(pixels)
    temperature = model.temperature
    return {
        "parts": ((posterior.part_logits / temperature).sigmoid(), poses.to_matrix(posterior.part_poses)),
        "objects": ((posterior.object_logits / temperature).sigmoid(), poses.to_matrix(posterior.object_poses)),
    }


def _compare(plain: tuple[Tensor, Tensor], turned: tuple[Tensor, Tensor], turn: Tensor) -> _Compared:
    (t, matrix), (t_turned, found) = plain, turned
    expected = poses.compose(turn.unsqueeze(1), matrix)
    return _Compared(t * t_turned, (found - expected) ** 2, (matrix - expected) ** 2, t > 0.5, t_turned > 0.5)


def _summary(pairs: _Compared) -> dict[str, float]:
    def root_mean(square: Tensor, dim: tuple[int, ...] = (0, 1)) -> Tensor:
        mean = square.mean((-1, -2))
        return ((pairs.weight * mean).sum(dim) / pairs.weight.sum(dim).clamp_min(1e-12)).sqrt()

    quartiles = torch.tensor([0.25, 0.75], device=pairs.weight.device)
    low, high = root_mean(pairs.deviation, (1,)).quantile(quartiles).tolist()
    either = (pairs.before | pairs.after).sum().clamp_min(1)
    deviation, unfollowed = float(root_mean(pairs.deviation)), float(root_mean(pairs.way))
    return {
        "deviation": deviation,
        "low": low,
        "high": high,
        "unfollowed": unfollowed,
        "missed": deviation / max(unfollowed, 1e-12),
        "centre": float(root_mean(pairs.deviation[..., 2:])),
        "centre_unfollowed": float(root_mean(pairs.way[..., 2:])),
        "switched": float((pairs.before ^ pairs.after).sum() / either),
    }
