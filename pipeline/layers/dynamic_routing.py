"""Routing by agreement (document 001, equations 1-2; Sabour et al. 2017): capsules vote for those in the layer above.

Shapes: B images, m capsules of d numbers, and n capsules of D numbers in the layer above. Transformations are
`[m, d, n, D]`, votes `[B, n, m, D]`, logits and weights `[B, n, m]`.

Routing is limited by memory bandwidth: every iteration reads all votes twice. `route` therefore works on so few images
at a time that their votes fit in the cache. The backward pass computes votes again instead of storing them. The
gradient with respect to votes is a sum over iterations. One matrix product computes it, without storing its terms.
"""

import torch
from torch import Tensor

_BYTES_AT_ONCE = {"cpu": 2**23, "cuda": 2**30}
"""Bytes of votes that `route` stores at a time. On a CPU, they fit in the cache."""


def squash(vectors: Tensor) -> Tensor:
    """Vectors `[..., D]` of length r, shortened to length r^2 / (1 + r^2) < 1 (document 001, section 2)."""
    # Squared lengths of 0 are replaced by the smallest normal number, because the root has no gradient at 0.
    squares = vectors.square().sum(-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
    return vectors * (squares.sqrt() / (1 + squares))


def unweighted_sum(capsules: Tensor, transformations: Tensor) -> Tensor:
    """Sums `[B, n, D]` of the votes of `capsules [B, m, d]`, by one matrix product that stores no votes."""
    n, D = transformations.shape[2:]
    return (capsules.flatten(1) @ transformations.flatten(0, 1).flatten(1)).unflatten(-1, (n, D))


def cast_votes(capsules: Tensor, transformations: Tensor) -> Tensor:
    """Votes `[B, n, m, D]` of `capsules [B, m, d]` for the capsules of the layer above."""
    votes = torch.bmm(capsules.transpose(0, 1), transformations.flatten(2))  # (m, B, n D)
    return votes.unflatten(-1, transformations.shape[2:]).permute(1, 2, 0, 3).contiguous()


def weighted_sum(weights: Tensor, votes: Tensor) -> Tensor:
    """Sums `[B, n, D]` of votes times weights, over the capsules that vote."""
    return (weights.unsqueeze(-2) @ votes).squeeze(-2)


def products(votes: Tensor, capsules: Tensor) -> Tensor:
    """Scalar products `[B, n, m]` of votes with `capsules [B, n, D]` of the layer above."""
    return (votes @ capsules.unsqueeze(-1)).squeeze(-1)


def agreement(votes: Tensor, updates: int) -> Tensor:
    """Weights `[B, n, m]` after `updates` updates: the softmax of logits over the n capsules. Logits start at zero. An
    update computes the n capsules with the current weights, and adds their scalar products with votes to the logits.
    """
    logits = votes.new_zeros(votes.shape[:3])
    for _ in range(updates):
        logits = logits + products(votes, squash(weighted_sum(logits.softmax(1), votes)))
    return logits.softmax(1)


def route(capsules: Tensor, transformations: Tensor, updates: int) -> Tensor:
    """Weighted sums `[B, n, D]` of the votes of `capsules [B, m, d]`, after `updates` updates of the weights.
    Gradients flow through every iteration.
    """
    sums: Tensor = _DynamicRoute.apply(capsules, transformations, updates)
    return sums


class _DynamicRoute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, capsules, transformations, updates):  # type: ignore[no-untyped-def]
        ctx.updates = updates
        ctx.save_for_backward(capsules, transformations)
        sums = []
        for some in capsules.split(_images_at_once(capsules, transformations)):
            votes = cast_votes(some, transformations)
            sums.append(weighted_sum(agreement(votes, updates), votes))
        return torch.cat(sums)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        capsules, transformations = ctx.saved_tensors
        count, learnt = _images_at_once(capsules, transformations), ctx.needs_input_grad[1]
        by_capsule, total = [], torch.zeros_like(transformations.flatten(2)) if learnt else None
        for some, grad_some in zip(capsules.split(count), gradient.split(count), strict=True):
            grad_votes = _gradient_of_votes(cast_votes(some, transformations), grad_some, ctx.updates)
            flat = grad_votes.permute(2, 0, 1, 3).flatten(2)  # (m, B, n D)
            by_capsule.append(torch.bmm(flat, transformations.flatten(2).transpose(1, 2)).transpose(0, 1))
            if total is not None:
                total = total + torch.bmm(some.permute(1, 2, 0), flat)
        return torch.cat(by_capsule), None if total is None else total.view_as(transformations), None


def _images_at_once(capsules: Tensor, transformations: Tensor) -> int:
    m, _, n, D = transformations.shape
    return max(_BYTES_AT_ONCE.get(capsules.device.type, 2**30) // (m * n * D * capsules.element_size()), 1)


def _gradient_of_votes(votes: Tensor, gradient: Tensor, updates: int) -> Tensor:
    """Gradient `[B, n, m, D]` with respect to votes, from `gradient [B, n, D]` with respect to the last weighted sums.

    Let i be a capsule that votes. From logits a, an iteration computes weights c, the softmax over the capsules above.
    Each of these has s = sum_i c_i votes_i and v = squash(s). The iteration then adds the scalar product of votes_i
    and v to a_i. Let dx be the gradient for x: each iteration adds c_i ds (via s) and da_i v (via a_i) to dvotes_i.
    """
    logits, weights, sums = votes.new_zeros(votes.shape[:3]), [], []
    for _ in range(updates):
        weights.append(logits.softmax(1))
        sums.append(weighted_sum(weights[-1], votes))
        logits = logits + products(votes, squash(sums[-1]))
    last = logits.softmax(1)
    numbers, vectors = [last], [gradient]
    grad_logits = torch.zeros_like(logits)
    for weight, total in zip(reversed(weights), reversed(sums), strict=True):
        grad_weights = products(votes, vectors[-1])
        grad_logits = grad_logits + last * (grad_weights - (last * grad_weights).sum(1, keepdim=True))  # via softmax
        numbers += [grad_logits, weight]
        vectors += [squash(total), _through_squash(total, weighted_sum(grad_logits, votes))]
        last = weight
    return torch.stack(numbers, -2).transpose(-1, -2) @ torch.stack(vectors, -2)


def _through_squash(vectors: Tensor, gradient: Tensor) -> Tensor:
    """Gradient with respect to vectors x `[..., D]`. `gradient` is with respect to squash(x) = x |x| / (1 + |x|^2)."""
    squares = vectors.square().sum(-1, keepdim=True).clamp_min(torch.finfo(vectors.dtype).tiny)
    along = (vectors * gradient).sum(-1, keepdim=True)
    return (squares.sqrt() * gradient + (1 - squares) / (1 + squares) * along / squares.sqrt() * vectors) / (
        1 + squares
    )
