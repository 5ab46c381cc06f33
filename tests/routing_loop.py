"""Routing by agreement as a loop over numbers, written from the equations."""

from __future__ import annotations

import torch
from torch import Tensor


def by_the_letter(capsules: Tensor, transformations: Tensor, sums: int) -> Tensor:
    """Procedure 1 of Sabour et al. with `sums` iterations, before the last squash: one number after the other."""
    B, m, _ = capsules.shape
    n, D = transformations.shape[2:]
    result = torch.zeros(B, n, D, dtype=capsules.dtype)
    for image in range(B):
        votes = [[capsules[image, i] @ transformations[i, :, j] for j in range(n)] for i in range(m)]
        b = torch.zeros(m, n, dtype=capsules.dtype)
        for _ in range(sums):
            s = []
            for j in range(n):
                c = [b[i, j].exp() / b[i].exp().sum() for i in range(m)]
                s.append(sum((c[i] * votes[i][j] for i in range(m)), torch.zeros(D, dtype=capsules.dtype)))
            v = [x * x.norm() ** 2 / (1 + x.norm() ** 2) / x.norm() for x in s]
            for i in range(m):
                for j in range(n):
                    b[i, j] += votes[i][j] @ v[j]
        result[image] = torch.stack(s)
    return result
