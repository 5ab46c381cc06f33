"""Complete fits of one architecture on a data set, which continue after an interruption, and their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pipeline.learning.checkpoints import Checkpoint, fingerprint
from pipeline.systems.regression.model.architectures import Architecture, class_scores
from pipeline.systems.regression.model.expectation_maximisation import Examples, Problems
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.model.schedule import Fit, Round, State, fit

if TYPE_CHECKING:
    from pipeline.systems.regression.settings import ScheduleParams

CHUNK = 16_384
KeepAt = Callable[..., Checkpoint | None]
"""Returns the checkpoint of a fit that depends on the given JSON values."""


def no_checkpoints(**depends: Any) -> None:
    """No checkpoint."""
    return


def checkpoints_in(folder: Path, code: str, **common: Any) -> KeepAt:
    """Checkpoints in a folder, for fits that also depend on `common` and on the code (its hash)."""

    def keep_at(**depends: Any) -> Checkpoint:
        return Checkpoint(folder, fingerprint(**common, **depends, code=code, torch=torch.__version__))

    return keep_at


@dataclass(frozen=True)
class Fitted:
    """A fit by the schedule, in the inputs' own coordinates.

    Attributes:
        W: `[K, C, d, p]`, float32.
        iterations: sum over the problems; `most`: maximum over the problems.
        seconds: duration of the whole fit, including the start.
    """

    architecture: Architecture
    W: Tensor
    iterations: int
    most: int
    seconds: float

    def errors(self, inputs: Inputs) -> dict[str, float]:
        """The error on each part."""
        return errors(self.architecture, self.W, inputs)


def errors(architecture: Architecture, W: Tensor, inputs: Inputs) -> dict[str, float]:
    """Error of weights `W [K, C, d, p]` on each part, as a share of its inputs; nan if the part is empty."""
    return {part: _error(architecture, W, inputs.X[part], inputs.y[part]) for part in inputs.X}


def _error(architecture: Architecture, W: Tensor, X: Tensor, y: Tensor) -> float:
    if not len(X):
        return float("nan")
    wrong = [
        (class_scores(architecture, W, rows).argmax(1) != labels).sum()
        for rows, labels in zip(X.split(CHUNK), y.split(CHUNK), strict=True)
    ]
    return float(torch.stack(wrong).sum()) / len(X)


def rounds_of(schedule: ScheduleParams) -> list[Round]:
    """The schedule's rounds."""
    pairs = zip(schedule.thresholds, schedule.patience, strict=True)
    return [Round(threshold, patience) for threshold, patience in pairs]


def fit_architecture(
    inputs: Inputs,
    architecture: Architecture,
    schedule: ScheduleParams,
    *,
    ridge: float = 0.0,
    keep_at: KeepAt = no_checkpoints,
) -> Fitted:
    """Fit an architecture to the training part from the subspace start; the validation part ends the rounds.

    Raises:
        ValueError: a class has too few examples for its capsule.
    """
    begun = time.perf_counter()
    problems = Problems(inputs.X["train"], inputs.y["train"], architecture, ridge=ridge)
    validation = problems.sort(inputs.X["validation"], inputs.y["validation"])
    checkpoint = keep_at(
        schedule=schedule.model_dump(mode="json"),
        ridge=ridge,
        decision=architecture.decision,
        sizes=architecture.sizes.tolist(),
    )
    result = _resumed(problems, validation, schedule, checkpoint)
    return Fitted(
        architecture,
        problems.own_coordinates(result.W).float(),
        int(result.iterations.sum()),
        int(result.iterations.max()),
        time.perf_counter() - begun,
    )


def _resumed(problems: Problems, validation: Examples, schedule: ScheduleParams, checkpoint: Checkpoint | None) -> Fit:
    W = problems.subspace_start()
    kept = checkpoint.load(W.device) if checkpoint else None
    last: list[State] = []

    def look(state: State) -> None:
        last[:] = [state]
        if checkpoint:
            checkpoint.save(vars(state), {})

    result = fit(
        problems,
        W,
        validation,
        momentum=schedule.momentum,
        rounds=rounds_of(schedule),
        most_iterations=schedule.most_iterations,
        state=State(**kept[0]) if kept else None,
        look=look,
    )
    if checkpoint and last:
        checkpoint.save(vars(last[0]), {}, force=True)
    return result


def parameters(architecture: Architecture, features: int) -> int:
    """Number of weights in all matrices."""
    return int(architecture.sizes.sum()) * features


def by_class(y: Tensor, wrong: Tensor, classes: int) -> Sequence[float]:
    """Share of misclassified examples, by class."""
    counts = torch.bincount(y, minlength=classes).clamp_min(1)
    return [float(share) for share in torch.bincount(y[wrong], minlength=classes) / counts]


def everything(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and validation part together, for studies without validation."""
    parts = ("train", "validation")
    return torch.cat([inputs.X[part] for part in parts]), torch.cat([inputs.y[part] for part in parts])


def nothing(problems: Problems) -> Examples:
    """An empty set of validation examples."""
    return Examples(problems.examples.inputs[:0], [0] * len(problems.examples.bounds))
