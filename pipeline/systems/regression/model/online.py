"""Online and incremental EM for capsule regression, which document 002 leaves open (its section 4).

Both keep what the M-step needs, moments of the inputs and of the posterior means, and update them batch by batch:

- Incremental EM (Neal and Hinton 1998) keeps the moments of every batch of a data set and replaces those of one batch
  at a time, so that each update uses the latest of all. Its fixed points are those of EM: if W is one, replacing a
  batch's moments by those under W changes nothing; if no replacement changes anything, all moments are those under W.
  Each replacement and each update raises the free energy of Neal and Hinton, so it converges like EM.
- Online EM (Cappe and Moulines 2009) is for unlimited data and keeps running means instead, with step sizes
  (t + 2)^-alpha, 1/2 < alpha <= 1. If the mean step is zero, the running mean of the posterior moments is their mean
  under W, which is EM's fixed-point condition for the distribution of the batches.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from pipeline.systems.regression.model.architectures import Architecture
from pipeline.systems.regression.model.expectation_maximisation import EStep, Examples, Problems, class_moments


class Incremental:
    """Incremental EM over fixed batches of a data set's examples. It starts with an E-step on every batch, so that the
    first update equals that of EM.

    Args:
        W: initial weights, `[K, C, d, r]`, whitened like `problems`.
    """

    def __init__(self, problems: Problems, batches: list[Examples], W: Tensor) -> None:
        self.problems, self.batches, self.W, self.previous = problems, batches, W, W
        self.kept = torch.stack([self._moments(batch) for batch in batches])  # (B, K, C, d, r)

    def visit(self, batch: int, momentum: float = 0.0) -> None:
        """Update the moments of one batch with the current weights, then the weights.

        Args:
            momentum: gamma of equation 27, whose term is added to the update as it is to that of batch EM.
        """
        self.kept[batch] = self._moments(self.batches[batch])
        self.update(momentum)

    def update(self, momentum: float = 0.0) -> None:
        """Update the weights with the moments as they are."""
        term = momentum * (self.W - self.previous)
        everyone = torch.arange(len(self.W))
        self.previous, self.W = self.W, self.problems.update(self.kept.sum(0), everyone) + term

    def _moments(self, batch: Examples) -> Tensor:
        return self.problems.passed(self.W, torch.arange(len(self.W)), self.W.new_zeros(len(self.W)), batch).moments


def split(examples: Examples, batches: int, generator: torch.Generator) -> list[Examples]:
    """Examples in random batches, stratified by class as far as possible."""
    parts: list[list[Tensor]] = [[] for _ in range(batches)]
    for start, stop in pairwise(examples.bounds):
        order = start + torch.randperm(stop - start, generator=generator)
        for into, rows in zip(parts, order.tensor_split(batches), strict=True):
            into.append(rows)
    result = []
    for part in parts:
        bounds = torch.tensor([0, *(len(each) for each in part)]).cumsum(0).tolist()
        result.append(Examples(examples.inputs[torch.cat(part).to(examples.inputs.device)], bounds))
    return result


class Online:
    """Online EM: running means of the moments, updated once per batch; inputs are not whitened.

    Args:
        W: initial weights, `[K, C, d, p]`, float64.
        ridge: as in `Problems`.
        rate: alpha of the step sizes.
    """

    def __init__(self, architecture: Architecture, W: Tensor, *, ridge: float = 0.0, rate: float = 0.6) -> None:
        self.architecture, self.ridge, self.rate = architecture, ridge, rate
        self.W = W
        self.seen = 0
        # Mean of x x^T, class by class.
        self.inputs = W.new_zeros(architecture.classes, W.shape[-1], W.shape[-1])
        self.posteriors = torch.zeros_like(W)  # mean of E[h | x, y] x^T
        self._pass = EStep(architecture, W.dtype, W.device)

    def learn(self, X: Tensor, y: Tensor) -> None:
        """Update means and weights with a batch of inputs `[n, p]`, float64, and their classes `[n]`."""
        order = y.argsort(stable=True)
        counts = torch.bincount(y, minlength=self.architecture.classes)
        examples = Examples(X[order], [0, *counts.cumsum(0).tolist()])
        everyone = torch.arange(len(self.W))
        statistics = self._pass(self.W, everyone, self.W.new_zeros(len(self.W)), examples)
        step = 1.0 if self.seen == 0 else (self.seen + 2.0) ** -self.rate
        moments = class_moments(X, y, self.architecture.classes)
        self.inputs = torch.lerp(self.inputs, moments / len(X), step)
        self.posteriors = torch.lerp(self.posteriors, statistics.moments / len(X), step)
        self.W = (self.posteriors.flatten(1, 2) @ torch.linalg.pinv(self._gram(), hermitian=True)).view_as(self.W)
        self.seen += 1

    def _gram(self) -> Tensor:
        """Mean of x x^T over the classes of each problem, with the ridge, `[K or 1, p, p]`."""
        gram = self.architecture.sum_seen(self.inputs)
        power = gram.diagonal(dim1=1, dim2=2).mean(-1)
        return gram + self.ridge * power[:, None, None] * torch.eye(gram.shape[-1]).to(gram)
