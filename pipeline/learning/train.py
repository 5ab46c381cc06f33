"""The training loop for all models trained by gradient descent: one seed after the other, resumable, without waiting
for the device after each step.

In each epoch: draw order, warps and noise from (seed, epoch) only; train on all batches, keeping the metrics on the
device; read them once; validate; keep the best parameters; save a checkpoint. If training is interrupted at any time
and run again, it therefore gives the same weights (bit by bit on the CPU). With `training.averaging`, what is validated
and kept is the average of the weights.
"""

from __future__ import annotations

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

from pipeline.errors import UserError
from pipeline.learning.augmentation import Augmentation, augment
from pipeline.learning.averaging import Average
from pipeline.learning.checkpoints import Checkpoint
from pipeline.learning.model import Model
from pipeline.learning.optimisers import build_optimiser
from pipeline.learning.settings import TrainingParams

_VALIDATION_SEED = 2**31 - 1

Parameters = dict[str, Tensor]
"""A model's parameters by name."""


class DivergedError(UserError):
    """Training produced a number that is not finite."""


@dataclass(frozen=True)
class Trained:
    """What a training leaves.

    Attributes:
        parameters: of each seed's model at its best validation loss.
        history: one row per replica and epoch: replica (its place among the seeds), epoch (from 1), `train_<metric>`,
            `validation_<metric>`, train_gradient_norm, images_per_second.
        best_epoch: the epoch of the best validation loss, by replica.
        seconds: time spent training, earlier parts of a resumed training included.
    """

    parameters: list[Parameters]
    history: pd.DataFrame
    best_epoch: list[int]
    seconds: float

    @property
    def epochs(self) -> float:
        """Epochs trained, the mean over replicas."""
        return float(self.history.groupby("replica")["epoch"].max().mean())


Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images `[N, C, S, S]` and their classes `[N]`."""

Row = dict[str, float]
"""One epoch of one seed, by the names of the history's columns."""


@dataclass(frozen=True)
class Task:
    """What is to be learned, and from what.

    Attributes:
        build: makes a freshly initialised model.
        train_part, validation_part: images `[N, C, S, S]` and their classes `[N]`.
        watched: further images and classes that the model is measured on after every epoch, by name, like those of
            validation; nothing is chosen by them.
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
    checkpoints: Sequence[Checkpoint] | None = None,
    on_epoch: Callable[[Row], None] | None = None,
    title: str = "train",
    start: Sequence[Parameters] | None = None,
    frozen: Collection[str] = (),
) -> Trained:
    """Train one replica per seed.

    Args:
        checkpoints: one per seed; None: not resumable.
        on_epoch: called with each epoch's row of the history: after the epoch, and again where a checkpoint brings it
            back.
        title: shown beside the progress bar.
        start: values to begin at, for each seed, in place of those of a fresh model; of any of the parameters.
        frozen: names of parameters that are not trained.

    Raises:
        DivergedError: a loss or gradient stopped being finite; the last good checkpoint is kept.
        ValueError: the model has no parameter that `start` or `frozen` names.
    """
    train_set = _to_device(task.train_part, device)
    measured = {"validation": task.validation_part, **task.watched}
    measured_sets = {name: _to_device(part, device) for name, part in measured.items()}
    trained = []
    for replica, seed in enumerate(seeds):
        loop = _Loop(
            task,
            replica,
            seed,
            device,
            train_set,
            measured_sets,
            start[replica] if start else {},
            frozen,
            checkpoints[replica] if checkpoints else None,
            on_epoch,
            f"{title}, seed {seed}",
        )
        loop.run()
        trained.append(loop)
    return Trained(
        [loop.best for loop in trained],
        pd.DataFrame([row for loop in trained for row in loop.history]),
        [loop.best_epoch for loop in trained],
        sum(loop.seconds for loop in trained),
    )


def _to_device(part: Labelled, device: torch.device) -> tuple[Tensor, Tensor]:
    images, labels = part
    return torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)


class _Loop:
    """The training of one seed.

    A seed's initial values, batches and noise depend on nothing but itself.
    """

    def __init__(
        self,
        task: Task,
        replica: int,
        seed: int,
        device: torch.device,
        train_set: tuple[Tensor, Tensor],
        measured_sets: dict[str, tuple[Tensor, Tensor]],
        start: Mapping[str, Tensor],
        frozen: Collection[str],
        checkpoint: Checkpoint | None,
        on_epoch: Callable[[Row], None] | None,
        title: str,
    ) -> None:
        self.task, self.training, self.replica, self.seed, self.device = task, task.training, replica, seed, device
        self.checkpoint, self.on_epoch, self.title = checkpoint, on_epoch, title
        self.images, self.labels = train_set
        self.measured_sets = measured_sets
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = task.build().to(device)
        self.parameters: Parameters = dict(self.model.named_parameters())
        if unknown := sorted({*start, *frozen} - self.parameters.keys()):
            raise ValueError(f"the model has no parameter {', '.join(unknown)}")
        _copy(start, self.parameters)
        self.kept = {name: self.parameters[name].detach().clone() for name in frozen}
        self.statistics = {
            name for name, value in self.parameters.items() if not value.requires_grad and name not in frozen
        }
        for name in frozen:
            self.parameters[name].requires_grad_(False)
        self.trained = {name: value for name, value in self.parameters.items() if value.requires_grad}
        self.optimiser = build_optimiser(self.training, list(self.trained.values()))
        self.average = Average(self.trained, self.training.averaging) if self.training.averaging else None
        self.judged = copy.deepcopy(self.model).eval()
        self.best = {name: value.detach().clone() for name, value in self.parameters.items()}
        self.best_loss, self.best_epoch, self.epoch, self.seconds = math.inf, 0, 0, 0.0
        self.history: list[Row] = []

    @property
    def stopped(self) -> bool:
        """Whether the validation loss has not become better for too long."""
        return self.epoch - self.best_epoch >= self.training.patience

    def run(self) -> None:
        """Train to the end, from the checkpoint if there is one."""
        self._resume()
        epochs = self.training.epochs
        with tqdm(total=epochs, initial=self.epoch, desc=self.title, unit="epoch", dynamic_ncols=True) as bar:
            while self.epoch < epochs and not self.stopped:
                begun = time.monotonic()
                row = self._one_epoch()
                self.epoch += 1
                if row["validation_loss"] < self.best_loss:
                    self.best_loss, self.best_epoch = row["validation_loss"], self.epoch
                    _copy(dict(self.judged.named_parameters()), self.best)
                self.seconds += time.monotonic() - begun
                self.history.append(row)
                self._save(force=self.epoch == epochs or self.stopped)
                if self.on_epoch:
                    self.on_epoch(row)
                bar.update()
                bar.set_postfix_str(self._shown(row), refresh=False)

    def _shown(self, row: Row) -> str:
        """What the progress bar tells of an epoch."""
        accuracies = {part: row[name] for part in self.measured_sets if (name := f"{part}_accuracy") in row}
        errors = [f"{part} error {100 * (1 - accuracy):.1f} %" for part, accuracy in accuracies.items()]
        return ", ".join([f"validation loss {row['validation_loss']:.4g}", *errors])

    # ---- one epoch

    def _one_epoch(self) -> Row:
        begun = time.monotonic()
        metrics, images = self._train_epoch()
        self._check_finite(metrics)
        elapsed = time.monotonic() - begun
        measured = {name: self._measure(*part) for name, part in self.measured_sets.items()}
        # The epoch's last step may have spoilt the weights: they must not become a checkpoint.
        self._check_finite({name: value[None] for name, value in measured["validation"].items()}, "validation")
        row: Row = {"replica": self.replica, "epoch": self.epoch + 1}
        row |= {f"train_{name}": float(values.mean()) for name, values in metrics.items()}
        for part, found in measured.items():
            row |= {f"{part}_{name}": float(value) for name, value in found.items()}
        return {**row, "images_per_second": images / elapsed}

    def _train_epoch(self) -> tuple[dict[str, NDArray[np.float64]], int]:
        """Step through the training set once; metrics `[steps]` by name, and the number of images seen."""
        total = len(self.images)
        batch = min(self.training.batch_size, total)
        steps = total // batch
        generator = torch.Generator(self.device).manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(total, generator=generator, device=self.device)
        noise = self.model.draw_noise((steps, batch), generator, self.device)  # (steps, batch, K)
        if asked := min(self.model.beginning_images(self.epoch), total):
            self._begin_epoch(augment(self.images[order[:asked]], self.task.augmentation, generator))
        times = self.epoch + torch.arange(steps, device=self.device) / steps
        self.model.train()
        recorded: list[Tensor] = []
        for step in range(steps):
            for group in self.optimiser.param_groups:
                group["lr"] = self._learning_rate(self.epoch + step / steps)
            chosen = order[step * batch : (step + 1) * batch]
            images = augment(self.images[chosen], self.task.augmentation, generator)
            loss, metrics = self.model(images, noise[step], times[step], self.labels[chosen])
            gradients = torch.autograd.grad(loss, list(self.trained.values()))
            norm = clip(gradients, self.training.gradient_clip)
            for parameter, gradient in zip(self.trained.values(), gradients, strict=True):
                parameter.grad = gradient
            metrics = {"loss": loss.detach(), **metrics, "gradient_norm": norm}
            # A copy, made before the step: a metric may be a view of a parameter.
            recorded.append(torch.stack(list(metrics.values())))
            self.optimiser.step()
            if self.average:
                self.average.update(self.epoch * steps + step + 1)
        _copy({**self.parameters, **(self.average.averaged if self.average else {})}, self.judged)
        if asked := min(self.model.statistics_images, total):
            self.judged.end_epoch(augment(self.images[order[:asked]], self.task.augmentation, generator), batch)
            found = dict(self.judged.named_parameters())
            _copy({name: found[name] for name in self.statistics}, self.parameters)
        table = torch.stack(recorded).double().cpu().numpy()  # the epoch's one wait for the device
        return {name: table[:, index] for index, name in enumerate(metrics)}, steps * batch

    def _begin_epoch(self, images: Tensor) -> None:
        """Let the model change itself before an epoch, but for what is frozen."""
        self.model.eval()
        self.model.begin_epoch(self.epoch, images)
        _copy(self.kept, self.parameters)

    def _learning_rate(self, epoch: float) -> float:
        first, last = self.training.learning_rate, self.training.final_learning_rate
        share = epoch / self.training.epochs
        if self.training.decay == "exponential":
            return first * (last / first) ** share
        return last + (first - last) * 0.5 * (1 + math.cos(math.pi * share))

    def _check_finite(self, metrics: Mapping[str, NDArray[np.float64]], where: str = "") -> None:
        """Raise DivergedError where metrics `[steps]` are not all finite."""
        finite = {name: np.isfinite(values) for name, values in metrics.items()}
        step = min((int(np.argmin(each)) for each in finite.values() if not each.all()), default=None)
        if step is None:
            return
        bad = [name for name, each in finite.items() if not each[step]]
        kept = f" The last good checkpoint is kept at {self.checkpoint.path}." if self.checkpoint else ""
        raise DivergedError(
            f"{self.title}: not finite at epoch {self.epoch + 1}, {where or f'step {step + 1}'}: {', '.join(bad)}. "
            f"Lower training.learning_rate or training.gradient_clip.{kept}"
        )

    @torch.no_grad()
    def _measure(self, all_images: Tensor, labels: Tensor) -> dict[str, NDArray[np.float64]]:
        """Metrics by name on images that are not trained on: the same warps and noise at every epoch."""
        generator = torch.Generator(self.device).manual_seed(_VALIDATION_SEED)
        images = augment(all_images, self.task.augmentation, generator, training=False)
        noise = self.judged.draw_noise((len(images),), generator, self.device)
        now = torch.tensor(float(self.epoch + 1), device=self.device)
        sums: dict[str, Tensor] = {}
        # A loss may depend on the whole batch, so only batches of the training's size give comparable losses.
        batch = self.training.batch_size
        for first in range(0, len(images), batch):
            part = slice(first, first + batch)
            loss, metrics = self.judged(images[part], noise[part], now, labels[part])
            for name, value in {"loss": loss, **metrics}.items():
                sums[name] = sums.get(name, 0) + value * len(images[part])
        return {name: (value / len(images)).double().cpu().numpy() for name, value in sums.items()}

    # ---- between epochs

    def _save(self, force: bool) -> None:
        if self.checkpoint is None:
            return
        tensors = {f"now.{name}": value for name, value in self.parameters.items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        if self.average:
            tensors |= {f"average.{name}": value for name, value in self.average.averaged.items()}
        for name, parameter in self.trained.items():
            for key, value in self.optimiser.state[parameter].items():
                tensors[f"optimiser.{key}.{name}"] = value
        state = {
            "epoch": self.epoch,
            "best_loss": self.best_loss,
            "best_epoch": self.best_epoch,
            "history": self.history,
            "seconds": self.seconds,
        }
        self.checkpoint.save(tensors, state, force)

    def _resume(self) -> None:
        loaded = self.checkpoint.load(self.device) if self.checkpoint else None
        if loaded is None:
            return
        tensors, state = loaded
        by_kind: dict[str, Parameters] = {"now": {}, "best": {}, "average": {}, "optimiser": {}}
        for stored, value in tensors.items():
            kind, _, name = stored.partition(".")
            by_kind[kind][name] = value
        _copy(by_kind["now"], self.parameters)
        _copy(by_kind["best"], self.best)
        if self.average:
            _copy(by_kind["average"], self.average.averaged)
        for stored, value in by_kind["optimiser"].items():
            key, _, name = stored.partition(".")
            # Adam counts its steps on the CPU.
            self.optimiser.state[self.trained[name]][key] = value.cpu() if key == "step" else value
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        self.best_loss, self.best_epoch = state["best_loss"], state["best_epoch"]
        # The seed's place among the others may be another when this is found again.
        self.history = [{**row, "replica": self.replica} for row in state["history"]]
        for row in self.history if self.on_epoch else ():
            self.on_epoch(row)  # type: ignore[misc]


@torch.no_grad()
def _copy(values: Mapping[str, Tensor], into: Mapping[str, Tensor] | Model) -> None:
    """Set parameters to these values, in place."""
    parameters = dict(into.named_parameters()) if isinstance(into, Model) else into
    for name, value in values.items():
        parameters[name].copy_(value)


def clip(gradients: Sequence[Tensor], largest: float) -> Tensor:
    """Scale gradients down, in place, if the norm of all of them together exceeds `largest`; that norm before."""
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    factor = (largest / norm.clamp_min(1e-12)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm
