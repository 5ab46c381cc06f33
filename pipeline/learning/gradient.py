"""The training loop for all models trained by gradient descent: any number of seeds, resumable, without waiting for the
device after each step.

In each epoch: draw order, warps and noise from (seed, epoch) only; train on all batches, keeping the results on the
device; read them once; validate; keep the best parameters of each replica; save a checkpoint. If training is
interrupted at any time and run again, it therefore gives the same weights (bit by bit on the CPU). With
`training.averaging`, what is validated and kept is the average of the weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from pipeline.learning.recording import recorded
from pipeline.learning.replicas import Replicas, Stacked, clip, gradient_norms, take_rows
from pipeline.learning.settings import TrainingParams

_VALIDATION_SEED = 2**31 - 1


class DivergedError(UserError):
    """Training produced a number that is not finite."""


@dataclass(frozen=True)
class Trained:
    """What a training leaves.

    Attributes:
        parameters: each replica's parameters at its best validation loss, stacked `[n, ...]`.
        history: one row per replica and epoch: replica (its place among the seeds), epoch (from 1), `train_<metric>`,
            `validation_<metric>`, train_gradient_norm, images_per_second.
        best_epoch: the epoch of the best validation loss, by replica.
        seconds: time spent training, earlier parts of a resumed training included.
    """

    parameters: Stacked
    history: pd.DataFrame
    best_epoch: list[int]
    seconds: float

    @property
    def epochs(self) -> float:
        """Epochs trained, the mean over replicas."""
        return float(self.history.groupby("replica")["epoch"].max().mean())


Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images `[N, 1, S, S]` and their classes `[N]`."""

OnEpoch = Callable[[list[dict[str, float]]], None]
"""Called with each epoch's rows of the history: after the epoch, and again where a checkpoint brings them back."""


def group_replicas(count: int, device: torch.device, stackable: bool = True) -> list[list[int]]:
    """Which replicas step together: all of them on a GPU; on a CPU each by itself, where grouped convolutions and many
    small products make stacking slower (`python -m benchmarks` measures it), and where the model is not `stackable`.
    """
    return [list(range(count))] if device.type == "cuda" and stackable else [[index] for index in range(count)]


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
    groups: Sequence[Sequence[int]] | None = None,
    checkpoints: Sequence[Checkpoint] | None = None,
    on_epoch: OnEpoch | None = None,
    title: str = "train",
    start: Stacked | None = None,
    frozen: Collection[str] = (),
) -> Trained:
    """Train one replica per seed.

    Args:
        groups: places among the seeds that are trained stacked, one group after another; `group_replicas` where None.
        checkpoints: one per group; None: not resumable.
        on_epoch: called with each epoch's metrics.
        title: shown beside the progress bar.
        start: values to begin at, one row per seed, in place of those of a fresh model; of any of the parameters.
        frozen: names of parameters that are not trained.

    Raises:
        DivergedError: a loss or gradient stopped being finite; the last good checkpoint is kept.
    """
    train_set = _to_device(task.train_part, device)
    measured = {"validation": task.validation_part, **task.watched}
    measured_sets = {name: _to_device(part, device) for name, part in measured.items()}
    groups = group_replicas(len(seeds), device) if groups is None else groups
    results = []
    for index, group in enumerate(groups):
        chosen = [seeds[place] for place in group]
        loop = _Loop(
            task,
            Replicas(task.build, chosen, device, take_rows(start, group) if start else None, frozen),
            list(group),
            train_set,
            measured_sets,
            checkpoints[index] if checkpoints else None,
            on_epoch,
            f"{title}, seed {', '.join(str(seed) for seed in chosen)}",
        )
        results.append(loop.run())
    return Trained(
        {key: torch.cat([result.parameters[key] for result in results]) for key in results[0].parameters},
        pd.concat([result.history for result in results], ignore_index=True),
        [epoch for result in results for epoch in result.best_epoch],
        sum(result.seconds for result in results),
    )


def _to_device(part: Labelled, device: torch.device) -> tuple[Tensor, Tensor]:
    images, labels = part
    return torch.from_numpy(images).to(device), torch.from_numpy(labels).to(device)


class _Loop:
    """The loop for one group of replicas that step together."""

    def __init__(
        self,
        task: Task,
        replicas: Replicas,
        places: list[int],
        train_set: tuple[Tensor, Tensor],
        measured_sets: dict[str, tuple[Tensor, Tensor]],
        checkpoint: Checkpoint | None,
        on_epoch: OnEpoch | None,
        title: str,
    ) -> None:
        self.replicas, self.places = replicas, places
        self.training, self.augmentation = task.training, task.augmentation
        self.images, self.labels = train_set
        self.measured_sets = measured_sets
        self.checkpoint, self.on_epoch, self.title = checkpoint, on_epoch, title
        n = len(replicas)
        self.gradients = recorded(replicas.gradients, replicas.device)
        self.optimiser = build_optimiser(task.training, list(replicas.trained.values()))
        averaging = task.training.averaging
        self.average = Average(replicas.trained, averaging) if averaging else None
        self.best = {name: value.clone() for name, value in replicas.parameters.items()}
        self.best_loss = [math.inf] * n
        self.best_epoch = [0] * n
        self.stopped = [False] * n
        self.history: list[dict[str, float]] = []
        self.epoch = 0
        self.seconds = 0.0

    def run(self) -> Trained:
        self._resume()
        epochs = self.training.epochs
        with tqdm(total=epochs, initial=self.epoch, desc=self.title, unit="epoch", dynamic_ncols=True) as bar:
            while self.epoch < epochs and not all(self.stopped):
                start = time.monotonic()
                rows = self._one_epoch()
                self.epoch += 1
                self._keep_best(rows)
                self.seconds += time.monotonic() - start
                self.history += rows
                self._save(force=self.epoch == epochs or all(self.stopped))
                if self.on_epoch:
                    self.on_epoch(rows)
                bar.update()
                bar.set_postfix_str(self._shown(rows), refresh=False)
        return Trained(self.best, pd.DataFrame(self.history), self.best_epoch, self.seconds)

    def _shown(self, rows: list[dict[str, float]]) -> str:
        """What the progress bar tells of an epoch: means over replicas."""

        def mean(name: str) -> float:
            return float(np.mean([row[name] for row in rows]))

        accuracies = {part: f"{part}_accuracy" for part in self.measured_sets if f"{part}_accuracy" in rows[0]}
        errors = [f"{part} error {100 * (1 - mean(name)):.1f} %" for part, name in accuracies.items()]
        return ", ".join([f"validation loss {mean('validation_loss'):.4g}", *errors])

    # ---- one epoch

    def _one_epoch(self) -> list[dict[str, float]]:
        start = time.monotonic()
        train_metrics, images = self._train_epoch()
        self._check_finite(train_metrics)
        elapsed = time.monotonic() - start
        measured = {name: self._measure(*part) for name, part in self.measured_sets.items()}
        # The epoch's last step may have spoilt the weights: they must not become a checkpoint.
        self._check_finite({name: values[None] for name, values in measured["validation"].items()}, "validation")
        rows = []
        for index, place in enumerate(self.places):
            if self.stopped[index]:
                continue
            row: dict[str, float] = {"replica": place, "epoch": self.epoch + 1}
            row |= {f"train_{name}": float(values[:, index].mean()) for name, values in train_metrics.items()}
            for part, metrics in measured.items():
                row |= {f"{part}_{name}": float(values[index]) for name, values in metrics.items()}
            row["images_per_second"] = images / elapsed
            rows.append(row)
        return rows

    def _train_epoch(self) -> tuple[dict[str, NDArray[np.float64]], int]:
        """Step through the training set once; metrics `[steps, n]` by name, and the images each replica saw."""
        replicas, device = self.replicas, self.replicas.device
        total = len(self.images)
        batch = min(self.training.batch_size, total)
        steps = total // batch
        generators = [self._generator(seed, device) for seed in replicas.seeds]
        order = torch.stack([torch.randperm(total, generator=g, device=device) for g in generators])  # (n, total)
        noise = torch.stack(
            [replicas.skeleton.draw_noise((steps, batch), g, device) for g in generators]
        )  # (n, steps, batch, K)
        asked = min(replicas.skeleton.beginning_images(self.epoch), total)
        if asked:
            images = augment(self.images[order[:, :asked]], self.augmentation, generators)
            replicas.begin_epoch(self.epoch, images)
        times = self.epoch + torch.arange(steps, device=device) / steps
        recorded: list[Tensor] = []
        for step in range(steps):
            for group in self.optimiser.param_groups:
                group["lr"] = self._learning_rate(self.epoch + step / steps)
            chosen = order[:, step * batch : (step + 1) * batch]
            images = augment(self.images[chosen], self.augmentation, generators)
            gradients, metrics = self.gradients(images, noise[:, step], times[step], self.labels[chosen])
            norms = gradient_norms(gradients)
            clip(gradients, norms, self.training.gradient_clip)
            for name, parameter in replicas.trained.items():
                parameter.grad = gradients[name]
            metrics["gradient_norm"] = norms
            # A copy, made before the step: a metric may be a view of a parameter.
            recorded.append(torch.stack(list(metrics.values())))  # (metrics, n)
            self.optimiser.step()
            if self.average:
                self.average.update(self.epoch * steps + step + 1)
        asked = min(replicas.skeleton.statistics_images, total)
        if asked:
            images = augment(self.images[order[:, :asked]], self.augmentation, generators)
            replicas.end_epoch(images, batch, self._judged())
        table = torch.stack(recorded).double().cpu().numpy()  # the epoch's one wait for the device
        return {name: table[:, index] for index, name in enumerate(metrics)}, steps * batch

    def _judged(self) -> Stacked:
        """The parameters that are measured and kept: the trained ones, or their average."""
        averaged = self.average.averaged if self.average else {}
        return {**self.replicas.parameters, **averaged}

    def _generator(self, seed: int, device: torch.device) -> torch.Generator:
        return torch.Generator(device).manual_seed(seed * 1_000_003 + self.epoch)

    def _learning_rate(self, epoch: float) -> float:
        first, last = self.training.learning_rate, self.training.final_learning_rate
        share = epoch / self.training.epochs
        if self.training.decay == "exponential":
            return first * (last / first) ** share
        return last + (first - last) * 0.5 * (1 + math.cos(math.pi * share))

    def _check_finite(self, metrics: dict[str, NDArray[np.float64]], where: str = "") -> None:
        """Raise DivergedError where metrics `[steps, n]` of a replica still in training are not all finite."""
        active = [not stopped for stopped in self.stopped]
        finite = {name: np.asarray(np.isfinite(v[:, active]).all(axis=1)) for name, v in metrics.items()}
        step = min((int(np.argmin(each)) for each in finite.values() if not each.all()), default=None)
        if step is None:
            return
        bad = [name for name, each in finite.items() if not each[step]]
        kept = f" The last good checkpoint is kept at {self.checkpoint.path}." if self.checkpoint else ""
        raise DivergedError(
            f"{self.title}: not finite at epoch {self.epoch + 1}, {where or f'step {step + 1}'}: {', '.join(bad)}. "
            f"Lower training.learning_rate or training.gradient_clip.{kept}"
        )

    def _measure(self, all_images: Tensor, labels: Tensor) -> dict[str, NDArray[np.float64]]:
        """Metrics `[n]` by name on images that are not trained on: the same warps and noise at every epoch."""
        replicas, device = self.replicas, self.replicas.device
        generator = torch.Generator(device).manual_seed(_VALIDATION_SEED)
        images = augment(all_images.unsqueeze(0), self.augmentation, [generator], training=False)[0]
        noise = replicas.skeleton.draw_noise((len(images),), generator, device)
        time_now = torch.tensor(float(self.epoch + 1), device=device)
        parameters = self._judged()
        sums: dict[str, Tensor] = {}
        # A loss may depend on the whole batch, so only batches of the training's size give comparable losses.
        batch = self.training.batch_size
        for start in range(0, len(images), batch):
            part = slice(start, start + batch)
            found = replicas.metrics(images[part], noise[part], time_now, labels[part], parameters)
            for name, value in found.items():
                sums[name] = sums.get(name, 0) + value * len(images[part])
        return {name: (value / len(images)).double().cpu().numpy() for name, value in sums.items()}

    # ---- between epochs

    def _keep_best(self, rows: list[dict[str, float]]) -> None:
        for row in rows:
            index = self.places.index(int(row["replica"]))
            if row["validation_loss"] < self.best_loss[index]:
                self.best_loss[index], self.best_epoch[index] = row["validation_loss"], self.epoch
                for name, value in self._judged().items():
                    self.best[name][index] = value[index]
            self.stopped[index] = self.epoch - self.best_epoch[index] >= self.training.patience

    def _save(self, force: bool) -> None:
        if self.checkpoint is None:
            return
        tensors = {f"now.{name}": value for name, value in self.replicas.parameters.items()}
        tensors |= {f"best.{name}": value for name, value in self.best.items()}
        if self.average:
            tensors |= {f"average.{name}": value for name, value in self.average.averaged.items()}
        for name, parameter in self.replicas.trained.items():
            for key, value in self.optimiser.state[parameter].items():
                tensors[f"optimiser.{key}.{name}"] = value
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "best_loss": self.best_loss,
            "best_epoch": self.best_epoch,
            "stopped": self.stopped,
            # Where a replica stands among the seeds may be another when this is found again.
            "history": [{**row, "replica": self.places.index(int(row["replica"]))} for row in self.history],
            "seconds": self.seconds,
        }
        self.checkpoint.save(tensors, state, force)

    def _resume(self) -> None:
        loaded = self.checkpoint.load(self.replicas.device) if self.checkpoint else None
        if loaded is None:
            return
        tensors, state = loaded
        for name, parameter in self.replicas.parameters.items():
            parameter.copy_(tensors[f"now.{name}"])
            self.best[name].copy_(tensors[f"best.{name}"])
        if self.average:
            for name, value in self.average.averaged.items():
                value.copy_(tensors[f"average.{name}"])
        for stored, value in tensors.items():
            kind, _, rest = stored.partition(".")
            if kind == "optimiser":
                key, _, name = rest.partition(".")
                # Adam counts its steps on the CPU, in the only tensor that has no axis for the replicas.
                self.optimiser.state[self.replicas.trained[name]][key] = value.cpu() if value.dim() == 0 else value
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        self.history = [{**row, "replica": self.places[row["replica"]]} for row in state["history"]]
        self.best_loss, self.best_epoch, self.stopped = state["best_loss"], state["best_epoch"], state["stopped"]
        if self.on_epoch:
            for epoch in sorted({row["epoch"] for row in self.history}):
                self.on_epoch([row for row in self.history if row["epoch"] == epoch])
