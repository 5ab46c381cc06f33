"""A mixture model of the arrangements of parts: a single object, at any affine pose, explains all parts of an image.

If only object i is present, the pose I + A1_j of a present part j is the vote (I + A0_i) M_ij plus noise of sd c_ij
(document 000, equations 4 to 6). The vote is linear in the object pose B = I + A0_i. So the best B, under the prior
N(0, I) of A0_i (equation 2), solves a ridge regression. Up to a constant, the log density of the parts and this B is

    log p_i = max_B sum_j t_j log N(I + A1_j; B M_ij, c_ij) + log Bern(t_j; gamma_ij) - |B - I|^2 / 2,

where t_j is the presence of part j, gamma_ij the log odds that it is present, and M_ij its pose in the frame of object
i. A mixture of O objects is fitted by EM. Each component is an arrangement of parts at any affine pose. With `seeding`,
the components initialise the objects of the capsule model. Then the encoder learns which object explains which image.

Shapes: N images `[N, 1, S, S]` in [0, 1], O objects, P parts; poses are offsets from the identity, `[..., 6]`.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from pipeline.layers import poses
from pipeline.layers.poses import POSE_SIZE
from pipeline.systems.generative.model.distributions import BoundTrace

START_SD = 0.08
"""Sd of a part's pose around its vote at the start of EM, in half widths of the image."""
SMALLEST_SD = 0.01
RIDGE = 1e-3
"""Added to the diagonal of M's normal equations, which are nearly singular for a part that hardly any image shows."""
LIKELIEST = 0.98
"""Upper limit of the probability that a part is present; the lower limit is 1 - `LIKELIEST`."""
STARTING_IMAGES = 256
"""Number of images to start from without a mixture. An object's M_ij are from one image, parts' mean poses from all."""
SMALLEST_EXCESS = 2e-3
"""Least value of c_ij - `pose_sd_floor` if a mixture initialises c_ij. At the floor, c_ij would have no gradient."""


@dataclass(frozen=True)
class Arrangements:
    """The arrangement of the parts in each of O objects."""

    M: Tensor  # (O, P, 6), poses of parts in the objects' frames
    c: Tensor  # (O, P), sds of part poses around the votes
    gamma: Tensor  # (O, P), log odds that a part is present


@dataclass(frozen=True)
class Explanations:
    """Explanations of each image by each object, as if no other object were present."""

    log_probs: Tensor  # (N, O), log p_i of the module's equation, in nats, without the constant
    object_poses: Tensor  # (N, O, 6), the best B, as offsets from the identity
    squared: Tensor  # (N, O, P), squared distances of part poses to the votes


def explain(t: Tensor, A: Tensor, arrangements: Arrangements) -> Explanations:
    """Explain parts with presences `t [N, P]` in [0, 1] and poses `A [N, P, 6]` by each object alone."""
    frames = poses.homogeneous(arrangements.M)  # (O, P, 3, 3)
    parts = poses.to_matrix(A)  # (N, P, 2, 3)
    identity = poses.identity(A)
    precision = arrangements.c**-2
    weighted = frames * precision[..., None, None]
    # Normal equations, with part poses Q_j [2, 3]: B (I + sum_j t_j M_j M_j' / c_j^2) = I + sum_j t_j Q_j M_j' / c_j^2
    normal = torch.einsum("np,opij->noij", t, weighted @ frames.mT) + torch.eye(3, dtype=A.dtype, device=A.device)
    right = torch.einsum("npai,opji->noaj", t[..., None, None] * parts, weighted) + identity
    # The prior makes the matrices invertible. `inv_ex` does not check this, so the CPU does not have to wait for a GPU.
    B = right @ torch.linalg.inv_ex(normal).inverse  # (N, O, 2, 3)
    squared = _squared_errors(parts, B, frames)
    density = -0.5 * squared * precision - POSE_SIZE * (arrangements.c.log() + 0.5 * math.log(2 * math.pi))
    seen = t.unsqueeze(1)
    log_probs = (seen * (density + arrangements.gamma) - F.softplus(arrangements.gamma)).sum(-1)
    return Explanations(log_probs - 0.5 * ((B - identity) ** 2).sum((-1, -2)), poses.to_offset(B), squared)


def fit_arrangements(t: Tensor, A: Tensor, objects: int, iterations: int, generator: Generator) -> Arrangements:
    """Fit a mixture of `objects` arrangements to parts with presences `t [N, P]` and poses `A [N, P, 6]`, by EM.

    All votes share one sd. With an sd for each part of each object, components would form around a few parts that
    happen to fit very well. EM starts from arrangements of single images, drawn by `generator` (on the CPU). The first
    image is random. The probability of a further image is proportional to its squared distance, after the best affine
    map, from the nearest image drawn before (k-means++). With fewer images than objects, some objects share an image.
    """
    arrangements = _first_arrangements(t, A, objects, generator)
    weights = t.new_full((objects,), 1 / objects)
    for _ in range(iterations):
        explained = explain(t, A, arrangements)
        posterior = (explained.log_probs + weights.log()).softmax(dim=-1)
        arrangements = _maximised(t, A, posterior, explained.object_poses)
        weights = posterior.mean(0).clamp_min(1e-6)
        weights = weights / weights.sum()
    return arrangements


def _first_arrangements(t: Tensor, A: Tensor, objects: int, generator: Generator) -> Arrangements:
    chosen = int(torch.randint(len(t), (1,), generator=generator))
    M = A[chosen].expand(1, *A.shape[1:])
    nearest = t.new_full((len(t),), math.inf)  # each image's squared distance from the nearest drawn image
    while len(M) < objects:
        last = Arrangements(M[-1:], A.new_full((1, A.shape[1]), START_SD), A.new_zeros(1, A.shape[1]))
        distance = (t * explain(t, A, last).squared[:, 0]).sum(-1)
        nearest = torch.minimum(nearest, distance)
        chosen = int(torch.multinomial(nearest.cpu().clamp_min(1e-12), 1, generator=generator))
        M = torch.cat([M, A[chosen : chosen + 1]])
    return Arrangements(M, A.new_full(M.shape[:2], START_SD), A.new_zeros(M.shape[:2]))


def _maximised(t: Tensor, A: Tensor, posterior: Tensor, object_poses: Tensor) -> Arrangements:
    """The M-step: the best arrangements given the posterior over objects, `[N, O]`, and the objects' poses."""
    parts, B = poses.to_matrix(A), poses.to_matrix(object_poses)
    linear, shift = B[..., :2], B[..., 2]  # (N, O, 2, 2), (N, O, 2)
    share = posterior.unsqueeze(-1) * t.unsqueeze(1)  # (N, O, P)
    normal = torch.einsum("nop,noai,noaj->opij", share, linear, linear)
    normal = normal + RIDGE * torch.eye(2, dtype=A.dtype, device=A.device)
    # M is the least-squares solution of parts = linear M + shift, where the shift is added to the last column only.
    target = torch.cat([torch.zeros_like(B[..., :2]), shift.unsqueeze(-1)], dim=-1)  # (N, O, 2, 3)
    right = torch.einsum("nop,noai,npaj->opij", share, linear, parts)
    right = right - torch.einsum("nop,noai,noaj->opij", share, linear, target)
    M = torch.linalg.inv_ex(normal).inverse @ right  # (O, P, 2, 3)
    squared = _squared_errors(parts, B, poses.homogeneous(poses.to_offset(M)))
    variance = (share * squared).sum() / (POSE_SIZE * share.sum()).clamp_min(1e-12)
    c = variance.sqrt().clamp_min(SMALLEST_SD).expand(M.shape[:2])
    frequency = share.sum(0) / posterior.sum(0).unsqueeze(-1).clamp_min(1e-6)
    return Arrangements(poses.to_offset(M), c, frequency.clamp(1 - LIKELIEST, LIKELIEST).logit())


def _squared_errors(parts: Tensor, B: Tensor, frames: Tensor) -> Tensor:
    """Squared distances `[N, O, P]` of the part poses `parts [N, P, 2, 3]` to the votes of objects with poses
    `B [N, O, 2, 3]`. The parts' poses in the objects' frames are `frames [O, P, 3, 3]`.
    """
    votes = torch.einsum("noai,opij->nopaj", B, frames)
    return ((parts.unsqueeze(1) - votes) ** 2).sum((-1, -2))


def object_errors(arrangements: Arrangements, trace: BoundTrace) -> Tensor:
    """Loss `[N]`, in nats, of the encoder's objects, if exactly one object explains each image.

    Let p be the posterior probability that an object explains the image, if all objects are equally likely a priori.
    The loss of the object's presence is the cross-entropy to p. The loss of its pose is p / (mean of c)^2 times half
    the squared distance to the best pose, plus (1 - p) times half the pose's squared norm (the prior). Both losses are
    summed over objects. Gradients flow only to the encoder.
    """
    with torch.no_grad():
        found = explain(trace.parts[..., 0].sigmoid(), trace.parts[..., 1:], arrangements)
        posterior = found.log_probs.softmax(dim=-1)
        precision = posterior / arrangements.c.mean() ** 2
    presences = F.binary_cross_entropy_with_logits(trace.object_logits, posterior, reduction="none")
    near = ((trace.object_poses - found.object_poses) ** 2).sum(-1)
    return (presences + 0.5 * (precision * near + (1 - posterior) * (trace.object_poses**2).sum(-1))).sum(-1)
