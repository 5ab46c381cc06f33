"""Batch normalisation (Ioffe and Szegedy 2015) whose statistics for evaluation are measured, not followed.

In training a batch is normalised by its own mean and variance. For evaluation both are measured after each epoch on
training images, with the weights as they are then, or with their average: statistics that were followed over training
are those of other weights. So a training step changes nothing but what the optimiser changes, and the statistics are
parameters without a gradient, saved and loaded with the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_EPSILON = 1e-5
"""Added to variances."""


class BatchNorm(nn.Module):
    """Numbers of each type with mean 0 and variance 1 over everything else; then, if `learnt`, scaled and shifted.

    Args:
        types: how many.
        axis: of tensors, along which types lie.
    """

    def __init__(self, types: int, axis: int, learnt: bool) -> None:
        super().__init__()
        self.axis = axis
        self.mean = nn.Parameter(torch.zeros(types), requires_grad=False)
        self.variance = nn.Parameter(torch.ones(types), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(types)) if learnt else None
        self.shift = nn.Parameter(torch.zeros(types)) if learnt else None
        self.measured: list[Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """`x` normalised, of its shape.

        Raises:
            ValueError: in training, there is only one number of each type.
        """
        x = x.movedim(self.axis, 1)
        if self.training and self.measured is not None:
            self.measured.append(torch.stack(torch.var_mean(x, [0, *range(2, x.dim())])))
        mean, variance = (None, None) if self.training else (self.mean, self.variance)
        found = F.batch_norm(x, mean, variance, self.scale, self.shift, training=self.training, eps=_EPSILON)
        return found.movedim(1, self.axis)


@torch.no_grad()
def measure_statistics(model: nn.Module, run: Callable[[Tensor], object], batches: Iterable[Tensor]) -> None:
    """Set the statistics of all batch norms in `model` to their means over batches, which `run` sends through it."""
    norms, training = [module for module in model.modules() if isinstance(module, BatchNorm)], model.training
    model.train()
    for norm in norms:
        norm.measured = []
    for batch in batches:
        run(batch)
    for norm in norms:
        variance, mean = torch.stack(norm.measured or []).mean(0)
        norm.mean.copy_(mean)
        norm.variance.copy_(variance)
        norm.measured = None
    model.train(training)
