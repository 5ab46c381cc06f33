"""EM routing (document 004, Procedure 1): capsules fit Gaussians to the votes of the capsules below them.

Shapes: B images. Children (capsules below) are at X positions, with c types at each and poses of P numbers. Parents are
at p positions, with D types at each. A parent sees N = k c children, which are at the k positions of its receptive
field and sorted by position (`receptive_fields`). Votes are `[B, p, D, N, P]`. Assignments `[B, p, D, N]` are shares:
how much of each child each parent gets. A child's shares sum to 1 over all parents that see it. With
`competition: position`, they sum to 1 over the D parents at each position. With `first_shares: position`, this is so in
iteration 1 only. On a CPU with a compiler, `compiled_routing` computes the results of `route` faster. Tests compare
`route` with the procedure as printed, a loop over numbers (`tests/em_loop.py`), and `compiled_routing` with `route`.

The votes for one image are c D k p P numbers. Each iteration reads them twice. So `route` works on a few images at a
time, whose votes fit in the cache. Moments and log densities are computed by matrix products, which read votes and
their squares in one pass. On a CPU, the backward pass computes votes again, so that they need not be stored. In
training on a GPU, `route` works on all images at once, with sums instead of matrix products: from these sums,
`torch.compile` makes one kernel for each pass over the votes, and one for the votes' gradient.

If votes agree and are far from 0, a variance from moments is a small difference of large numbers. In single precision,
its rounding error would be large. So the unweighted mean of the votes for each parent is subtracted from the votes
first, and added to the parent's pose at the end. Except for rounding, this does not change the results.

With `activation: mdl`, M-steps follow the procedure as printed, but add a floor to variances and can have damping. The
authors' code has no factor 1/2 before log variances. So their costs are twice ours, and their lambda is half of ours. A
beta_u of 1 in their code is (1 + ln 2 pi) / 2 nats here, and a beta_a of 1 is -2,500 nats. An M-step uses only the
moments of votes. It gives each parent three coefficients: a constant, and the vectors "linear" and "quadratic" `[P]`.
For a vote V, the E-step computes from them

    log(density of V * activation of the parent) = constant + sum_h (linear_h V_h + quadratic_h V_h^2).

Variational Bayes (Ribeiro et al. 2020, `activation: bayes`) has a Dirichlet prior of the capsules' mixing proportions,
normal priors of poses, and Gamma or Wishart priors of precisions. As in Ribeiro's code, only the diagonals of the
precisions' posteriors are used, and activations depend on the mixing proportion times the entropy of a vote. Ribeiro's
code adds beta_u to this product, without effect, because batch norm removes constants. Here P beta_u is added to the
entropy, so that beta_u has an effect. Ribeiro's Wishart priors have P + 1 degrees of freedom (`nu0`). The latest
version of Ribeiro's code divides a child among the capsules of each position separately (here `competition: position`).
It also leaves mixing proportions out of the numerator of assignments. Here the numerator has them, as in the paper.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.systems.matrix_capsules.model.receptive_fields import ReceptiveFields
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams

_BYTES_AT_ONCE = {"cpu": 2**24, "cuda": 2**30}
"""Bytes of votes and their squares that `route` stores at a time, by type of device. On a CPU they fit in the cache."""
_LEAST_MASS = 1e-7
"""Added to a parent's assigned mass, which may be 0, so that divisions by it are finite (as in the authors' code)."""


@dataclass(frozen=True)
class Routing:
    """Settings of a layer's routing.

    Attributes:
        fields: receptive fields in the layer below.
        params: settings of the network.
        iterations: number of M-steps, at least 1.
        last: whether the parents are class capsules.
        offsets: `[k, P]`, added to the votes from each of the k positions (coordinate addition), or None.
    """

    fields: ReceptiveFields
    params: MatrixCapsulesModelParams
    iterations: int
    last: bool = False
    offsets: Tensor | None = None

    def first_shares(self, types: int) -> Tensor:
        """Assignments in iteration 1, `[p, k]`. They are equal for all `types` parent types and all child types."""
        children, params = self.fields.children, self.params
        alone = "position" in (params.competition, params.first_shares)
        return 1.0 / (types * (torch.ones_like(children) if alone else self.fields.counts[children]))

    def inverse_temperature(self, index: int) -> float:
        """The inverse temperature lambda in iteration `index`. The first iteration has index 0."""
        params = self.params
        limit = params.inverse_temperature * (params.class_inverse_temperature if self.last else 1.0)
        return limit * (1 - params.inverse_temperature_rate ** (index + 1))


@dataclass(frozen=True)
class Moments:
    """Moments of the votes for each parent. The weight of a vote is its assignment times its child's activation.

    Attributes:
        mass: sum of the weights, `[B, p, D]`.
        first: weighted sum of the votes, `[B, p, D, P]`.
        second: weighted sum of the votes' squares, `[B, p, D, P]`.
    """

    mass: Tensor
    first: Tensor
    second: Tensor


@dataclass(frozen=True)
class Parents:
    """The parent capsules after an M-step.

    Attributes:
        poses: `[B, p, D, P]`.
        activations: `[B, p, D]`, from 0 to 1. With batch norm, they are logits.
        constant, linear, quadratic: coefficients in the E-step, `[B, p, D]`, `[B, p, D, P]` and `[B, p, D, P]`.
    """

    poses: Tensor
    activations: Tensor
    constant: Tensor
    linear: Tensor
    quadratic: Tensor


class Step(NamedTuple):
    """One iteration of routing.

    Attributes:
        assignments: the share of each child that each parent gets, `[B, p, D, N]`. It is the input of the M-step.
        moments: moments of the differences between votes and their unweighted mean.
        parents: the result of the M-step. Its coefficients apply to these differences. Its poses include the mean.
    """

    assignments: Tensor
    moments: Moments
    parents: Parents


def route(
    poses: Tensor, activations: Tensor, transformations: Tensor, beta_a: Tensor, beta_u: Tensor, routing: Routing
) -> tuple[Tensor, Tensor]:
    """Poses `[B, p, D, P]` and activations `[B, p, D]` of the parents after the last iteration (see `Parents`).

    Args:
        poses: poses of the children, `[B, X, c, P]`.
        activations: activations of the children, from 0 to 1, `[B, X, c]`.
        transformations: `[k, c, P, D, P]`: position in the field, child type, pose element, parent type, vote element.
        beta_a, beta_u: parameters of each parent type (Procedure 1), `[D]`, in nats. beta_u is per element of a vote.
    """
    tensors = (poses, activations, transformations, beta_a, beta_u)
    fused = poses.is_cuda and torch.is_grad_enabled()
    return _fused()(*tensors, routing) if fused else _PlainRoute.apply(routing, *tensors)


@cache
def _fused() -> Callable[..., tuple[Tensor, Tensor]]:
    """`_last`, compiled into a few GPU kernels. It is compiled again for each new shape and `Routing`."""
    torch._dynamo.config.recompile_limit = 100
    return torch.compile(_last, fullgraph=True, dynamic=False)


class _PlainRoute(torch.autograd.Function):
    """Runs `_last` on a few images at a time. The backward pass runs it again on the same images, with autograd."""

    @staticmethod
    def forward(ctx, routing, poses, activations, *others):  # type: ignore[no-untyped-def]
        ctx.routing, ctx.count = routing, images_at_once(poses, others[0], routing)
        ctx.save_for_backward(poses, activations, *others)
        few = zip(poses.split(ctx.count), activations.split(ctx.count), strict=True)
        found = [_last(*each, *others, routing) for each in few]
        return tuple(torch.cat(each) for each in zip(*found, strict=True))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        poses, activations, *others = ctx.saved_tensors
        totals, found = [torch.zeros_like(each) for each in others], []
        few = (each.split(ctx.count) for each in (poses, activations, *gradients))
        for some_poses, some_activations, *grad_outputs in zip(*few, strict=True):
            inputs = [each.detach().requires_grad_() for each in (some_poses, some_activations, *others)]
            with torch.enable_grad():
                outputs = _last(*inputs, ctx.routing)
            grads = torch.autograd.grad(outputs, inputs, grad_outputs, materialize_grads=True)
            found.append(grads[:2])
            for total, each in zip(totals, grads[2:], strict=True):
                total += each
        return None, *(torch.cat(each) for each in zip(*found, strict=True)), *totals


def _last(
    poses: Tensor, activations: Tensor, transformations: Tensor, beta_a: Tensor, beta_u: Tensor, routing: Routing
) -> tuple[Tensor, Tensor]:
    parents = history(poses, activations, transformations, beta_a, beta_u, routing)[-1].parents
    return parents.poses, parents.activations


def cast_votes(poses: Tensor, transformations: Tensor, routing: Routing) -> Tensor:
    """Votes `[B, p, D, N, P]` of a few images, with offsets added."""
    votes, middle = _votes(poses, transformations, routing)
    return votes + middle.unsqueeze(-2)


def images_at_once(poses: Tensor, transformations: Tensor, routing: Routing) -> int:
    """Number of images whose votes are computed together."""
    votes = transformations.numel() // poses.shape[-1] * len(routing.fields.children)
    return max(_BYTES_AT_ONCE.get(poses.device.type, 2**30) // (2 * votes * poses.element_size()), 1)


def history(
    poses: Tensor, activations: Tensor, transformations: Tensor, beta_a: Tensor, beta_u: Tensor, routing: Routing
) -> list[Step]:
    """The steps of all iterations of `route`. All votes are kept in memory, so the images must be few."""
    votes, middle = _votes(poses, transformations, routing)
    # Votes and their squares, (B, p, D, N, 2 P), for matrix products; None for sums
    both = None if torch.compiler.is_compiling() else torch.cat([votes, votes.square()], -1)
    active = routing.fields.gather(activations).flatten(2).unsqueeze(2)  # (B, p, 1, N)
    B, p, D, N, _ = votes.shape
    even = routing.first_shares(D).to(votes).repeat_interleave(activations.shape[2], 1)  # (p, N)
    assignments = even.view(1, p, 1, N).expand(B, p, D, N)
    steps: list[Step] = []
    before = None
    for index in range(routing.iterations):
        if steps:
            parents = steps[-1].parents
            before, assignments = parents.poses, _share(_log_densities(votes, both, parents), routing)
        moments, inverse_temperature = _moments(votes, both, assignments * active), routing.inverse_temperature(index)
        parents = m_step(moments, before, beta_a, beta_u, inverse_temperature, -middle, routing.params)
        steps.append(Step(assignments, moments, parents))
    return [step._replace(parents=replace(step.parents, poses=step.parents.poses + middle)) for step in steps]


def _votes(poses: Tensor, transformations: Tensor, routing: Routing) -> tuple[Tensor, Tensor]:
    """Votes `[B, p, D, N, P]` minus their unweighted mean, and this mean `[B, p, D, P]`, which has no gradient."""
    patches = routing.fields.gather(poses)
    B, p, k, c, P = patches.shape
    D = transformations.shape[3]
    rows = patches.permute(2, 3, 0, 1, 4).reshape(k * c, B * p, P)
    whole = torch.bmm(rows, transformations.reshape(k * c, P, D * P)).view(k * c, B, p, D, P)
    middle = whole.detach().mean(0)
    votes = whole.permute(1, 2, 3, 0, 4) - middle.unsqueeze(-2)
    if routing.offsets is not None:
        offsets = routing.offsets.repeat_interleave(c, 0)  # (N, P)
        votes = votes + (offsets - offsets.mean(0))
        middle = middle + offsets.mean(0)
    return votes, middle


def _moments(votes: Tensor, both: Tensor | None, weights: Tensor) -> Moments:
    """Moments of votes `[B, p, D, N, P]` with weights `[B, p, D, N]`. `both` is as in `history`, or None."""
    if both is None:
        first, second = ((weights.unsqueeze(-1) * each).sum(-2) for each in (votes, votes.square()))
    else:
        N, numbers = both.shape[-2:]
        sums = torch.bmm(weights.view(-1, 1, N), both.view(-1, N, numbers)).view(*both.shape[:3], numbers)
        first, second = sums.chunk(2, -1)
    return Moments(weights.sum(-1), first, second)


def _log_densities(votes: Tensor, both: Tensor | None, parents: Parents) -> Tensor:
    """Log of the product of a vote's density and its parent's activation (bayes: mixing proportion), `[B, p, D, N]`."""
    if both is None:
        linear, quadratic = parents.linear.unsqueeze(-2), parents.quadratic.unsqueeze(-2)
        along = (votes * (linear + quadratic * votes)).sum(-1)
    else:
        vectors = torch.cat([parents.linear, parents.quadratic], -1)
        along = torch.bmm(both.flatten(0, 2), vectors.reshape(-1, both.shape[-1], 1)).view(both.shape[:-1])
    return along + parents.constant.unsqueeze(-1)


def _share(logits: Tensor, routing: Routing) -> Tensor:
    """Softmax of `logits [B, p, D, N]` over the parents among which a child is divided (`competition`)."""
    if routing.params.competition == "position":
        return logits.softmax(2)
    fields, by_place = routing.fields, (routing.fields.children.shape[1], -1)  # N -> (k, c)
    largest = fields.gather(fields.amax(logits.detach().amax(2).unflatten(-1, by_place)))
    powers = (logits - largest.flatten(2).unsqueeze(2)).exp()
    total = fields.gather(fields.sum(powers.sum(2).unflatten(-1, by_place)))
    return powers / total.flatten(2).unsqueeze(2)


def m_step(
    moments: Moments,
    before: Tensor | None,
    beta_a: Tensor,
    beta_u: Tensor,
    inverse_temperature: float,
    origin: Tensor,
    params: MatrixCapsulesModelParams,
) -> Parents:
    """Parents after the M-step of `params.activation`. With `mixing`, activations are shares of the layer's total mass.

    Args:
        before: poses of the previous iteration minus the votes' unweighted mean, `[B, p, D, P]`. None in iteration 1.
        beta_a, beta_u: `[D]`, as in `route`.
        inverse_temperature: lambda of this iteration.
        origin: the pose 0 minus the votes' unweighted mean, `[B, p, D, P]`.
    """
    if params.activation == "bayes":
        return _bayes(moments, beta_a, beta_u, origin, params)
    mass = moments.mass.unsqueeze(-1) + _LEAST_MASS
    mean = moments.first / mass
    damping = params.damping if before is not None or params.damped_first else 0.0
    before = origin if before is None else before
    poses = (1 - damping) * mean + damping * before
    # The second moment about the damped mean. Rounding may make it negative, so it is clamped.
    spread = moments.second - 2 * poses * moments.first + poses.square() * moments.mass.unsqueeze(-1)
    spread = spread.clamp_min(0) / mass
    variance = params.variance_floor + spread
    if params.activation == "mixing":
        total = moments.mass.flatten(1).sum(1).view(-1, *[1] * (moments.mass.dim() - 1))
        activations = moments.mass / total.clamp_min(_LEAST_MASS)
        log_activations = activations.clamp_min(torch.finfo(mass.dtype).tiny).log()
    else:
        cost = moments.mass * (poses.shape[-1] * beta_u + 0.5 * variance.log().sum(-1))
        logits = inverse_temperature * (beta_a - cost)
        activations, log_activations = logits.sigmoid(), torch.nn.functional.logsigmoid(logits)
    constant = log_activations - 0.5 * ((2 * math.pi * variance).log() + poses.square() / variance).sum(-1)
    return Parents(poses, activations, constant, poses / variance, -0.5 / variance)


def _bayes(
    moments: Moments, beta_a: Tensor, beta_u: Tensor, origin: Tensor, params: MatrixCapsulesModelParams
) -> Parents:
    """The M-step of variational Bayes, with posteriors in closed form. The prior mean of poses is `origin`. The logit
    of an activation is beta_a - exp(E ln pi) (P beta_u + H). Here pi is the mixing proportion of the capsule, and H is
    the expected entropy of a vote.
    """
    priors = params.bayes
    mass, size = moments.mass.unsqueeze(-1), moments.first.shape[-1]
    strength = priors.kappa0 + mass  # kappa
    mean = (moments.first + priors.kappa0 * origin) / strength
    shape = priors.nu0 / 2 + 0.5 * mass  # nu / 2
    scatter = moments.second + priors.kappa0 * origin.square() - strength * mean.square()
    rate = 0.5 / priors.psi0 + 0.5 * scatter.clamp_min(0)  # half the diagonal of Psi^-1
    share = priors.alpha0 + moments.mass
    if priors.shares_of == "layer":
        total = share.flatten(1).sum(1).view(-1, *[1] * (share.dim() - 1))
    else:
        total = share.sum(-1, keepdim=True)
    log_share = share.digamma() - total.digamma()  # E ln pi
    freedom = shape
    if priors.precisions == "wishart":
        freedom = shape - 0.5 * torch.arange(size, device=shape.device, dtype=shape.dtype)
    log_precision = (freedom.digamma() - rate.log()).sum(-1)  # E ln det Lambda
    precision = shape / rate
    entropy = 0.5 * (size * math.log(2 * math.pi * math.e) - log_precision)
    logits = beta_a - log_share.exp() * (size * beta_u + entropy)
    quadratic = -0.5 * precision
    constant = log_share + 0.5 * (log_precision - size * math.log(2 * math.pi))
    constant = constant - 0.5 * (1 / strength * size).squeeze(-1) + (quadratic * mean.square()).sum(-1)
    return Parents(mean, logits if params.batch_norm else logits.sigmoid(), constant, precision * mean, quadratic)
