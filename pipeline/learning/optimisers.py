"""The optimisers that can be chosen in params.yaml.

They are not subclasses of `torch.optim.Optimizer`, because its constructor imports torch's compiler (`torch._dynamo`).
This import takes a second, longer than some trainings. `Adam` calls torch's function `adam`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

from pipeline.learning.settings import TrainingParams


class Optimiser:
    """Base class. `parameters` are the tensors to update. The step size `lr` may be changed between steps. For each
    parameter, `state` has a dictionary of tensors by name.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, eps: float = 1e-8) -> None:
        self.parameters, self.lr, self.eps = list(parameters), lr, eps
        self.state: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)


class Adam(Optimiser):
    """Adam with the defaults of `torch.optim.Adam`. It gives the same results, bit for bit."""

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters, given the gradients of the loss in the order of `parameters`."""
        for parameter in self.parameters:
            if not self.state[parameter]:
                zeros = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                # The step count is always on the CPU, so that reading it does not wait for a GPU.
                self.state[parameter] = {"step": torch.tensor(0.0), **zeros}
        states = [self.state[parameter] for parameter in self.parameters]
        adam(
            self.parameters,
            list(gradients),
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.lr,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )


class RMSProp(Optimiser):
    """RMSProp as in TensorFlow 1, for weights w, gradients g, mean square s, velocity v and step size lr:

        s = decay s + (1 - decay) g^2,  v = momentum v + lr g / sqrt(s + eps),  w = w - v

    Here, s starts at 1. torch's RMSProp differs in three points, and a tuned step size depends on them. In torch, s
    starts at 0, eps is added to the root, and lr multiplies the whole velocity, also what earlier steps added to it.
    """

    decay = momentum = 0.9

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters, given the gradients of the loss in the order of `parameters`."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            state = self.state[parameter]
            if not state:
                state["square"], state["velocity"] = torch.ones_like(parameter), torch.zeros_like(parameter)
            square, velocity = state["square"], state["velocity"]
            square.lerp_(gradient.square(), 1 - self.decay)
            velocity.mul_(self.momentum).addcdiv_(gradient, (square + self.eps).sqrt_(), value=self.lr)
            parameter.sub_(velocity)


def build_optimiser(training: TrainingParams, parameters: Iterable[Tensor]) -> Adam | RMSProp:
    """The optimiser of a training. RMSProp's constants are from the code of the stacked-capsule-autoencoder paper."""
    if training.optimiser == "adam":
        return Adam(parameters, training.learning_rate)
    return RMSProp(parameters, training.learning_rate, eps=1e-2 / training.batch_size**2)
