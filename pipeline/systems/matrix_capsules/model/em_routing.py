"""EM routing (document 004, Procedure 1): capsules fit Gaussians to the votes of the capsules below them.

Shapes: B images; children at X positions below, c types each, poses of P numbers; parents at p positions, D types each,
each seeing N = k c children (k positions, `receptive_fields`). Votes `[B, p, D, N, P]`, assignments `[B, p, D, N]`. A
child divides itself among all parents, of every position, whose receptive fields it is in.

Routing is bound by memory, not by arithmetic: votes are c D k p P numbers an image, 16 times the assignments, and each
iteration asks twice for all of them. So `route` works on few images at a time, whose votes stay near the processor;
reads each vote and its square together, by matrix products that make moments and log densities; keeps nothing of them
for the way back, where it casts them anew; and writes their gradient once, as one product of the numbers and vectors
that the iterations leave. What happens to the moments is small, and left to autograd.

Moments lose what votes have in common: 24 bits are few for squares of votes that agree far from 0. So votes are given
from their plain mean for each parent, to which routing is indifferent, and poses get it back in the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pipeline.systems.matrix_capsules.model.m_steps import Moments, MStep, Parents
from pipeline.systems.matrix_capsules.model.receptive_fields import ReceptiveFields
from pipeline.systems.matrix_capsules.settings import Competition

_BYTES_AT_ONCE = {"cpu": 2**24, "cuda": 2**30}
"""Of votes and their squares at once. On a CPU: what its cache holds, and the allocator gives again without new pages.
"""


@dataclass(frozen=True)
class Routing:
    """How a layer routes.

    Attributes:
        fields: who sees whom.
        m_step: what parents make of votes.
        iterations: M-steps, at least 1.
        competition: parents that a child divides itself among: `all` that see it, or those of each `position` by itself
            (as some reimplementations have it: a child then gives itself whole to every position).
        offsets: added to votes by place in the receptive field, `[k, P]` (coordinate addition); None for none.
        first: at first a child divides itself evenly, among all parents that see it, or among those of each position by
            itself (as in the authors' code).
    """

    fields: ReceptiveFields
    m_step: MStep
    iterations: int
    competition: Competition = "all"
    offsets: Tensor | None = None
    first: Competition = "all"

    def first_shares(self, types: int) -> Tensor:
        """Of each child at `k` for a parent at `p` of so many types, in the first iteration, `[p, k]`."""
        children, alone = self.fields.children, "position" in (self.competition, self.first)
        return 1.0 / (types * (torch.ones_like(children) if alone else self.fields.counts[children]))


def route(
    poses: Tensor, activations: Tensor, transformations: Tensor, beta_a: Tensor, beta_u: Tensor, routing: Routing
) -> tuple[Tensor, Tensor]:
    """Poses `[B, p, D, P]` and activations `[B, p, D]` of the parents. Gradients flow through every iteration.

    Args:
        poses: of the children, `[B, X, c, P]`.
        activations: of the children, from 0 to 1, `[B, X, c]`.
        transformations: of each place in a receptive field and type, to each parent type, `[k, c, P, D, P]`.
        beta_a, beta_u: of each parent type, `[D]`.
    """
    found: tuple[Tensor, Tensor] = _Route.apply(poses, activations, transformations, beta_a, beta_u, routing)
    return found


@torch.no_grad()
def cast_votes(poses: Tensor, transformations: Tensor, routing: Routing) -> Tensor:
    """Votes `[B, p, D, N, P]` of these few images, offsets added."""
    both, middle = _squared(routing.fields.gather(poses), transformations, routing.offsets, _Buffers())
    return both[..., : poses.shape[-1]] + middle.unsqueeze(-2)


@torch.no_grad()
def history(
    poses: Tensor, activations: Tensor, transformations: Tensor, beta_a: Tensor, beta_u: Tensor, routing: Routing
) -> list[Step]:
    """Every iteration of `route` for these few images: for studies and tests. Coefficients, and moments, are of votes
    from their plain mean.
    """
    patches, gathered = routing.fields.gather(poses), routing.fields.gather(activations)
    votes, middle = _squared(patches, transformations, routing.offsets, _Buffers())
    steps = _forward(votes, gathered.flatten(2), beta_a, beta_u, routing, middle)
    return [step._replace(parents=replace(step.parents, poses=step.parents.poses + middle)) for step in steps]


class Step(NamedTuple):
    """One iteration.

    Attributes:
        assignments: of children to parents that the M-step was given, `[B, p, D, N]`.
        moments: of the votes.
        parents: what the M-step made of them.
    """

    assignments: Tensor
    moments: Moments
    parents: Parents


class _Route(torch.autograd.Function):
    """The loop with its gradient, a few images at a time."""

    @staticmethod
    def forward(ctx, poses, activations, transformations, beta_a, beta_u, routing):  # type: ignore[no-untyped-def]
        ctx.routing = routing
        ctx.save_for_backward(poses, activations, transformations, beta_a, beta_u)
        found, buffers = [], _Buffers()
        count = images_at_once(poses, transformations, routing)
        for some, active in zip(poses.split(count), activations.split(count), strict=True):
            patches, gathered = routing.fields.gather(some), routing.fields.gather(active).flatten(2)
            votes, middle = _squared(patches, transformations, routing.offsets, buffers)
            last = _forward(votes, gathered, beta_a, beta_u, routing, middle)[-1].parents
            found.append((last.poses + middle, last.activations))
        return tuple(torch.cat(each) for each in zip(*found, strict=True))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_poses, grad_activations):  # type: ignore[no-untyped-def]
        poses, activations, transformations, beta_a, beta_u = ctx.saved_tensors
        routing, fields = ctx.routing, ctx.routing.fields
        count = images_at_once(poses, transformations, routing)
        totals = [torch.zeros_like(each) for each in (transformations, beta_a, beta_u)]
        found, buffers = [], _Buffers()
        for some, active, *gradients in zip(
            *(each.split(count) for each in (poses, activations, grad_poses, grad_activations)), strict=True
        ):
            patches, gathered = fields.gather(some), fields.gather(active).flatten(2)
            votes, middle = _squared(patches, transformations, routing.offsets, buffers)
            grad_votes, grad_gathered, grad_betas = _backward(
                votes, gathered, beta_a, beta_u, routing, middle, gradients, buffers
            )
            grad_patches = _through_votes(patches, transformations, grad_votes, totals[0], buffers)
            for total, each in zip(totals[1:], grad_betas, strict=True):
                total += each
            found.append((fields.sum(grad_patches), fields.sum(grad_gathered.unflatten(2, patches.shape[2:4]))))
        grad_of_poses, grad_of_activations = (torch.cat(each) for each in zip(*found, strict=True))
        return grad_of_poses, grad_of_activations, *totals, None


def images_at_once(poses: Tensor, transformations: Tensor, routing: Routing) -> int:
    """Images whose votes are cast together."""
    votes = transformations.numel() // poses.shape[-1] * len(routing.fields.children)
    return max(_BYTES_AT_ONCE.get(poses.device.type, 2**30) // (2 * votes * poses.element_size()), 1)


class _Buffers:
    """Memory used again for every few images: pages that are new to the process cost as much as the arithmetic."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def get(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of that shape, whose content is anything; what `name` was got for before is overwritten."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != shape:
            kept = self._kept[name] = like.new_empty(shape)
        return kept


# ---- votes


def _squared(
    patches: Tensor, transformations: Tensor, offsets: Tensor | None, buffers: _Buffers
) -> tuple[Tensor, Tensor]:
    """Votes of `patches [B, p, k, c, P]` from their plain mean, and the squares of that, `[B, p, D, N, 2 P]`; and the
    plain mean `[B, p, D, P]`.
    """
    B, p, k, c, P = patches.shape
    D = transformations.shape[3]
    rows = patches.permute(2, 3, 0, 1, 4).reshape(k * c, B * p, P)
    votes = buffers.get("flat", (k * c, B * p, D * P), patches)
    torch.bmm(rows, transformations.reshape(k * c, P, D * P), out=votes)
    votes = votes.view(k * c, B, p, D, P)
    both = buffers.get("both", (B, p, D, k * c, 2 * P), patches)
    middle = votes.mean(0)
    torch.sub(votes.permute(1, 2, 3, 0, 4), middle.unsqueeze(-2), out=both[..., :P])
    if offsets is not None:
        all_offsets = offsets.repeat_interleave(c, 0)  # (N, P)
        both[..., :P] += all_offsets - all_offsets.mean(0)
        middle = middle + all_offsets.mean(0)
    torch.mul(both[..., :P], both[..., :P], out=both[..., P:])
    return both, middle


def _through_votes(
    patches: Tensor, transformations: Tensor, grad_votes: Tensor, total: Tensor, buffers: _Buffers
) -> Tensor:
    """The gradient by the patches, from that by votes `[B, p, D, N, P]`; that by the transformations joins `total`."""
    B, p, k, c, P = patches.shape
    D = transformations.shape[3]
    flat = buffers.get("flat", (k * c, B * p, D * P), patches)
    flat.view(k * c, B, p, D, P).copy_(grad_votes.permute(3, 0, 1, 2, 4))
    rows = patches.permute(2, 3, 0, 1, 4).reshape(k * c, B * p, P)
    total.view(k * c, P, D * P).baddbmm_(rows.transpose(1, 2), flat)
    grad_rows = torch.bmm(flat, transformations.reshape(k * c, P, D * P).transpose(1, 2))
    return grad_rows.view(k, c, B, p, P).permute(2, 3, 0, 1, 4)


# ---- the loop


def _moments(votes: Tensor, weights: Tensor) -> Moments:
    B, p, D, N, both = votes.shape
    sums = torch.bmm(weights.view(-1, 1, N), votes.view(-1, N, both)).view(B, p, D, both)
    first, second = sums.chunk(2, -1)
    return Moments(weights.sum(-1), first, second)


def _along(votes: Tensor, vectors: Tensor) -> Tensor:
    """Products of votes and squares with the vector `[B, p, D, 2 P]` of the capsule they are for: `[B, p, D, N]`."""
    return torch.bmm(votes.flatten(0, 2), vectors.reshape(-1, votes.shape[-1], 1)).view(votes.shape[:-1])


def _coefficients(parents: Parents) -> Tensor:
    return torch.cat([parents.linear, parents.quadratic], -1)


def _forward(
    votes: Tensor, active: Tensor, beta_a: Tensor, beta_u: Tensor, routing: Routing, middle: Tensor
) -> list[Step]:
    """All iterations, votes and poses from `middle`; `active [B, p, N]` are the children's activations as the parents
    see them.
    """
    assignments = _first_assignments(votes, routing)
    steps: list[Step] = []
    for index in range(routing.iterations):
        if steps:
            before = steps[-1].parents
            logits = _along(votes, _coefficients(before)) + before.constant.unsqueeze(-1)
            assignments = _share(logits, routing)
        moments = _moments(votes, assignments * active.unsqueeze(2))
        poses = steps[-1].parents.poses if steps else None
        steps.append(Step(assignments, moments, routing.m_step(moments, poses, beta_a, beta_u, index, -middle)))
    return steps


def _first_assignments(votes: Tensor, routing: Routing) -> Tensor:
    """Equal shares for the parents of a child, `[B, p, D, N]`."""
    B, p, D, N, _ = votes.shape
    shares = routing.first_shares(D).to(votes)
    return shares.repeat_interleave(N // shares.shape[1], -1).view(1, p, 1, N).expand(B, p, D, N)


def _share(logits: Tensor, routing: Routing) -> Tensor:
    """Softmax of `logits [B, p, D, N]` over the parents of every child."""
    if routing.competition == "position":
        return logits.softmax(2)
    fields, (B, p, _, N) = routing.fields, logits.shape
    k = fields.children.shape[1]

    def seen(values: Tensor) -> Tensor:  # (B, p, N) -> (B, p, k, c)
        return values.view(B, p, k, N // k)

    largest = fields.gather(fields.amax(seen(logits.amax(2)))).view(B, p, 1, N)
    powers = (logits - largest).exp()
    return powers / fields.gather(fields.sum(seen(powers.sum(2)))).view(B, p, 1, N)


def _through_share(shares: Tensor, gradient: Tensor, routing: Routing) -> Tensor:
    """The gradient by the logits of `shares`, from that by the shares."""
    product = shares * gradient
    if routing.competition == "position":
        return product - shares * product.sum(2, keepdim=True)
    fields, (B, p, _, N) = routing.fields, shares.shape
    k = fields.children.shape[1]
    total = fields.gather(fields.sum(product.sum(2).view(B, p, k, N // k))).view(B, p, 1, N)
    return product - shares * total


def _backward(
    votes: Tensor,
    active: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    routing: Routing,
    middle: Tensor,
    gradients: list[Tensor],
    buffers: _Buffers,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Gradients by the votes `[B, p, D, N, P]`, by the activations of children as seen, `[B, p, N]`, and by the betas.

    An iteration makes moments, sum_i w_i (V_i, V_i^2), and log densities, (V_i, V_i^2) . coefficients. On the way back
    each leaves, in the gradient by (V_i, V_i^2), a number times a vector: w_i times the gradient by the moments, and
    the gradient by the log density times the coefficients. They are summed at the end, in one product.
    """
    steps = _forward(votes, active, beta_a, beta_u, routing, middle)
    numbers: list[Tensor] = []
    vectors: list[Tensor] = []
    grad_active = torch.zeros_like(active)
    grad_betas = [torch.zeros_like(beta_a), torch.zeros_like(beta_u)]
    outputs = _OutputGradients(*gradients)
    for index in reversed(range(routing.iterations)):
        step = steps[index]
        before = steps[index - 1].parents.poses if index else None
        inputs = _through_m_step(step.moments, before, (beta_a, beta_u), index, routing, -middle, outputs)
        grad_mass, grad_sums = inputs[0], torch.cat(inputs[1:3], -1)
        for total, each in zip(grad_betas, inputs[4:], strict=True):
            total += each
        grad_weights = _along(votes, grad_sums) + grad_mass.unsqueeze(-1)
        numbers.append(step.assignments * active.unsqueeze(2))
        vectors.append(grad_sums)
        grad_active += (grad_weights * step.assignments).sum(2)
        if index == 0:
            break
        grad_logits = _through_share(step.assignments, grad_weights * active.unsqueeze(2), routing)
        sums = _moments(votes, grad_logits)
        outputs = _OutputGradients(
            poses=inputs[3], constant=grad_logits.sum(-1), coefficients=torch.cat([sums.first, sums.second], -1)
        )
        numbers.append(grad_logits)
        vectors.append(_coefficients(steps[index - 1].parents))
    grad_both = buffers.get("gradient", votes.shape, votes)
    torch.bmm(
        torch.stack(numbers, -1).flatten(0, 2), torch.stack(vectors, -2).flatten(0, 2), out=grad_both.flatten(0, 2)
    )
    grad_votes, grad_squares = grad_both.chunk(2, -1)
    grad_votes.addcmul_(votes[..., : grad_votes.shape[-1]], grad_squares, value=2)
    return grad_votes, grad_active, grad_betas


class _OutputGradients(NamedTuple):
    """Gradients by what an M-step gives; None where nothing depends on it."""

    poses: Tensor
    activations: Tensor | None = None
    constant: Tensor | None = None
    coefficients: Tensor | None = None


def _through_m_step(
    moments: Moments,
    before: Tensor | None,
    betas: tuple[Tensor, Tensor],
    index: int,
    routing: Routing,
    origin: Tensor,
    gradients: _OutputGradients,
) -> list[Tensor]:
    """Gradients by mass, first and second moments, the poses before (zeros for none) and the betas."""
    with torch.enable_grad():
        inputs = [moments.mass, moments.first, moments.second]
        inputs += [before if before is not None else torch.zeros_like(moments.first), *betas]
        inputs = [each.detach().requires_grad_() for each in inputs]
        mass, first, second, poses, *leaves = inputs
        found = routing.m_step(
            Moments(mass, first, second), poses if before is not None else None, leaves[0], leaves[1], index, origin
        )
        outputs = [found.poses, found.activations, found.constant, _coefficients(found)]
        known = [
            (output, gradient) for output, gradient in zip(outputs, gradients, strict=True) if gradient is not None
        ]
        results = torch.autograd.grad(
            [output for output, _ in known], inputs, [gradient for _, gradient in known], materialize_grads=True
        )
    return list(results)
