"""The training loop for all models trained by gradient descent. It trains one seed after the other, can be resumed, and
does not wait for the device after each step.

An epoch trains on all full batches, reads their metrics from the device once, validates and keeps the best parameters.
It saves a checkpoint if the last one is ten seconds old, or if training ends. The order of images, the warps and the
noise depend only on the seed and the epoch. So an interrupted training gives the same weights when it is run again (bit
for bit on the CPU). With `training.averaging`, the average of the weights is validated and kept, not the last weights.
"""

import copy
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from pipeline.data.datasets import Labelled
from pipeline.errors import UserError
from pipeline.learning.augmentation import Augmentation, augment
from pipeline.learning.averaging import Average
from pipeline.learning.checkpoints import Checkpoint
from pipeline.learning.model import Model
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.settings import TrainingParams

_VALIDATION_SEED = 2**31 - 1
_STATE = ("epoch", "best_loss", "best_epoch", "history", "seconds")
"""Attributes of `_Loop` that a checkpoint stores, besides the tensors."""

Parameters = dict[str, Tensor]
"""A model's parameters by name."""


@dataclass(frozen=True)
class Trained:
    """The result of a training.

    Attributes:
        parameters: the parameters of each replica after its best epoch.
        history: one row per replica and epoch, with columns replica (index of its seed), epoch (from 1),
            images_per_second, and `<part>_<metric>` for the parts train, validation and `Task.watched`.
        best_epoch: for each replica, the epoch with the lowest validation loss (the last epoch if `Model.keeps_last`).
        seconds: time of training and evaluation, summed over replicas. It includes the time before an interruption.
    """

    parameters: list[Parameters]
    history: pd.DataFrame
    best_epoch: list[int]
    seconds: float


Row = dict[str, float]
"""A row of the history: the values of one epoch and seed, by column."""


@dataclass(frozen=True)
class Task:
    """A model to train, with its data and settings.

    Attributes:
        train_part, validation_part: images `[N, C, S, S]` and their classes `[N]`.
        watched: further images and classes, by name. The model is measured on them after every epoch. They are not used
            for model selection.
    """

    build: Callable[[], Model]
    training: TrainingParams
    augmentation: Augmentation
    train_part: Labelled
    validation_part: Labelled
    watched: Mapping[str, Labelled] = field(default_factory=dict)


def train(
    task: Task,
    seeds: Sequence[int],
    device: torch.device,
    *,
    checkpoints: Sequence[Checkpoint | None] | None = None,
    on_epoch: Callable[[Row], None] = lambda row: None,
    title: str = "train",
    start: Sequence[Parameters] | None = None,
    frozen: Collection[str] = (),
) -> Trained:
    """Train one replica per seed.

    Args:
        checkpoints: one per seed. A training whose checkpoint is None cannot be resumed.
        on_epoch: called with a row of the history after each epoch. It is also called with each row that a checkpoint
            restores.
        start: for each seed, initial values by parameter name. Parameters without a value start as in a new model.
        frozen: names of parameters that are not trained.

    Raises `UserError` if the gradient norm or a metric of training or validation is not finite. The last good
    checkpoint, if there is one, is kept.
    """
    each_of = zip(seeds, start or [{}] * len(seeds), checkpoints or [None] * len(seeds), strict=True)
    loops = [
        _Loop(task, replica, seed, device, values, frozen, checkpoint, on_epoch, f"{title}, seed {seed}").run()
        for replica, (seed, values, checkpoint) in enumerate(each_of)
    ]
    best, histories, best_epochs, seconds = zip(*loops, strict=True)
    history = pd.DataFrame([row for rows in histories for row in rows])
    return Trained(list(best), history, list(best_epochs), sum(seconds))


@dataclass
class _Loop:
    """The training of one seed. Batches, noise and initial values (without `start`) depend only on this seed."""

    task: Task
    replica: int
    seed: int
    device: torch.device
    start: Mapping[str, Tensor]
    frozen: Collection[str]
    checkpoint: Checkpoint | None
    on_epoch: Callable[[Row], None]
    title: str

    def __post_init__(self) -> None:
        task, frozen, self.training = self.task, self.frozen, self.task.training
        self.images, self.labels = self._on_device(task.train_part)
        measured = {"validation": task.validation_part, **task.watched}
        self.measured_sets = {name: self._on_device(part) for name, part in measured.items()}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.model = task.build().to(self.device)
        self.parameters: Parameters = dict(self.model.named_parameters())
        _copy(self.start, self.parameters)
        # Parameters without a gradient. `Model.begin_epoch` or `Model.end_epoch` sets their values.
        self.statistics = {name for name, value in self.parameters.items() if not value.requires_grad} - set(frozen)
        self.frozen_values = {name: self.parameters[name].detach().clone() for name in frozen}
        for name in frozen:
            self.parameters[name].requires_grad_(False)
        self.trained = {name: value for name, value in self.parameters.items() if value.requires_grad}
        self.optimiser = build_optimiser(self.training, list(self.trained.values()))
        self.average = Average(self.trained, self.training.averaging) if self.training.averaging else None
        self.evaluated = copy.deepcopy(self.model).eval()
        self.evaluated_parameters: Parameters = dict(self.evaluated.named_parameters())
        self.best = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.best_loss, self.best_epoch, self.epoch, self.seconds = math.inf, 0, 0, 0.0
        self.history: list[Row] = []

    def _on_device(self, part: Labelled) -> tuple[Tensor, Tensor]:
        images, labels = part
        return torch.from_numpy(images).to(self.device), torch.from_numpy(labels).to(self.device)

    @property
    def stopped(self) -> bool:
        """Whether the validation loss has not improved for `patience` epochs. Never true if the model `keeps_last`."""
        return self.epoch - self.best_epoch >= self.training.patience

    def run(self) -> tuple[Parameters, list[Row], int, float]:
        """Train to the end, from the checkpoint if there is one. Returns the fields of `Trained` for this seed."""
        self._resume()
        epochs = self.training.epochs
        with tqdm(total=epochs, initial=self.epoch, desc=self.title, unit="epoch", dynamic_ncols=True) as bar:
            while self.epoch < epochs and not self.stopped:
                begun = time.monotonic()
                row = self._one_epoch()
                self.epoch += 1
                if self.model.keeps_last or row["validation_loss"] < self.best_loss:
                    self.best_loss, self.best_epoch = row["validation_loss"], self.epoch
                    _copy(self.evaluated_parameters, self.best)
                self.seconds += time.monotonic() - begun
                self.history.append(row)
                self._save(force=self.epoch == epochs or self.stopped)
                self.on_epoch(row)
                bar.update()
                told = {name: f"{row[name]:.4g}" for name in row if name.endswith(("validation_loss", "accuracy"))}
                bar.set_postfix(told, refresh=False)
        return self.best, self.history, self.best_epoch, self.seconds

    def _one_epoch(self) -> Row:
        begun = time.monotonic()
        metrics, images = self._train_epoch()
        self._check_finite(metrics)
        elapsed = time.monotonic() - begun
        measured = {name: self._measure(*part) for name, part in self.measured_sets.items()}
        # The epoch's last step may have made the weights infinite or NaN. They must not become a checkpoint.
        self._check_finite({name: value[None] for name, value in measured["validation"].items()}, "validation")
        row: Row = {"replica": self.replica, "epoch": self.epoch + 1}
        row |= {f"train_{name}": float(values.mean()) for name, values in metrics.items()}
        for part, found in measured.items():
            row |= {f"{part}_{name}": float(value) for name, value in found.items()}
        return {**row, "images_per_second": images / elapsed}

    def _train_epoch(self) -> tuple[dict[str, NDArray[np.float64]], int]:
        """Train on all full batches of one epoch. Returns metrics `[steps]` by name, and the number of images seen."""
        total = len(self.images)
        batch = min(self.training.batch_size, total)
        steps = total // batch
        generator = torch.Generator(self.device).manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(total, generator=generator, device=self.device)
        noise = self.model.draw_noise((steps, batch), generator)  # (steps, batch, noise_size)
        if asked := min(self.model.beginning_images(self.epoch), total):
            self.model.eval()
            self.model.begin_epoch(augment(self.images[order[:asked]], self.task.augmentation, generator))
            _copy(self.frozen_values, self.parameters)
        times = self.epoch + torch.arange(steps, device=self.device) / steps
        self.model.train()
        recorded: list[Tensor] = []
        for step in range(steps):
            self.optimiser.lr = self._learning_rate(self.epoch + step / steps)
            chosen = order[step * batch : (step + 1) * batch]
            images = augment(self.images[chosen], self.task.augmentation, generator)
            loss, metrics = self.model(images, noise[step], times[step], self.labels[chosen])
            # Parameters that the loss does not use (matrix capsules' betas with `activation: mixing`) have gradient 0.
            gradients = torch.autograd.grad(loss, list(self.trained.values()), materialize_grads=True)
            norm = clip(gradients, self.training.gradient_clip)
            metrics = {"loss": loss.detach(), **metrics, "gradient_norm": norm}
            # `stack` copies metrics. Otherwise a metric that is a view of a parameter would change with the parameter.
            recorded.append(torch.stack(list(metrics.values())))
            self.optimiser.step(gradients)
            if self.average:
                self.average.update(self.epoch * steps + step + 1)
        _copy({**self.parameters, **(self.average.averaged if self.average else {})}, self.evaluated_parameters)
        if asked := min(self.model.statistics_images, total):
            self.evaluated.end_epoch(augment(self.images[order[:asked]], self.task.augmentation, generator), batch)
            _copy({name: self.evaluated_parameters[name] for name in self.statistics}, self.parameters)
        table = torch.stack(recorded).double().cpu().numpy()  # the only wait for the device in an epoch's training
        return {name: table[:, index] for index, name in enumerate(metrics)}, steps * batch

    def _learning_rate(self, epoch: float) -> float:
        first, last = self.training.learning_rate, self.training.final_learning_rate
        share = epoch / self.training.epochs
        if self.training.decay == "exponential":
            return first * (last / first) ** share
        return last + (first - last) * 0.5 * (1 + math.cos(math.pi * share))

    def _check_finite(self, metrics: Mapping[str, NDArray[np.float64]], where: str = "") -> None:
        """Raise `UserError` if a metric `[steps]` is not finite. The message has the text `where` or else the step."""
        finite = {name: np.isfinite(values) for name, values in metrics.items()}
        step = min((int(np.argmin(each)) for each in finite.values() if not each.all()), default=None)
        if step is None:
            return
        bad = [name for name, each in finite.items() if not each[step]]
        kept = f" The last good checkpoint is kept at {self.checkpoint.path}." if self.checkpoint and self.epoch else ""
        raise UserError(
            f"{self.title}: not finite at epoch {self.epoch + 1}, {where or f'step {step + 1}'}: {', '.join(bad)}. "
            f"Lower training.learning_rate or training.gradient_clip.{kept}"
        )

    @torch.no_grad()
    def _measure(self, all_images: Tensor, labels: Tensor) -> dict[str, NDArray[np.float64]]:
        """Metrics by name on images that are not used for training, with the same warps and noise in every epoch."""
        generator = torch.Generator(self.device).manual_seed(_VALIDATION_SEED)
        images = augment(all_images, self.task.augmentation, generator, training=False)
        noise = self.evaluated.draw_noise((len(images),), generator)
        now = torch.tensor(float(self.epoch + 1), device=self.device)
        sums: dict[str, Tensor] = {}
        # A loss may depend on the batch size, so batches are as large as in training (the last may be smaller).
        batch = self.training.batch_size
        for first in range(0, len(images), batch):
            part = slice(first, first + batch)
            loss, metrics = self.evaluated(images[part], noise[part], now, labels[part])
            for name, value in {"loss": loss, **metrics}.items():
                sums[name] = sums.get(name, 0) + value * len(images[part])
        return {name: (value / len(images)).double().cpu().numpy() for name, value in sums.items()}

    def _weights(self) -> dict[str, Tensor]:
        """Weights by their names in a checkpoint."""
        averaged = self.average.averaged if self.average else {}
        kinds = {"now": self.parameters, "best": self.best, "average": averaged}
        return {f"{kind}.{name}": value for kind, values in kinds.items() for name, value in values.items()}

    def _save(self, force: bool) -> None:
        if self.checkpoint is None:
            return
        tensors = self._weights()
        for name, parameter in self.trained.items():
            for key, value in self.optimiser.state[parameter].items():
                tensors[f"optimiser.{key}.{name}"] = value
        self.checkpoint.save(tensors, {name: getattr(self, name) for name in _STATE}, force)

    def _resume(self) -> None:
        loaded = self.checkpoint.load(self.device) if self.checkpoint else None
        if loaded is None:
            return
        tensors, state = loaded
        weights = self._weights()
        _copy({name: tensors.pop(name) for name in weights}, weights)
        for stored, value in tensors.items():
            _, key, name = stored.split(".", 2)
            # Adam's step count must be on the CPU.
            self.optimiser.state[self.trained[name]][key] = value.cpu() if key == "step" else value
        for name in _STATE:
            setattr(self, name, state[name])
        # When the checkpoint was saved, this seed may have had another index in the list of seeds.
        self.history = [{**row, "replica": self.replica} for row in self.history]
        for row in self.history:
            self.on_epoch(row)


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], into: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        into[name].copy_(value)


def clip(gradients: Sequence[Tensor], largest: float) -> Tensor:
    """Scale gradients down, in place, if their joint norm exceeds `largest`. Returns the norm before scaling."""
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    factor = (largest / norm.clamp_min(1e-12)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm
