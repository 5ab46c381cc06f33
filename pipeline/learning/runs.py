"""A run from its parameters to trained weights, and back from the weights to models."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from pipeline.compute import prepare
from pipeline.data.datasets import Dataset
from pipeline.errors import UserError
from pipeline.files import json_sha256, write_json
from pipeline.learning.gradient import Labelled, Trained, group_replicas, train
from pipeline.learning.replicas import Stacked, load_replica, take_rows
from pipeline.models import Model, build_model
from pipeline.params import CapsNetRun, CNNRun, CropParams, MatrixCapsulesRun, Run
from pipeline.resume import Checkpoint, code_fingerprint, fingerprint
from pipeline.tensors import CheckpointError, load_tensors, save_tensors, tensors_sha256
from pipeline.tracking import Part, TrackedRun

AnyModel = TypeVar("AnyModel", bound=Model)

WEIGHTS = "weights.safetensors"

_CODE = ("compute", "data", "layers", "learning", "models")


def train_run(
    run: Run,
    dataset: Dataset,
    data_sha256: str,
    device: torch.device,
    resume_folder: Path,
    tracked: TrackedRun | Part,
    title: str = "train",
    start: Stacked | None = None,
    frozen: Collection[str] = (),
    watched: Mapping[str, Labelled] | None = None,
) -> Trained:
    """Train all replicas of a run, going on from a checkpoint where an equal training was cut.

    Args:
        data_sha256: of the data set's file, part of what a checkpoint depends on.
        resume_folder: where checkpoints lie.
        tracked: told of the data set and of every epoch; it continues the run that wrote a checkpoint found, unless
            something was logged already.
        start: values `[replicas, ...]` to begin at in place of a fresh model's; of any of the parameters.
        frozen: names of parameters that are not trained.
        watched: images and classes, out of the data set, that the model is measured on after every epoch, by name.

    Raises:
        UserError: the data set has more classes than the network, or other channels, or images smaller than the crop.
        DivergedError: training produced a number that is not finite.
        CheckpointError: a checkpoint is damaged.
    """
    prepare(device)
    _check_fits(run, dataset)
    image_size = dataset.images.shape[-1]
    depends = {
        "run": run.model_dump(mode="json", exclude={"replicas", "seed"}),
        "data": data_sha256,
        "device": device.type,
        "code": code_fingerprint(*_CODE),
        "torch": torch.__version__,
    }
    if watched:
        depends["watched"] = sorted(watched)
    seeds = _seeds(run)
    groups = group_replicas(len(seeds), device, _build(run, image_size).stackable)

    def checkpoint_of(group: list[int]) -> Checkpoint:
        of_group = {**depends, "seeds": [seeds[place] for place in group]}
        if start or frozen:
            of_group |= {"start": tensors_sha256(take_rows(start or {}, group)), "frozen": sorted(frozen)}
        return Checkpoint(resume_folder, fingerprint(**of_group))

    checkpoints = [checkpoint_of(group) for group in groups]
    any(tracked.resume(checkpoint.written_by()) for checkpoint in checkpoints)  # the first that can be continued
    for checkpoint in checkpoints:
        checkpoint.tracked_run = tracked.id
    tracked.log_dataset(run.dataset, dataset.label, data_sha256)

    def on_epoch(rows: list[dict[str, float]]) -> None:
        for row in rows:
            values = {f"{name}/{row['replica']:.0f}": value for name, value in row.items()}
            tracked.log_metrics(values, step=int(row["epoch"]))

    return train(
        lambda: _build(run, image_size),
        run.training,
        run.augmentation,
        dataset.part("train"),
        dataset.part("validation"),
        seeds,
        device,
        groups,
        checkpoints,
        on_epoch,
        title,
        start,
        frozen,
        watched,
    )


def _check_fits(run: Run, dataset: Dataset) -> None:
    """Raise UserError where a network cannot learn from a data set."""
    last, (_, channels, size, _) = int(dataset.labels.max()), dataset.images.shape
    if isinstance(run, CapsNetRun | MatrixCapsulesRun | CNNRun) and run.model.classes <= last:
        raise UserError(f"model.classes is {run.model.classes}: {run.dataset} has classes up to {last}")
    if isinstance(run, MatrixCapsulesRun | CNNRun):
        if run.model.views != channels:
            raise UserError(f"model.views is {run.model.views}: images of {run.dataset} have {channels} channels")
        if run.augmentation.crop > size:
            raise UserError(f"augmentation.crop is {run.augmentation.crop} pixels: {run.dataset} has {size}x{size}")


def seen_size(run: Run, image_size: int) -> int:
    """Pixels a side of what a run's model sees of images of `image_size` pixels a side."""
    return run.augmentation.crop if isinstance(run.augmentation, CropParams) else image_size


def _build(run: Run, image_size: int) -> Model:
    return build_model(run, seen_size(run, image_size))


def trained_models(run: Run, image_size: int, trained: Trained, device: torch.device) -> list[Model]:
    """The models of a training that just ended, one per replica, ready for evaluation."""
    return _replicas(run, _build(run, image_size).to(device), trained.parameters)


def of_kind(kind: type[AnyModel], models: Iterable[Model]) -> list[AnyModel]:
    """The models, as what they all are.

    Raises:
        TypeError: one of them is not.
    """
    found = []
    for model in models:
        if not isinstance(model, kind):
            raise TypeError(f"a {type(model).__name__} where a {kind.__name__} is needed")
        found.append(model)
    return found


def _replicas(run: Run, skeleton: Model, parameters: Stacked) -> list[Model]:
    return [load_replica(skeleton, parameters, index) for index in range(run.replicas)]


def _seeds(run: Run) -> list[int]:
    """One seed per replica."""
    return list(range(run.seed, run.seed + run.replicas))


def _identity(name: str, run: Run, image_size: int) -> dict[str, Any]:
    """What the weights of a run are known by."""
    return {
        "run": name,
        "variant": run.variant,
        "image_size": image_size,
        "seeds": _seeds(run),
        "model": json_sha256(run.model.model_dump(mode="json"))[:16],
    }


def save_run(folder: Path, name: str, run: Run, image_size: int, data_sha256: str, trained: Trained) -> None:
    """Write a trained run's weights, all replicas in one file, and a summary for people.

    The summary names the data set's file: what is measured with the weights on that data depends on both.
    """
    identity = _identity(name, run, image_size)
    save_tensors(folder / WEIGHTS, trained.parameters, identity)
    shapes = {key: list(value.shape[1:]) for key, value in trained.parameters.items()}
    write_json(
        folder / "model.json",
        {**identity, "data_sha256": data_sha256, "best_epoch": trained.best_epoch, "shapes": shapes},
    )


def load_run(folder: Path, name: str, run: Run, image_size: int, device: torch.device) -> list[Model]:
    """The trained models of a run, one per replica, ready for evaluation.

    Raises:
        CheckpointError: the weights are missing, damaged, or those of another run or model.
    """
    prepare(device)
    path = folder / WEIGHTS
    parameters, _ = load_tensors(path, _identity(name, run, image_size), device)
    skeleton = _build(run, image_size).to(device)
    expected = {key: value.shape for key, value in skeleton.named_parameters()}
    if expected != {key: value.shape[1:] for key, value in parameters.items()}:
        raise CheckpointError(f"{path} does not fit the model of run '{name}': train it again.")
    return _replicas(run, skeleton, parameters)
