"""Class probabilities from those of pairs of classes: pairwise coupling.

The second method of Wu, Lin and Weng (2004), "Probability estimates for multi-class classification by pairwise
coupling", which LIBSVM uses: of the probabilities p that sum to one, those that minimise

    sum_i sum_{j != i} (r_ji p_i - r_ij p_j)^2,        r_ij = P(y = i | x, y is i or j)

The minimum is 0 if and only if some p has these pairwise probabilities, r_ij = p_i / (p_i + p_j), and then it is p.
"""

from __future__ import annotations

import torch
from torch import Tensor

ELEMENTS = 1 << 22
"""Elements of the matrices that are solved together."""


def couple(pairs: Tensor) -> Tensor:
    """Probabilities `[n, m]` of m classes from those of their pairs: r_ij is `pairs[:, i, j]`, `[n, m, m]`.

    The diagonal is ignored; r_ij + r_ji = 1. Rows sum to one. Computed in float64, returned in the dtype of `pairs`.
    """
    rows = max(1, ELEMENTS // (pairs.shape[-1] + 1) ** 2)
    return torch.cat([_minimum(block.double()) for block in pairs.split(rows)]).to(pairs.dtype)


def _minimum(pairs: Tensor) -> Tensor:
    """The minimum by its linear equations: Q p + b = 0 with one multiplier b for sum(p) = 1.

    No p is negative at the minimum, as Wu et al. show, so this need not be a condition.
    """
    n, m = pairs.shape[:2]
    equations = torch.ones(n, m + 1, m + 1, dtype=pairs.dtype, device=pairs.device)
    against = pairs.mT  # r_ji
    Q = equations[:, :m, :m]
    torch.mul(against, -pairs, out=Q)
    squares = against.square()
    squares.diagonal(dim1=1, dim2=2).zero_()
    Q.diagonal(dim1=1, dim2=2).copy_(squares.sum(-1))
    equations[:, m, m] = 0
    ones = torch.zeros(n, m + 1, 1, dtype=pairs.dtype, device=pairs.device)
    ones[:, m] = 1
    found = torch.linalg.solve(equations, ones)[:, :m, 0].clamp_min(0)  # below 0 only by rounding
    return found / found.sum(-1, keepdim=True)
