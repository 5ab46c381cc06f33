"""Complete fits of one architecture on a data set, which continue after an interruption, and their errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pipeline.learning.checkpoints import Checkpoint, fingerprint
from pipeline.systems.regression.model.architectures import Architecture, class_scores
from pipeline.systems.regression.model.expectation_maximisation import Examples, Problems
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.model.schedule import Round, State, fit

if TYPE_CHECKING:
    from pipeline.systems.regression.settings import ScheduleParams

CHUNK = 16_384
KeepAt = Callable[..., Checkpoint | None]
"""Returns the checkpoint of a fit that depends on the given JSON values."""


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
        iterations: the maximum over the problems.
        seconds: duration of the whole fit, including the start.
    """

    architecture: Architecture
    W: Tensor
    iterations: int
    seconds: float

    def errors(self, inputs: Inputs) -> dict[str, float]:
        """The error on each part."""
        return errors(self.architecture, self.W, inputs)


def errors(architecture: Architecture, W: Tensor, inputs: Inputs) -> dict[str, float]:
    """Error of weights `W [K, C, d, p]` on each part, as a share of its inputs; nan if the part is empty."""
    return {
        part: float(wrong.sum()) / len(wrong) if len(wrong) else float("nan")
        for part in inputs.X
        for wrong in (mistakes(architecture, W, inputs.X[part], inputs.y[part]),)
    }


def mistakes(architecture: Architecture, W: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Mask of the inputs `X [n, p]` of classes `y [n]` that are misclassified."""
    return torch.cat([class_scores(architecture, W, rows).argmax(1) for rows in X.split(CHUNK)]) != y


def fit_architecture(
    inputs: Inputs,
    architecture: Architecture,
    schedule: ScheduleParams,
    keep_at: KeepAt | None = None,
    *,
    ridge: float = 0.0,
) -> Fitted:
    """Fit an architecture to the training part from the subspace start; the validation part ends the rounds.

    Raises:
        ValueError: a class has too few examples for its capsule.
    """
    begun = time.perf_counter()
    problems = Problems(inputs.X["train"], inputs.y["train"], architecture, ridge=ridge)
    checkpoint = keep_at and keep_at(
        schedule=schedule.model_dump(mode="json"),
        ridge=ridge,
        decision=architecture.decision,
        sizes=architecture.sizes.tolist(),
    )
    W = problems.subspace_start()
    kept = checkpoint.load(W.device) if checkpoint else None

    def look(state: State) -> None:
        if checkpoint:
            checkpoint.save(vars(state), {})

    state, _ = fit(
        problems,
        W,
        problems.sort(inputs.X["validation"], inputs.y["validation"]),
        momentum=schedule.momentum,
        rounds=[Round(nu, patience) for nu, patience in zip(schedule.thresholds, schedule.patience, strict=True)],
        most_iterations=schedule.most_iterations,
        state=State(**kept[0]) if kept else None,
        look=look,
    )
    if checkpoint:
        checkpoint.save(vars(state), {}, force=True)
    W, most = problems.own_coordinates(state.best).float(), int(state.iterations.max())
    return Fitted(architecture, W, most, time.perf_counter() - begun)


def everything(inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and validation part together, for studies without validation."""
    parts = ("train", "validation")
    return torch.cat([inputs.X[part] for part in parts]), torch.cat([inputs.y[part] for part in parts])


def nothing(problems: Problems) -> Examples:
    """An empty set of validation examples."""
    return Examples(problems.examples.inputs[:0], [0] * len(problems.examples.bounds))
