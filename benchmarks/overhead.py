"""What the pipeline costs beside the work itself: tracking, checkpoints, commands."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.generative import IMAGE, ROOT, paper_run
from benchmarks.machine import Budget
from benchmarks.rows import Mark, Row, allowance, duration
from pipeline.layout import Layout
from pipeline.learning import train as learning
from pipeline.learning.checkpoints import Checkpoint
from pipeline.learning.settings import AugmentationParams, TrainingParams
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.tracking import Store, TrackedRun

IMAGES, VALIDATION, BATCH = 1200, 237, 64
"""As in the quick profile, whose short epochs make tracking cost most."""

MOST = Mark(5.0, "the most allowed")


@dataclass
class Cost:
    """Seconds of one training.

    Attributes:
        total: from before the run is opened until it is closed.
        inside: spent in the callbacks that track and save.
        around: opening and closing the tracked run.
        delivery: CPU time of the process that delivers to MLflow.
    """

    total: float
    inside: float = 0.0
    around: float = 0.0
    delivery: float = 0.0


class _TimedCheckpoint(Checkpoint):
    """A checkpoint that adds up how long saving takes."""

    spent = 0.0

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any], force: bool = False) -> None:
        start = time.perf_counter()
        super().save(tensors, state, force)
        self.spent += time.perf_counter() - start


@contextmanager
def _without_bars() -> Iterator[None]:
    """The training loop without its own progress bar."""
    before = learning.tqdm
    learning.tqdm = functools.partial(tqdm, disable=True)  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        learning.tqdm = before  # type: ignore[misc]


def _trainer(device: torch.device, images: int, epochs: int) -> Callable[..., object]:
    """A real training of the model at the paper's sizes on made-up images; takes `checkpoints` and `on_epoch`."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (images + images // 5, 1, IMAGE, IMAGE), dtype=np.uint8)
    rates: dict[str, Any] = {"learning_rate": 1e-3, "final_learning_rate": 1e-4, "decay": "cosine"}
    training = TrainingParams(
        epochs=epochs, batch_size=BATCH, optimiser="adam", gradient_clip=1e3, patience=epochs, averaging=0.0, **rates
    )
    still = AugmentationParams(rotation=0.0, shift=0.0, whole_pixels=False)
    params = paper_run().model

    def run(**tracking: Any) -> object:
        parts = [(each, np.zeros(len(each), np.int64)) for each in (pixels[:images], pixels[images:])]
        task = learning.Task(lambda: GenerativeModel(params, IMAGE), training, still, *parts)
        return learning.train(task, [0], device, **tracking)

    return run


def _plain(train: Callable[..., object]) -> Cost:
    start = time.perf_counter()
    train()
    return Cost(time.perf_counter() - start)


def _tracked(train: Callable[..., object], folder: Path) -> Cost:
    """The same training with everything a stage does beside it: a run in MLflow, metrics per epoch, checkpoints."""
    inside = 0.0
    start = time.perf_counter()
    store = Store(f"sqlite:///{folder / 'mlflow.db'}", folder / "artifacts")
    run = TrackedRun(folder / "runs", experiment="benchmarks", name="overhead", store=store)
    run.log_tags({"benchmark": "overhead"})
    around = time.perf_counter() - start
    checkpoint = _TimedCheckpoint(folder / "resume", run.id)

    def on_epoch(row: dict[str, float]) -> None:
        nonlocal inside
        begin = time.perf_counter()
        values = {f"{name}/{row['replica']:.0f}": value for name, value in row.items()}
        run.log_metrics(values, step=int(row["epoch"]))
        inside += time.perf_counter() - begin

    train(checkpoints=[checkpoint], on_epoch=on_epoch)
    begin = time.perf_counter()
    run.finish()
    end = time.perf_counter()
    return Cost(end - start, inside + checkpoint.spent, around + end - begin, _delivery_seconds(run))


def _delivery_seconds(run: TrackedRun) -> float:
    """CPU time of the delivering process until it has delivered a finished run; it is then ended."""
    (process,) = psutil.Process().children()
    size = str(run.journal.path.stat().st_size)
    while not any(path.read_text() == size for path in run.journal.folder.glob("delivered-*")):
        time.sleep(0.1)
    used = process.cpu_times()
    process.kill()
    process.wait()
    return float(used.user + used.system)


def _epochs(device: torch.device, limit: float, budget: Budget) -> int:
    """How many epochs of a training take about `limit` seconds; at least 4."""
    for images in (2 * BATCH, IMAGES):  # the first to warm up
        budget.show("training, one epoch")
        epoch = _plain(_trainer(device, images, 1)).total
    return max(4, int(limit / epoch))


def tracking(device: torch.device, limit: float, budget: Budget, quick: bool = False) -> list[Row]:
    """A short training with tracking and checkpoints against the same one without: in pairs, the second reversed."""
    images, pairs = (BATCH, 1) if quick else (IMAGES, 2)
    with tempfile.TemporaryDirectory() as folder, _without_bars():
        epochs = 2 if quick else _epochs(device, limit / (2 * pairs), budget)
        train = _trainer(device, images, epochs)
        plain, tracked = [], []
        for pair in range(pairs):
            for with_tracking in (False, True) if pair % 2 == 0 else (True, False):
                budget.show("training, tracked" if with_tracking else "training, plain")
                if with_tracking:
                    tracked.append(_tracked(train, Path(folder, str(pair))))
                else:
                    plain.append(_plain(train))
    base = median(cost.total for cost in plain)
    share = median(a.total / b.total - 1 for a, b in zip(tracked, plain, strict=True))
    inside = median(cost.inside for cost in tracked)
    around = median(cost.around for cost in tracked)
    delivery = median(cost.delivery for cost in tracked)
    length = f"{epochs} epochs of {images} images in {base:.0f} s, {pairs} pair{'s' if pairs > 1 else ''}"
    wall = f"wall time with them against without: {length}; MLflow's start, beside it, is most of it"
    waited = "time that the training itself waits for them"
    beside = "in one process for all stages, beside the training; most of it importing MLflow"
    rows = [
        duration("pipeline: tracking and checkpoints, half a minute", 100 * share, "% of training", note=wall),
        allowance("pipeline: tracking and checkpoints, waiting", 100 * inside / base, "% of training", MOST, waited),
        duration("pipeline: opening and closing a tracked run", around, "s", note="once per stage"),
        duration("pipeline: delivering to MLflow", delivery, "s of CPU time", note=beside),
    ]
    full = _recorded_training()
    if full is not None and not quick:
        name, seconds = full
        # Delivery takes one core from those that train.
        fixed = around + delivery / (torch.get_num_threads() if device.type == "cpu" else 1)
        total = 100 * (inside / base + fixed / seconds)
        note = f"the parts above for {name}, which trained for {seconds:.0f} s, with MLflow started for it alone"
        rows.append(allowance("pipeline: tracking and checkpoints, quick profile", total, "% of training", MOST, note))
    return rows


def _recorded_training() -> tuple[str, float] | None:
    """The quick profile's capsule training on a CPU, if it was reproduced: its name and seconds."""
    path = Layout(ROOT, "quick").records_folder / "train" / "capsules-digits.json"
    if not path.exists():
        return None
    return path.stem, float(json.loads(path.read_text(encoding="utf-8"))["record"][0]["seconds"])


def commands(budget: Budget, quick: bool = False) -> tuple[list[Row], list[str]]:
    """How fast commands answer; and notes on what could not be measured."""
    rows = []
    for module in ("pipeline", "stages.train"):
        budget.show(f"{module} --help")
        taken = [_run("-m", module, "--help")[0] for _ in range(1 if quick else 3)]
        most = Mark(1.0, "the most allowed")
        rows.append(allowance(f"pipeline: python -m {module} --help", median(taken), "s", most, "median"))
    if quick:
        return rows, []
    if importlib.util.find_spec("dvc") is None or not (ROOT / "dvc.lock").exists():
        return rows, ["dvc repro with nothing to do: not measured, nothing is reproduced here"]
    budget.show("dvc repro --dry")
    _, code, said = _run("-m", "dvc", "repro", "--dry")
    if code or "up to date" not in said:
        return rows, ["dvc repro with nothing to do: not measured, there is something to do"]
    budget.show("dvc repro")
    taken = [_run("-m", "dvc", "repro")[0] for _ in range(2)]
    rows.append(allowance("pipeline: dvc repro with nothing to do", min(taken), "s", Mark(10.0, "the most allowed")))
    return rows, []


def _run(*arguments: str) -> tuple[float, int, str]:
    """Seconds, exit code and output of a Python command in the repository."""
    start = time.perf_counter()
    result = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return time.perf_counter() - start, result.returncode, result.stdout + result.stderr
