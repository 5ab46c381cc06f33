"""Capsule regression (Saul 2021, document 002): the lengths of hidden vectors determine the class probabilities.

Each of m classes has a capsule. The capsule of class j has weights W_j `[d, p]`. For an input x, its hidden vector h_j
is Gaussian with mean W_j x and unit variance (equation 2; other variances add no generality, equations 20-21). Then

    P(y = j | h) = ||h_j||^2 / sum_i ||h_i||^2                                              (equation 3)

With D = m d, s = D / 2 and beta = 1/2 sum_i ||W_i x||^2 (sums are over all m classes), three closed forms follow:

    P(y = j | x)       = l0 ||W_j x||^2 / (2 beta) + (1 - l0) d / D                           (equation 16)
    Q_i(y = j | x)     = l1 ||W_j x||^2 / (2 beta) + (1 - l1) (2 [i = j] + d) / (2 + D)       (equation 18)
    E[h_i | x, y = j]  = Q_i(y = j | x) / P(y = j | x)  W_i x                               (equation 19)

where l0 = I_s(beta) and l1 = I_{s+1}(beta) (equations 13-14, function `interpolation`), and [i = j] is 1 if i = j, else
0. Like P, Q_i is a distribution over the classes j. It is P in a model where h_i has two more dimensions of mean 0.

Shapes: n inputs of p numbers, m capsules with hidden vectors of d numbers. Weights are `[m, d, p]`.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

NODES = 1 << 15
"""Number of intervals of an `InterpolationTable`."""


def interpolation(beta: Tensor, s: float) -> tuple[Tensor, Tensor]:
    """`I_s` and `I_{s+1}` at `beta`, by the document's recursions over the order s (appendix A.1).

    I_s(beta) = beta exp(-beta) int_0^1 rho^s exp(rho beta) drho. The forward recursion (equation 33) is stable for beta
    above s, the backward recursion (equation 35) for beta below s. The backward recursion starts from the mean of
    the bounds in equation 34, at an order high enough for a relative error of 1e-12 (in the document: at order s + 64).

    Args:
        beta: nonnegative numbers, in any shape.
        s: half the number of hidden variables: 1, 3/2, 2, ... Half-integers (3/2, ...) need SciPy's Dawson function.

    Returns:
        two tensors of the shape of `beta`, in [0, 1).
    """
    forward, backward = _forward(beta.clamp_min(s), s), _backward(beta.clamp_max(s), s)
    above = beta > s
    return torch.where(above, forward[0], backward[0]), torch.where(above, forward[1], backward[1])


def _forward(beta: Tensor, s: float) -> tuple[Tensor, Tensor]:
    if float(s).is_integer():
        order, value = 0.0, -torch.expm1(-beta)
    else:
        from scipy.special import dawsn

        root = beta.double().cpu().sqrt().numpy()
        order, value = -0.5, torch.from_numpy(np.asarray(2 * root * dawsn(root))).to(beta)
    while order < s:
        order += 1
        value = 1 - order / beta * value
    return value, 1 - (s + 1) / beta * value


def _backward(beta: Tensor, s: float) -> tuple[Tensor, Tensor]:
    # A step from order k to k - 1 multiplies the error by beta / k, at most s / k. `gap` is the product of all s / k.
    order, gap = s + 1, 1.0
    while gap > 1e-12:
        order += 1
        gap *= s / order
    value = 0.5 * beta * (1 / (beta + order + 1) + 1 / (beta + order))
    while order > s + 1:
        value = beta / order * (1 - value)
        order -= 1
    return beta / (s + 1) * (1 - value), value


class InterpolationTable:
    """`I_s` and `I_{s+1}` for one s, by linear interpolation in a table. In float64, errors are at most 1e-9.

    The table's nodes are equally spaced in u = beta / (beta + s + 1). I_s and I_{s+1} are smooth in u on all of [0, 1].
    """

    def __init__(self, s: float, dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        self.width = s + 1
        u = torch.arange(NODES, dtype=torch.float64) / NODES
        values = torch.stack([*interpolation(self.width * u / (1 - u), s)], dim=1)
        values = torch.cat([values, torch.ones(1, 2, dtype=torch.float64)])
        # A row has I_s and I_{s+1} at a node, and their differences to the next node. One look-up gives all four.
        self.nodes = torch.cat([values[:-1], values.diff(dim=0)], dim=1).to(device, dtype)

    def __call__(self, beta: Tensor) -> tuple[Tensor, Tensor]:
        """`I_s` and `I_{s+1}` at `beta`. This is faster than `interpolation`."""
        place = (beta / (beta + self.width)).mul_(NODES)
        node = place.long().clamp_max_(NODES - 1)
        low, high, rise, rise_of_high = self.nodes.index_select(0, node.flatten()).view(*beta.shape, 4).unbind(-1)
        place -= node
        return torch.addcmul(low, rise, place), torch.addcmul(high, rise_of_high, place)


def prior_means(W: Tensor, X: Tensor) -> Tensor:
    """The prior means E[h_j | x] = W_j x, `[n, m, d]`, for inputs `X [n, p]` and weights `W [m, d, p]`."""
    return (X @ W.flatten(0, 1).T).unflatten(1, W.shape[:2])


def class_probabilities(lengths: Tensor, size: int, l0: Tensor) -> Tensor:
    """P(y | x) `[..., m]` (equation 16), from squared `lengths` ||W_j x||^2 `[..., m]`, the `size` d and `l0 [...]`."""
    share = lengths / lengths.sum(-1, keepdim=True).clamp_min(torch.finfo(lengths.dtype).tiny)
    return l0.unsqueeze(-1) * share + (1 - l0).unsqueeze(-1) * size / (lengths.shape[-1] * size)


def posterior_means(W: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Posterior means E[h | x, y] `[n, m, d]` (equations 18-19), for inputs `X [n, p]`, classes `y [n]` and weights
    `W [m, d, p]`. Use this function only for small n, because the result has n m d numbers. EM does not use it.
    """
    m, d, _ = W.shape
    D = m * d
    prior = prior_means(W, X)
    lengths = prior.square().sum(-1)
    l0, l1 = interpolation(lengths.sum(-1) / 2, D / 2)
    target = torch.nn.functional.one_hot(y, m).to(X)
    share = lengths / lengths.sum(-1, keepdim=True).clamp_min(torch.finfo(X.dtype).tiny)
    of_y = (l1 * (share * target).sum(-1)).unsqueeze(-1)
    Q = of_y + (1 - l1).unsqueeze(-1) * (2 * target + d) / (2 + D)
    P = (class_probabilities(lengths, d, l0) * target).sum(-1, keepdim=True)
    return (Q / P).unsqueeze(-1) * prior


def predict_probabilities(W: Tensor, X: Tensor) -> Tensor:
    """P(y | x) `[n, m]`, for inputs `X [n, p]` and weights `W [m, d, p]`, without an `InterpolationTable`."""
    lengths = prior_means(W, X).square().sum(-1)
    m, d, _ = W.shape
    l0, _ = interpolation(lengths.sum(-1) / 2, m * d / 2)
    return class_probabilities(lengths, d, l0)


def subspace_start(moment: Tensor, size: int, classes: Sequence[int]) -> Tensor:
    """A capsule's initial weights `[size, p]` (equation 28). The rows are the leading eigenvectors of `moment [p, p]`
    (float64), each divided by sqrt(size * eigenvalue). `moment` is the mean of x x^T over the inputs x of the capsule's
    `classes`. Raises `ValueError` if these inputs span fewer than `size` dimensions. The message names `classes`.
    """
    values, vectors = torch.linalg.eigh(moment)
    values, vectors = values.flip(0)[:size], vectors.flip(1)[:, :size]
    least = float(values[0]) * len(moment) * torch.finfo(moment.dtype).eps
    rank = int((values > max(least, 0.0)).sum())
    if rank < size:
        named = f"class{'es' * (len(classes) > 1)} {', '.join(map(str, classes))}"
        raise ValueError(f"{named}: the inputs span {rank} dimensions, fewer than the capsule's size {size}")
    # An eigenvector's sign is arbitrary. For reproducible starts, its element of largest magnitude is made positive.
    signs = vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
    return (vectors * signs / (math.sqrt(size) * values.sqrt())).T
