"""Trains a run from its settings, summarises the training, and saves and loads the trained models."""

import copy
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch

from pipeline.compute import prepare
from pipeline.data.datasets import Dataset
from pipeline.data.holdout import KNOWN, hold_out
from pipeline.errors import UserError
from pipeline.files import write_json
from pipeline.learning.checkpoints import Checkpoint, fingerprint, load_tensors, save_tensors, tensors_sha256
from pipeline.learning.model import Model, count_parameters
from pipeline.learning.settings import RunSettings
from pipeline.learning.train import Labelled, Parameters, Row, Task, Trained, train
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import spread
from pipeline.tracking import TrackedRun

AnyModel = TypeVar("AnyModel", bound=Model)
BuildModel = Callable[[RunSettings, int], Model]
"""Builds a new model, given a run's settings and the side of its data set's images in pixels (`build_model`)."""

SUMMARY = "model.json"
_PLACE, _SPEED = ["replica", "epoch"], "images_per_second"
"""The columns that identify a row of a training's history, and the column of the speed."""


@dataclass(frozen=True)
class Setup:
    """What all trainings of a stage share. `code` returns a hash of the code that trains the given `variant`."""

    build: BuildModel
    device: torch.device
    checkpoints: Path
    code: Callable[[str], str]


def train_run(
    setup: Setup,
    run: RunSettings,
    dataset: Dataset,
    data: str,
    tracked: TrackedRun,
    title: str = "train",
    start: Sequence[Parameters] | None = None,
    frozen: Collection[str] = (),
    watched: Mapping[str, Labelled] | None = None,
    part: str = "",
) -> tuple[Trained, list[Model]]:
    """Train all replicas of a run. A training that was interrupted continues from its checkpoint. Returns the result of
    `train`, and the model of each replica in evaluation mode.

    If `run.held_out` is set, the held-out images are for validation. A random sample of the other images is not used
    for training, but is added to `watched` under the name `KNOWN`.

    Args:
        data: a text that identifies the images. A checkpoint made with other data is not used.
        tracked: the tracked run, which records every epoch, also those before an interruption.
        title, start, frozen: see `train`.
        watched: images and classes, by name. The model is measured on them after every epoch.
        part: the prefix of metric names, such as "pixel_sd=0.1", if the tracked run has several trainings.

    Raises `UserError` if the data set does not fit the run (`check_fits`), if it cannot be split as `run.held_out`
    says, if a number in training is not finite, or if a checkpoint is damaged.
    """
    prepare(setup.device)
    _, channels, image_size, _ = dataset.images.shape
    run.check_fits(channels, image_size, int(dataset.labels.max()) + 1)
    watched = dict(watched or {})
    if run.held_out is not None:
        dataset, known = hold_out(dataset, run.held_out)
        watched |= known
    depends = {
        "run": run.model_dump(mode="json", exclude={"replicas", "seed"}),
        "data": data,
        "device": setup.device.type,
        "code": setup.code(run.variant),
        "torch": torch.__version__,
    }
    if watched:
        depends["watched"] = sorted(watched)
    seeds, checkpoints = run.seeds, []
    for replica, seed in enumerate(seeds):
        of_seed = {**depends, "seed": seed}
        if start or frozen:
            of_seed |= {"start": tensors_sha256(start[replica] if start else {}), "frozen": sorted(frozen)}
        checkpoints.append(Checkpoint(setup.checkpoints, fingerprint(**of_seed)))
    before = f"{part}/" if part else ""

    def on_epoch(row: Row) -> None:
        """Track metrics under `<name>/<replica>`. If there is one seed, use `<name>`, and leave out the speed."""
        ending = f"/{row['replica']:.0f}" if len(seeds) > 1 else ""
        left_out = _PLACE if ending else [*_PLACE, _SPEED]
        metrics = {f"{before}{name}{ending}": value for name, value in row.items() if name not in left_out}
        tracked.log_metrics(metrics, step=int(row["epoch"]))

    parts = dataset.part("train"), dataset.part("validation")
    task = Task(lambda: setup.build(run, image_size), run.training, run.augmentation, *parts, watched)
    trained = train(
        task, seeds, setup.device, checkpoints=checkpoints, on_epoch=on_epoch, title=title, start=start, frozen=frozen
    )
    for _, rows in trained.history.groupby("epoch"):
        if len(rows) == len(seeds) > 1:  # the mean of each metric over seeds, for epochs that all seeds have
            means = dict(rows.drop(columns=[*_PLACE, _SPEED]).mean().add_prefix(before))
            tracked.log_metrics(means, step=int(rows["epoch"].iloc[0]))
    return trained, _models(setup.build(run, image_size).to(setup.device), trained.parameters)


def outcome(trained: Trained, model: Model) -> Outcome:
    """The result of a training. Its table is the history without speeds. Its numbers are the best epochs, the metrics
    at these epochs on the validation images and on `KNOWN` images (if there are any), the numbers of epochs and of
    parameters, the seconds, and the speed.
    """
    history, best = trained.history, best_rows(trained)
    measured = {
        part: {name.removeprefix(part): spread(best[name]) for name in best.columns if name.startswith(part)}
        for part in ("validation_", f"{KNOWN}_")
    }
    numbers: dict[str, Any] = {
        **{part[:-1]: found for part, found in measured.items() if found},
        "best_epoch": spread(trained.best_epoch),
        "epochs": spread(history.groupby("replica")["epoch"].max()),
        "images_per_second": spread(history.groupby("replica")[_SPEED].median()),
        "seconds": round(trained.seconds, 2),
        "parameters": {"generative": model.generative_parameters(), "total": count_parameters(model)},
    }
    headline = [f"{part[:-1]}.{name}" for part, found in measured.items() for name in found][:MOST_HEADLINES]
    table = history[[*_PLACE, *history.columns.difference([*_PLACE, _SPEED], sort=False)]]
    return Outcome("training", table.astype({"replica": int, "epoch": int}), numbers, tuple(headline))


def best_rows(trained: Trained) -> pd.DataFrame:
    """The row of the training's history for the best epoch of each replica."""
    return trained.history.set_index(_PLACE).loc[list(enumerate(trained.best_epoch))]


def of_kind(kind: type[AnyModel], models: Sequence[Model]) -> list[AnyModel]:
    """The same models, typed as a list of `kind`. All must be instances of this class."""
    typed = [model for model in models if isinstance(model, kind)]
    assert len(typed) == len(models)
    return typed


def _models(skeleton: Model, parameters: Sequence[Parameters]) -> list[Model]:
    """For each entry of `parameters`, a copy of `skeleton` with the entry's values, in evaluation mode."""
    models = [copy.deepcopy(skeleton).eval() for _ in parameters]
    for model, values in zip(models, parameters, strict=True):
        model.load_state_dict(values)
    return models


def _identity(name: str, run: RunSettings, image_size: int) -> dict[str, Any]:
    """The entries of `model.json` that, with the model's settings, identify a run's weights."""
    return {"run": name, "variant": run.variant, "image_size": image_size, "seeds": run.seeds}


def weights_file(seed: int) -> str:
    """The name of the file with the weights of a run's seed."""
    return f"seed-{seed}.safetensors"


def save_run(
    folder: Path, name: str, run: RunSettings, image_size: int, data_sha256: str, code: str, trained: Trained
) -> None:
    """Write a trained run's weights, one file per seed, and their description `model.json`.

    The description has the settings and the hashes of the data set and the code. So a stage that depends on the folder
    runs again after a change of any of these, even if the weights stay the same.
    """
    files = {weights_file(seed): weights for seed, weights in zip(run.seeds, trained.parameters, strict=True)}
    for file, weights in files.items():
        save_tensors(folder / file, weights, {})
    made_by = {"settings": run.model_dump(mode="json"), "data_sha256": data_sha256, "code": code}
    hashes = {file: tensors_sha256(weights) for file, weights in files.items()}
    found = {"best_epoch": trained.best_epoch, "weights": hashes}
    write_json(folder / SUMMARY, {**_identity(name, run, image_size), **made_by, **found})


def load_run(
    build: BuildModel, folder: Path, name: str, run: RunSettings, image_size: int, device: torch.device
) -> list[Model]:
    """The trained models of a run, one per replica. `UserError` if weights are missing, damaged or of another model."""
    prepare(device)
    summary, asked = folder / SUMMARY, _identity(name, run, image_size)
    try:
        content = json.loads(summary.read_text(encoding="utf-8"))
        found, hashes = {key: content[key] for key in asked}, dict(content["weights"])
        # A setting that was added after the training gets its default value, with which the code works as before.
        model = type(run).model_validate(content["settings"]).model if found == asked else None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{summary} is missing or damaged: train the run again, or `dvc pull` it.") from None
    if model != run.model:
        raise UserError(f"{summary} is of another model or run (there: {found}; asked for: {asked}): train it again.")
    loaded = []
    for seed in run.seeds:
        path = folder / weights_file(seed)
        parameters, header = load_tensors(path, device)
        if header["sha256"] != hashes.get(path.name):
            raise UserError(f"{path} belongs to another training than {summary}: train the run again.")
        loaded.append(parameters)
    try:
        return _models(build(run, image_size).to(device), loaded)
    except RuntimeError as error:  # names or shapes of weights differ from the model's
        raise UserError(f"{folder} does not fit the model of run '{name}', train it again: {error}") from None
