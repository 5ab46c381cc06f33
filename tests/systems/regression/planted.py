"""Small classification problems with structure: each class near a plane of its own."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.systems.regression.model.expectation_maximisation import Problems


def planted(n: int = 90, p: int = 5, classes: int = 3, noise: float = 0.3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Inputs `[n, p]` near planes, one for each class, and their classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    planes = torch.randn(classes, 2, p, generator=generator, dtype=torch.float64)
    at = torch.randn(n, 1, 2, generator=generator, dtype=torch.float64)
    X = (at @ planes[y]).squeeze(1) + noise * torch.randn(n, p, generator=generator, dtype=torch.float64)
    return X, y


def step(problems: Problems, W: Tensor, threshold: float = 0.0) -> tuple[Tensor, Tensor]:
    """New weights of all problems, and the log-likelihoods of the old."""
    which = torch.arange(len(W))
    found = problems.passed(W, which, torch.full((len(W),), threshold, dtype=W.dtype), problems.examples)
    return problems.update(found.moments, which), found.log_likelihood


def fixed_point(problems: Problems, W: Tensor) -> Tensor:
    """Where EM leads from `W`, by EM with momentum (equation 27), which takes a tenth of the iterations."""
    previous = W
    for _ in range(600):
        W, previous = step(problems, W)[0] + 0.9 * (W - previous), W
    return W
