"""Benchmarks (rows of `reports/bench.json`) of the pipeline's overhead: tracking, checkpoints, commands."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.models import Where, generative_step
from benchmarks.timing import Other, Timed
from pipeline.errors import UserError
from pipeline.learning.checkpoints import Checkpoint
from pipeline.tracking import Store, TrackedRun
from pipeline.tracking.delivery import Delivery

ROOT = Path(__file__).parents[1]


def epoch(where: Where) -> Timed:
    """The overhead of a training in each epoch: 20 metrics in the journal, and a checkpoint of model and optimiser.

    The reference is the training steps of a short epoch: 1,200 images, as in the quick profile.
    """
    step = generative_step(where)
    step()
    run = TrackedRun(where.folder / "runs", experiment="benchmarks", name="overhead")
    checkpoint = Checkpoint(where.folder, "overhead")
    tensors = {name: value.detach() for name, value in step.model.named_parameters()}
    for place, state in enumerate(step.optimiser.state.values()):
        tensors |= {f"{place}/{name}": value for name, value in state.items()}

    def take() -> None:
        run.log_metrics({f"metric {place}": 0.5 for place in range(20)}, step=1)
        checkpoint.save(tensors, {}, force=True)

    return Timed(take, reference=Other(step, "the training steps of 1,200 images, same rounds", 1200 / step.batch))


def delivery(where: Where) -> Timed:
    """Opening a tracked run, logging a metric, and delivering the run to MLflow, in a process that imported MLflow."""
    folder = where.folder / "delivered"
    store = Store(f"sqlite:///{where.folder / 'mlflow.db'}", where.folder / "artifacts")

    def take() -> list[str]:
        run = TrackedRun(folder, experiment="benchmarks", name="overhead")
        run.log_metrics({"metric": 0.5}, step=1)
        run.finish()
        return list(Delivery(folder, store).run())

    return Timed(take)


def answers(module: str, where: Where) -> Timed:
    """`python -m <module> --help`. The limit is Python with nothing to do, the reference the maximum of 1 s."""
    empty = Other(lambda: _python("-c", ""), "Python with nothing to do, same rounds")
    return Timed(lambda: _python("-m", module, "--help"), "s", bound=empty, reference=Other(1.0, "the most allowed"))


def nothing_to_do(where: Where) -> Timed:
    """`dvc repro` when everything is up to date. Raises `UserError` if it is not, or if `where.quick`."""
    if where.quick or "up to date" not in _python("-m", "dvc", "repro", "--dry"):
        raise UserError("only where nothing is to be done")
    return Timed(lambda: _python("-m", "dvc", "repro"), "s", reference=Other(10.0, "the most allowed"))


def _python(*arguments: str) -> str:
    """The standard output of `python` with `arguments`, run in the repository."""
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout


ROWS: dict[str, Callable[[Where], Timed]] = {
    "pipeline: tracking and checkpoint of an epoch": epoch,
    "pipeline: a tracked run and its delivery to MLflow": delivery,
    "pipeline: python -m pipeline --help": partial(answers, "pipeline"),
    "pipeline: python -m stages.train --help": partial(answers, "stages.train"),
    "pipeline: dvc repro with nothing to do": nothing_to_do,
}
