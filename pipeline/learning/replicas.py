"""Several seeds of one model with stacked parameters, trained together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from pipeline.learning.model import Model

Stacked = dict[str, Tensor]
"""Tensors by parameter name, `[n, ...]`; the first axis is the replica."""


class Replicas:
    """n models of one architecture. They train together under `vmap`; a single one trains without it.

    Args:
        build: returns a newly initialised model, using torch's global random state.
        seeds: one per replica. A replica's initial values, batches and noise depend only on its own seed, so that it
            learns the same with others and alone.
        device: the parameters' device.
        start: initial values `[n, ...]` of some of the parameters, instead of random ones.
        frozen: names of parameters that keep their values: no gradient, and no change by `begin_epoch`.
    """

    def __init__(
        self,
        build: Callable[[], Model],
        seeds: Sequence[int],
        device: torch.device,
        start: Stacked | None = None,
        frozen: Collection[str] = (),
    ) -> None:
        models = []
        with torch.random.fork_rng(devices=[]):
            for seed in seeds:
                torch.manual_seed(seed)
                models.append(build().to(device))
        self.seeds, self.device = list(seeds), device
        self.skeleton = models[0]  # its structure and constants; its parameters are never used
        self.parameters: Stacked = {
            name: torch.stack([dict(model.named_parameters())[name].detach() for model in models])
            for name, _ in self.skeleton.named_parameters()
        }
        unknown = sorted({*(start or {}), *frozen} - self.parameters.keys())
        if unknown:
            raise ValueError(f"the model has no parameter {', '.join(unknown)}")
        for name, value in (start or {}).items():
            self.parameters[name].copy_(value)
        self.frozen = frozenset(frozen)
        self._without_gradient = {name for name, value in self.skeleton.named_parameters() if not value.requires_grad}

    @property
    def trained(self) -> Stacked:
        """The parameters that the optimiser changes."""
        still = self.frozen | self._without_gradient
        return {name: value for name, value in self.parameters.items() if name not in still}

    def __len__(self) -> int:
        return len(self.seeds)

    def _loss(self, parameters: dict[str, Tensor], *inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = functional_call(self.skeleton, parameters, inputs)
        return loss, {"loss": loss.detach(), **metrics}

    def gradients(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor
    ) -> tuple[Stacked, dict[str, Tensor]]:
        """The gradient of each replica's loss on its own batch.

        Args:
            images: `[n, B, C, H, W]`.
            noise: `[n, B, K]`.
            epoch: scalar.
            labels: `[n, B]`.

        Returns:
            gradients of the trained parameters, stacked like them, and the loss and other metrics `[n]` by name.
        """
        if len(self) == 1:
            # Plain autograd: torch.func's `grad` takes a third longer on a CPU, with the same result.
            leaves = {name: value.requires_grad_() for name, value in _squeeze(self.trained).items()}
            loss, metrics = self._loss({**_squeeze(self.parameters), **leaves}, images[0], noise[0], epoch, labels[0])
            gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
            return _unsqueeze(gradients), _unsqueeze(metrics)

        def loss_of(trained: Stacked, kept: Stacked, *inputs: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            return self._loss({**kept, **trained}, *inputs)

        kept = {name: value for name, value in self.parameters.items() if name not in self.trained}
        step = grad_and_value(loss_of, has_aux=True)
        gradients, (_, metrics) = vmap(step, in_dims=(0, 0, 0, 0, None, 0))(
            self.trained, kept, images, noise, epoch, labels
        )
        return gradients, metrics

    @torch.no_grad()
    def metrics(
        self, images: Tensor, noise: Tensor, epoch: Tensor, labels: Tensor, parameters: Stacked | None = None
    ) -> dict[str, Tensor]:
        """Metrics `[n]` of every replica, in evaluation mode, on the same `images [B, C, H, W]`, `noise [B, K]` and
        `labels [B]`; with other `parameters` than its own, if given.
        """
        parameters = self.parameters if parameters is None else parameters
        self.skeleton.eval()
        try:
            if len(self) == 1:
                return _unsqueeze(self._loss(_squeeze(parameters), images, noise, epoch, labels)[1])
            _, metrics = vmap(self._loss, in_dims=(0, None, None, None, None))(parameters, images, noise, epoch, labels)
            return metrics
        finally:
            self.skeleton.train()

    def begin_epoch(self, epoch: int, images: Tensor) -> None:
        """Call `begin_epoch` of every model with some of its own training images `[n, B, C, H, W]`."""
        for index in range(len(self)):
            model = self.model(index)
            model.begin_epoch(epoch, images[index])
            for name, parameter in model.named_parameters():
                if name not in self.frozen:
                    self.parameters[name][index] = parameter.detach()

    def end_epoch(self, images: Tensor, batch: int, parameters: Stacked) -> None:
        """Give every model its turn after an epoch, with these `parameters` and some of its own training images
        `[n, N, C, H, W]`; it changes parameters that have no gradient.
        """
        for index in range(len(self)):
            model = self.model(index, parameters)
            model.end_epoch(images[index], batch)
            for name, parameter in model.named_parameters():
                if name in self._without_gradient and name not in self.frozen:
                    self.parameters[name][index] = parameter.detach()

    def model(self, index: int, parameters: Stacked | None = None) -> Model:
        """One replica as a separate module, with a copy of its parameters (or of those given)."""
        return load_replica(self.skeleton, parameters or self.parameters, index)


def load_replica(skeleton: Model, parameters: Stacked, index: int) -> Model:
    """A copy of `skeleton` with replica `index` of the stacked `parameters`."""
    import copy

    model = copy.deepcopy(skeleton)
    state = {name: value[index] for name, value in parameters.items()}
    model.load_state_dict(state)
    return model.eval()


def take_rows(stacked: Stacked, places: Sequence[int]) -> Stacked:
    """The replicas at `places`, in that order."""
    return {name: value[list(places)] for name, value in stacked.items()}


def _squeeze(stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value[0] for name, value in stacked.items()}


def _unsqueeze(single: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.unsqueeze(0) for name, value in single.items()}


def gradient_norms(gradients: Stacked) -> Tensor:
    """The norm of each replica's whole gradient, `[n]`."""
    squares = [gradient.flatten(1).square().sum(1) for gradient in gradients.values()]
    return torch.stack(squares).sum(0).sqrt()


def clip(gradients: Stacked, norms: Tensor, largest: float) -> None:
    """Scale down, in place, each replica's gradient whose norm exceeds `largest`."""
    factor = (largest / norms.clamp_min(1e-12)).clamp(max=1.0)
    for gradient in gradients.values():
        gradient.mul_(factor.view(-1, *[1] * (gradient.dim() - 1)))


def count_parameters(model: nn.Module) -> int:
    """Number of parameters that training changes."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
