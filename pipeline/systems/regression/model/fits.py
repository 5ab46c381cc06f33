"""Complete fits on the images of a data set: their inputs, their checkpoints, and their errors."""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.data.datasets import PARTS, Dataset
from pipeline.learning.checkpoints import Checkpoint, fingerprint
from pipeline.systems.regression.model.architectures import Architecture, class_scores
from pipeline.systems.regression.model.expectation_maximisation import CHUNK, Examples, Problems
from pipeline.systems.regression.model.schedule import State, fit
from pipeline.systems.regression.settings import ScheduleParams


@dataclass(frozen=True)
class Inputs:
    """Inputs and classes by part: `train`, `validation`, `test`.

    Attributes:
        X: inputs `[n, p]`, float32.
        y: classes `[n]`.
        basis: matrix `[pixels, p]` from images in [0, 1] to inputs.
        classes: number of classes.
        images: images `[n, 1, S, S]`, uint8.
        checkpoints: folder for checkpoints of unfinished fits, or None without checkpoints.
        depends: JSON values that a fit depends on besides its own settings.
    """

    X: dict[str, Tensor]
    y: dict[str, Tensor]
    basis: Tensor
    classes: int
    images: dict[str, NDArray[np.uint8]]
    checkpoints: Path | None = None
    depends: dict[str, Any] = field(default_factory=dict)

    def without_validation(self) -> tuple[Tensor, Tensor]:
        """Inputs and classes of the training part, followed by the validation part."""
        X, y = (torch.cat([each["train"], each["validation"]]) for each in (self.X, self.y))
        return X, y


def build_inputs(dataset: Dataset, features: int, device: torch.device) -> Inputs:
    """The inputs of each part: its images, projected onto the `features` leading right singular vectors of the training
    images, or onto all if there are fewer (document 002, section 3.1). Images are not centred.
    """
    images = {part: dataset.part(part)[0] for part in PARTS}

    def blocks(part: str, dtype: torch.dtype) -> Iterator[Tensor]:
        for rows in torch.from_numpy(images[part]).flatten(1).split(8192):
            yield rows.to(device, dtype) / 255

    moment = torch.zeros(2 * [images["train"][0].size], dtype=torch.float64, device=device)
    for block in blocks("train", torch.float64):
        moment.addmm_(block.T, block)
    basis = torch.linalg.eigh(moment)[1].flip(1)[:, :features].contiguous()
    return Inputs(
        {part: torch.cat([block @ basis.float() for block in blocks(part, torch.float32)]) for part in PARTS},
        {part: torch.from_numpy(dataset.part(part)[1]).to(device) for part in PARTS},
        basis,
        len(dataset.classes),
        images,
    )


def errors(architecture: Architecture, W: Tensor, inputs: Inputs) -> dict[str, float]:
    """The share of each part's inputs that weights `W [K, C, d, p]` misclassify, or nan for an empty part."""
    wrong = {part: decisions(architecture, W, X) != inputs.y[part] for part, X in inputs.X.items()}
    return {part: int(each.sum()) / len(each) if len(each) else math.nan for part, each in wrong.items()}


def decisions(architecture: Architecture, W: Tensor, X: Tensor) -> Tensor:
    """The classes `[n]` that weights `W [K, C, d, p]` assign inputs `X [n, p]` to."""
    return torch.cat([class_scores(architecture, W, rows).argmax(1) for rows in X.split(CHUNK)])


def fit_architecture(
    inputs: Inputs, architecture: Architecture, schedule: ScheduleParams, ridge: float = 0.0
) -> tuple[Tensor, dict[str, float]]:
    """Fit an architecture to the training part, from the subspace start. The validation part ends the rounds. Raises
    `ValueError` if a class has no examples, a capsule's examples span too few dimensions, or all inputs are zero.

    Returns:
        weights `[K, C, d, p]` in the inputs' own coordinates, float32; the `errors` of each part, the number of
        `iterations` (the maximum over the problems), and the `seconds` of this call without the errors.
    """
    begun = time.perf_counter()
    problems = Problems(inputs.X["train"], inputs.y["train"], architecture, ridge=ridge)
    settings = {"schedule": schedule.model_dump(mode="json"), "ridge": ridge, "torch": torch.__version__}
    settings |= {"decision": architecture.decision, "size": architecture.size, **inputs.depends}
    kept_at = Checkpoint(inputs.checkpoints, fingerprint(**settings)) if inputs.checkpoints else None
    W = problems.subspace_start()
    kept = kept_at.load(W.device) if kept_at else None

    def keep(state: State, *, force: bool = False) -> None:
        if kept_at:
            kept_at.save(vars(state), {}, force=force)

    validation = problems.sort(inputs.X["validation"], inputs.y["validation"])
    state, _ = fit(problems, W, validation, schedule, state=State(**kept[0]) if kept else None, look=keep)
    keep(state, force=True)
    W, most = problems.own_coordinates(state.best).float(), int(state.iterations.max())
    seconds = time.perf_counter() - begun
    return W, {**errors(architecture, W, inputs), "iterations": most, "seconds": seconds}


def fit_without_validation(
    problems: Problems, W: Tensor, momentum: float, threshold: float, iterations: int
) -> pd.DataFrame:
    """The history (see `schedule.fit`) of a fit from weights `W`: `iterations` iterations with one threshold."""
    nothing = Examples(problems.examples.inputs[:0], [0] * problems.architecture.classes)
    schedule = ScheduleParams(
        momentum=momentum, thresholds=[threshold], patience=[iterations + 1], most_iterations=iterations
    )
    return fit(problems, W, nothing, schedule)[1]
