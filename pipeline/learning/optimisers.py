"""Optimisers by their names in params.yaml. They treat stacked parameters as ordinary tensors."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Adam, Optimizer

from pipeline.learning.settings import TrainingParams


class RMSProp(Optimizer):
    """RMSProp as TensorFlow 1 has it, for gradients g and step size lr:

        s = decay s + (1 - decay) g^2,  v = momentum v + lr g / sqrt(s + eps),  w = w - v

    torch's own differs in three things that a tuned step size depends on: s starts at 0 and not at 1, eps is added
    outside of the root, and a change of lr takes hold of the whole velocity at once.

    Args:
        parameters: tensors, whose `grad` is set before each step.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, decay: float, momentum: float, eps: float) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here needs closures
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["square"], state["velocity"] = torch.ones_like(parameter), torch.zeros_like(parameter)
                square, velocity = state["square"], state["velocity"]
                square.lerp_(parameter.grad.square(), 1 - group["decay"])
                velocity.mul_(group["momentum"]).addcdiv_(
                    parameter.grad, (square + group["eps"]).sqrt_(), value=group["lr"]
                )
                parameter.sub_(velocity)


def build_optimiser(training: TrainingParams, parameters: Iterable[Tensor]) -> Optimizer:
    """The optimiser of a training, over parameters stacked or not.

    RMSProp's constants are those of the authors' code for stacked capsule autoencoders.
    """
    if training.optimiser == "adam":
        return Adam(parameters, lr=training.learning_rate)
    eps = 1e-2 / training.batch_size**2
    return RMSProp(parameters, lr=training.learning_rate, decay=0.9, momentum=0.9, eps=eps)
