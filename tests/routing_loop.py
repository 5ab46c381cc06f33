"""Routing by agreement as a loop over numbers, written from the equations; and a network for which it matters."""

from __future__ import annotations

from typing import Any

import torch
from small import SIZE, SMALL_CAPSNET
from torch import Tensor

from pipeline.systems.capsnet.model.capsnet import CapsNet
from pipeline.systems.capsnet.settings import CapsNetModelParams


def capsnet(seed: int = 0, **changes: Any) -> CapsNet:
    """Not trained, with a middle layer, and with capsules so long that weights differ."""
    torch.manual_seed(seed)
    params = CapsNetModelParams.model_validate({**SMALL_CAPSNET, "middle": 4, **changes})
    net = CapsNet(params, SIZE).requires_grad_(False).eval()
    net.second.weight *= 5
    for layer in (net.middle, net.last):
        if layer is not None:
            layer.transformations *= 8
    return net


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
