"""A run from parameters to weights and back, and a training killed in the middle of an epoch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from records import load_record, tracked_events
from small import SIZE, small_params, small_run, squares, training, write_root

from pipeline.errors import UserError
from pipeline.learning.checkpoints import load_tensors, save_tensors
from pipeline.learning.model import Model
from pipeline.learning.runs import (
    Setup,
    load_run,
    outcome,
    save_run,
    train_run,
    weights_file,
)
from pipeline.learning.train import Trained
from pipeline.systems import Run, build_model
from pipeline.tracking import TrackedRun
from stages import train as train_stage

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
HOLDOUT = {"factor": "azimuth", "value": 40, "known_share": 0.25}


def trained_with_models(
    folder: Path, run: Run, digest: str = "0123", code: str = "89ab", **changes: Any
) -> tuple[Trained, list[Model]]:
    setup = Setup(build_model, CPU, folder / "resume", lambda variant: f"{variant} {code}")
    tracked = TrackedRun(folder / "tracking", experiment="e", name="n")
    found = train_run(setup, run, squares(), digest, tracked, **changes)
    tracked.finish()
    return found


def trained(folder: Path, run: Run, **changes: Any) -> Trained:
    return trained_with_models(folder, run, **changes)[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained, list[Model]]:
    """The folder of a trained run called "mine", and what was saved there."""
    folder, run = tmp_path_factory.mktemp("saved"), small_run("vae")
    found, models = trained_with_models(folder, run)
    save_run(folder / "model", "mine", run, SIZE, "0123", "89ab", found)
    return folder / "model", found, models


def test_weights_come_back_as_the_models_that_were_trained(saved: tuple[Path, Trained, list[Model]]) -> None:
    run, (folder, found, just_ended) = small_run("vae"), saved
    models = load_run(build_model, folder, "mine", run, SIZE, CPU)
    assert len(models) == len(just_ended) == 2
    for index, pair in enumerate(zip(models, just_ended, strict=True)):
        for model in pair:
            assert not model.training
            for name, value in model.named_parameters():
                assert torch.equal(value, found.parameters[index][name])
    summary = json.loads((folder / "model.json").read_text())
    assert summary["best_epoch"] == found.best_epoch
    assert summary["settings"] == run.model_dump(mode="json")
    assert (summary["data_sha256"], summary["code"]) == ("0123", "89ab")
    assert list(summary["weights"]) == ["seed-3.safetensors", "seed-4.safetensors"]


@pytest.fixture
def folder(saved: tuple[Path, Trained, list[Model]], tmp_path: Path) -> Path:
    """A copy of the folder of that run."""
    return shutil.copytree(saved[0], tmp_path / "model")


def refused(folder: Path, name: str = "mine", run: Run | None = None, size: int = SIZE) -> str:
    with pytest.raises(UserError) as caught:
        load_run(build_model, folder, name, run or small_run("vae"), size, CPU)
    return str(caught.value)


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "yours"},
        {"run": small_run()},
        {"size": 28},
        {"run": small_run("vae", model={"hidden": 9})},
        {"run": small_run("vae", seed=4)},
    ],
)
def test_weights_that_are_not_those_asked_for_are_refused_by_name(folder: Path, asked: dict[str, Any]) -> None:
    assert refused(folder, **asked).startswith(f"{folder / 'model.json'} is of another model")


def test_damaged_weights_and_those_of_another_training_are_refused(folder: Path) -> None:
    """As a training leaves them that was interrupted between two of its files."""
    path, summary = folder / weights_file(4), folder / "model.json"
    tensors, _ = load_tensors(path)
    save_tensors(path, {**tensors, "encoder.1.bias": tensors["encoder.1.bias"] + 1}, {})
    assert "seed-4.safetensors belongs to another training" in refused(folder)
    del tensors["encoder.1.bias"]
    save_tensors(path, tensors, {})
    content = json.loads(summary.read_text())
    content["weights"][path.name] = load_tensors(path)[1]["sha256"]
    summary.write_text(json.dumps(content))
    assert "does not fit the model of run 'mine'" in refused(folder)
    (folder / weights_file(3)).unlink()
    assert "seed-3.safetensors is missing" in refused(folder)
    for damaged in ("", "{}", json.dumps(content | {"weights": 3})):
        summary.write_text(damaged)
        assert "model.json is missing or damaged" in refused(folder)


@pytest.mark.parametrize(("replicas", "part"), [(1, ""), (2, "hidden=9")])
def test_every_epoch_is_tracked_and_means_over_seeds_by_plain_names(tmp_path: Path, replicas: int, part: str) -> None:
    history = trained(tmp_path, small_run("vae", replicas=replicas), part=part).history
    events = tracked_events(tmp_path / "tracking")
    metrics = [event for event in events if event["event"] == "metrics"]
    logged = {(name, event["step"]): value for event in metrics for name, value in event["values"].items()}
    assert all(name.startswith(f"{part}/") for name, _ in logged if part)
    logged = {(name.removeprefix(f"{part}/"), step): value for (name, step), value in logged.items()}
    names = {name for name, _ in logged}
    assert not {name for name in names if name.startswith(("epoch", "replica"))}
    assert ("validation_loss/1" in names) == (replicas == 2)
    for epoch, rows in history.groupby("epoch"):
        assert logged["validation_loss", epoch] == pytest.approx(rows["validation_loss"].mean())
    for row in history.to_dict("records") if replicas == 2 else ():
        assert logged[f"train_gradient_norm/{row['replica']:.0f}", row["epoch"]] == row["train_gradient_norm"]


def test_whatever_changes_finds_no_old_checkpoint(tmp_path: Path) -> None:
    """Parameters, data, code, seed, start, frozen parameters."""

    def checkpoints(run: Any, **changes: Any) -> int:
        trained(tmp_path, run, **changes)
        return len(list((tmp_path / "resume").glob("*/checkpoint.safetensors")))

    short = training(epochs=1)
    run = small_run("vae", replicas=1, training=short.model_dump())
    assert checkpoints(run) == checkpoints(run) == 1
    assert checkpoints(run, digest="4567") == 2
    assert checkpoints(run.model_copy(update={"training": training(epochs=2)})) == 3
    assert checkpoints(run.model_copy(update={"seed": 4})) == 4
    both = run.model_copy(update={"replicas": 2})
    assert checkpoints(both) == 4, "each seed was trained alone"
    assert checkpoints(run, code="cdef") == 5
    start = [{"encoder.1.bias": torch.zeros(8)}] * 2
    moved = [start[0], {"encoder.1.bias": torch.full((8,), 0.1)}]
    assert checkpoints(both, start=start) == checkpoints(both, start=start) == 7
    assert checkpoints(both, start=moved) == 8, "the first replica starts as before"
    assert checkpoints(both, start=start, frozen=["encoder.1.bias"]) == 10
    cnn = small_run("cnn", replicas=1, training=short.model_dump())
    assert checkpoints(cnn) == 11
    assert checkpoints(cnn.model_copy(update={"holdout": small_run("cnn", holdout=HOLDOUT).held_out})) == 12


def test_a_seed_trained_before_takes_its_new_place_and_is_tracked_again(tmp_path: Path) -> None:
    run = small_run("vae", replicas=2, training=training(epochs=1).model_dump())
    moved = run.model_copy(update={"seed": run.seed + 1})
    first, again = trained(tmp_path, run), trained(tmp_path, moved)
    assert again.history["replica"].tolist() == [0, 1]
    same = [name for name in again.history.columns if name.startswith("validation_")]
    assert again.history[same].iloc[0].tolist() == first.history[same].iloc[1].tolist()
    assert outcome(again, build_model(moved, SIZE)).numbers["best_epoch"]["n"] == 2
    kinds = [event["event"] for event in tracked_events(tmp_path / "tracking")]
    assert kinds.count("metrics") == 6, "each run holds the epochs of both its replicas, and their mean"


def test_the_summary_takes_each_replicas_best_epoch() -> None:
    columns = ["replica", "epoch", "train_loss", "validation_loss", "validation_bound", "images_per_second"]
    rows = [
        (0, 1, 5.0, 4.0, -4.0, 100.0),
        (0, 2, 3.0, 2.0, -2.0, 300.0),
        (0, 3, 2.0, 3.0, -3.0, 200.0),
        (1, 1, 5.0, 6.0, -6.0, 100.0),
        (1, 2, 1.0, 7.0, -7.0, 100.0),
    ]
    result = Trained({}, pd.DataFrame(rows, columns=columns), [2, 1], 1.234)
    found = outcome(result, build_model(small_run("vae"), SIZE))
    summary = found.numbers
    assert summary["validation"]["bound"] == {"mean": -4.0, "sd": pytest.approx(8**0.5), "n": 2}
    assert summary["epochs"]["mean"] == 2.5
    assert summary["images_per_second"]["mean"] == 150.0
    assert summary["parameters"]["generative"] == 3 * 8 + 8 + 8 * 144 + 144
    assert summary["parameters"]["total"] == summary["parameters"]["generative"] + 144 * 8 + 8 + 8 * 6 + 6
    assert found.headline == ("validation.loss", "validation.bound")
    pd.testing.assert_frame_equal(found.table, result.history[columns[:-1]], check_exact=True)
    shuffled = Trained({}, result.history[columns[::-1]].astype(float), [2, 1], 1.234)
    table = outcome(shuffled, build_model(small_run("vae"), SIZE)).table
    assert table.to_csv(index=False).splitlines()[1] == "0,1,-4.0,4.0,5.0", "whole replicas and epochs"


KILLED = """
import os, signal
from pipeline.learning import train as learning
from stages import train

clip, steps = learning.clip, iter(range(10**6))

def fatal(gradients, largest):
    if next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    return clip(gradients, largest)

learning.clip = fatal
train.main("capsules")
"""


def killed(root: Path, step: int) -> None:
    """The train stage in `root`, ended by SIGKILL in a step, counted from its start or from where it resumes."""
    process = subprocess.run(
        [sys.executable, "-c", KILLED.format(step=step)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr


@pytest.mark.slow
def test_killed_in_mid_epoch_and_run_again_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 in epoch 3 of the first replica, again in epoch 2 of the second, then through: weights, history and
    metrics are those of an undisturbed run, and the tracked run that ends has every epoch once."""
    augmentation = {"rotation": 30.0, "shift": 1.0, "whole_pixels": False}
    run = small_run(augmentation=augmentation, training=training(epochs=4).model_dump())
    whole, cut = (write_root(tmp_path / name, small_params(capsules=run)) for name in ("whole", "cut"))
    monkeypatch.chdir(whole)
    train_stage.main("capsules")

    killed(cut, step=2 * 3 + 1)
    assert len(list((cut / ".cache/resume").glob("*/checkpoint.safetensors"))) == 1
    assert not (cut / "models").exists()
    # Of the first replica the first epoch is kept: the next checkpoint would come ten seconds later.
    killed(cut, step=3 * 3 + 3 + 1)
    assert len(list((cut / ".cache/resume").glob("*/checkpoint.safetensors"))) == 2
    assert not list(cut.rglob("*.part")), "nothing half-written is left"
    monkeypatch.chdir(cut)
    train_stage.main("capsules")

    for seed in run.seeds:
        file = f"models/capsules/{weights_file(seed)}"
        assert (cut / file).read_bytes() == (whole / file).read_bytes()
    first, second = (pd.read_csv(root / "reports/small/results/train/capsules.csv") for root in (whole, cut))
    assert len(first) == 8
    pd.testing.assert_frame_equal(first, second, check_exact=True)
    metrics = [load_record(root / "reports/small/results/train/capsules.json") for root in (whole, cut)]
    for changing in ("seconds", "images_per_second", "provenance"):
        for each in metrics:
            del each[changing]
    assert metrics[0] == metrics[1]

    journals = [path.read_text() for path in (cut / ".tracking").glob("*/events.jsonl")]
    (ended,) = (journal for journal in journals if "FINISHED" in journal)
    events = [json.loads(line) for line in ended.split("\n\n")]
    logged = [(key, event["step"]) for event in events if event["event"] == "metrics" for key in event["values"]]
    assert len(logged) == len(set(logged)), "no epoch is logged twice"
    assert {step for key, step in logged if key == "validation_loss/1"} == {1, 2, 3, 4}


def test_both_errors_stand_in_the_history_and_in_the_numbers(tmp_path: Path) -> None:
    run = small_run("cnn", holdout=HOLDOUT)
    found = trained(tmp_path, run)
    assert {"validation_loss", "validation_accuracy", "known_loss", "known_accuracy"} < set(found.history.columns)
    told = outcome(found, build_model(run, 10))
    at_best = [
        found.history.query("replica == @replica and epoch == @epoch")["known_accuracy"].item()
        for replica, epoch in enumerate(found.best_epoch)
    ]
    assert told.numbers["known"]["accuracy"]["mean"] == pytest.approx(np.mean(at_best))
    assert {"validation.accuracy", "known.accuracy"} < set(told.headline)
    assert "known" not in outcome(trained(tmp_path, small_run("cnn")), build_model(run, 10)).numbers
