"""EM routing as printed in document 004, Procedure 1, for readers and for tests of the fast version.

The fast version, `em_routing.route`, gives the same results and gradients. On a CPU, it stores no votes for gradients.
Shapes: B images, p parent positions, D parent types, k child positions per parent, c child types, poses of P numbers.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from pipeline.systems.matrix_capsules.model.em_routing import Routing


def procedure_1(
    poses: Tensor, activations: Tensor, transformations: Tensor, beta_a: Tensor, beta_u: Tensor, routing: Routing
) -> tuple[Tensor, Tensor]:
    """Poses `[B, p, D, P]` and activations `[B, p, D]` of the parents. The arguments are those of `em_routing.route`.
    The settings must have activation "mdl", competition "all", first_shares "all", and damped_first false.
    """
    params, fields = routing.params, routing.fields
    votes = torch.einsum("bpkci,kcidj->bpdkcj", fields.gather(poses), transformations)  # (B, p, D, k, c, P)
    if routing.offsets is not None:
        votes = votes + routing.offsets[:, None]  # coordinate addition, (k, 1, P)
    active = fields.gather(activations)[:, :, None]  # (B, p, 1, k, c)
    parents = fields.counts[fields.children][None, :, None, :, None] * len(beta_a)  # number of parents of a child
    R = torch.ones_like(active) / parents  # shares, (B, p, 1, k, c) at first, then (B, p, D, k, c)
    mean = None
    for i in range(routing.iterations):
        # M-step: each parent's Gaussian and activation
        weight = (R * active).expand(votes.shape[:-1])[..., None]
        mass = weight.sum((3, 4))  # (B, p, D, 1)
        found = (weight * votes).sum((3, 4)) / mass
        mean = found if mean is None else (1 - params.damping) * found + params.damping * mean  # (B, p, D, P)
        squares = (votes - mean[:, :, :, None, None]).square()
        variance = (weight * squares).sum((3, 4)) / mass + params.variance_floor
        cost = (mass * (beta_u[:, None] + 0.5 * variance.log())).sum(-1)  # nats, (B, p, D)
        logits = routing.inverse_temperature(i) * (beta_a - cost)
        # E-step: shares are proportional to a parent's activation times the density of its Gaussian at the child's vote
        spread = variance[:, :, :, None, None]
        misfit = (2 * math.pi * spread).log() + squares / spread
        log_density = logsigmoid(logits)[..., None, None] - 0.5 * misfit.sum(-1)
        by_child = log_density.permute(0, 1, 3, 4, 2)  # (B, p, k, c, D)
        largest = fields.gather(fields.amax(by_child).amax(-1))[..., None]
        odds = (by_child - largest).exp()
        R = (odds / fields.gather(fields.sum(odds).sum(-1))[..., None]).permute(0, 1, 4, 2, 3)
    assert mean is not None  # there is at least one iteration
    return mean, logits.sigmoid()
