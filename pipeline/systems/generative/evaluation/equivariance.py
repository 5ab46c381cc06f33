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
from pipeline.systems.generative.model.distributions import Capsules
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

    def layers(angle: float) -> dict[str, tuple[Tensor, Tensor]]:
        """Presences `[N, n]` and poses `[N, n, 2, 3]` of each layer in the images turned by an angle."""
        found = []
        for batch in torch.from_numpy(images).to(device).split(BATCH):
            turns = warps.rotations(torch.full((len(batch),), angle, device=device))
            found.append(model.encode(warps.warp(batch, turns) if angle else batch.float() / 255))
        whole = Capsules(*map(torch.cat, zip(*(vars(each).values() for each in found), strict=True)))
        of = {"parts": (whole.part_logits, whole.part_poses), "objects": (whole.object_logits, whole.object_poses)}
        return {name: ((y / model.temperature).sigmoid(), poses.to_matrix(A)) for name, (y, A) in of.items()}

    upright, rows = layers(0.0), []
    for angle in map(float, angles):
        turn = warps.rotations(torch.full((1, 1), angle, device=device))
        for layer, (t, found) in layers(angle).items():
            weight, matrix = t * upright[layer][0], upright[layer][1]
            expected = poses.compose(turn, matrix)
            error, unfollowed = (
                float(((weight * ((A - expected) ** 2).mean((-1, -2))).sum() / weight.sum().clamp_min(1e-12)).sqrt())
                for A in (found, matrix)
            )
            missed = error / max(unfollowed, 1e-12)
            rows.append([layer, angle, error, unfollowed, missed])
    return pd.DataFrame(rows, columns=["layer", "angle", "deviation", "unfollowed", "missed"])
