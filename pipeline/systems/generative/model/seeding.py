"""How the objects start, and what their encoder learns first: from arrangements of parts in training images.

Shapes: n images, O objects, P parts; images `[n, 1, S, S]` in [0, 1].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from pipeline.layers import poses
from pipeline.systems.generative.model.arrangements import Arrangements, explain, fit_arrangements
from pipeline.systems.generative.model.bound import BoundTrace

if TYPE_CHECKING:
    from pipeline.systems.generative.model.generative_model import GenerativeModel

STARTING_IMAGES = 256
"""Images for the start without a mixture: the first give M_ij, one per object; all give the mean inactive pose."""
SMALLEST_EXCESS = 2e-3
"""Least distance of c_ij from its floor after a start from a mixture; at the floor it would have no gradient."""
_BATCH = 256


@torch.no_grad()
def seed(model: GenerativeModel, images: Tensor) -> None:
    """Set the M_ij of each object from the part poses in images.

    Without `seeding`, from those in one image each: the objects start as different arrangements from the data, as
    k-means starts from data points. With fewer images than objects, some objects share an image. With `seeding`, from a
    mixture of affine arrangements fitted to all images, which also gives gamma_ij and c_ij. With a mean inactive pose,
    that, too.
    """
    params, seeding = model.params, model.params.seeding
    if seeding is None:
        y1, A1 = model.encode_parts(images)
    else:
        y1, A1 = (torch.cat(each) for each in zip(*map(model.encode_parts, images.split(_BATCH)), strict=True))
    # Parts count by their probability of being present: the log odds without temperature and noise.
    t1 = y1.sigmoid()
    if params.inactive_pose == "mean":
        model.mean_pose.copy_(torch.einsum("np,npi->pi", t1 / t1.sum(0), A1))
    if seeding is None:
        found = model.encode(images[torch.arange(params.objects, device=images.device) % len(images)])
        own = found.object_poses.diagonal(dim1=0, dim2=1).transpose(0, 1)  # (O, 6): object i's pose in image i
        frame = poses.invert(poses.to_matrix(own)).unsqueeze(1)
        part_in_object = poses.compose(frame, poses.to_matrix(found.part_poses))  # (O, P, 2, 3)
        model.M.copy_(poses.to_offset(part_in_object))
    else:
        generator = torch.Generator().manual_seed(0)
        fitted, *_ = fit_arrangements(t1, A1, params.objects, seeding.iterations, generator)
        model.M.copy_(fitted.M)
        model.gamma[:, 1:] = fitted.gamma.T
        excess = (fitted.c.T - params.pose_sd_floor).clamp_min(SMALLEST_EXCESS)
        model.c_excess.copy_(excess.expm1().log())


def object_errors(model: GenerativeModel, trace: BoundTrace) -> Tensor:
    """How far the guide's objects are from those that explain each image alone, `[B]`, in nats.

    Two terms. Presences: their cross-entropy to the posterior of a single object. Poses: the object that explains the
    image is drawn to the best pose, with its error in units of the mean c; the others are drawn to 0, as by the prior.
    Only the guide gets this gradient.
    """
    with torch.no_grad():
        c = model.c[:, 1:].T
        arrangements = Arrangements(model.M, c, model.gamma[:, 1:].T)
        found = explain(trace.parts[..., 0].sigmoid(), trace.parts[..., 1:], arrangements)
        posterior = found.posterior
        precision = posterior / c.mean() ** 2
    presences = F.binary_cross_entropy_with_logits(trace.object_logits, posterior, reduction="none")
    near = ((trace.object_poses - found.object_poses) ** 2).sum(-1)
    return (presences + 0.5 * (precision * near + (1 - posterior) * (trace.object_poses**2).sum(-1))).sum(-1)
