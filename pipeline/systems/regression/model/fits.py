"""Fits of capsule regression: EM with momentum, in rounds with early stopping (document 002, section 3.1).

    W(t+1) = EM_nu(W(t)) + gamma (W(t) - W(t-1))                                             (equation 27)

W(t) are the weights after iteration t, EM_nu is an iteration of EM with threshold nu (equation 26), and gamma is the
momentum. Each round has its own nu, and ends after `patience` iterations without a new lowest validation error. The
next round starts from the best weights so far, and its first iteration has no momentum. The problems of an architecture
(see `architectures`) go through the rounds independently of each other.

The best weights are those with the fewest validation errors. The document does not say which weights to choose if
several have equally few errors. We choose the weights with the highest validation likelihood. The earliest weights are
a worse choice: a small problem may have no errors after a few iterations, with weights close to the start. For a
problem without validation examples, such as a pair of rare classes, the latest weights count as the best.

`fit` takes any examples. `fit_architecture` takes images of a data set, projected onto singular vectors (`Inputs`).
"""

import math
import time
from collections.abc import Callable, Iterator
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
from pipeline.systems.regression.settings import ScheduleParams

LOOK_EVERY = 16
"""Number of iterations between checks of which problems have finished. Checks are rare: each waits for the GPU."""


@dataclass
class State:
    """The state of the fits of K problems. Every tensor has K rows.

    Attributes:
        W, previous: current and previous weights, `[K, C, d, r]`: C capsules of size d, whitened inputs of r numbers.
        best, fewest, likelihood: best weights so far; their number of errors and log-likelihood on validation data.
        waited: number of iterations since `fewest` last fell or the round began, whichever is later.
        round: index of the current round, from 0. After the last round, it is the number of rounds.
    """

    W: Tensor
    previous: Tensor
    best: Tensor
    fewest: Tensor
    likelihood: Tensor
    waited: Tensor
    round: Tensor
    iterations: Tensor


def fit(
    problems: Problems,
    W: Tensor,
    validation: Examples,
    schedule: ScheduleParams,
    *,
    state: State | None = None,
    look: Callable[[State], None] = lambda state: None,
) -> tuple[State, pd.DataFrame]:
    """Fit every problem by the schedule, from weights `W [K, C, d, r]`.

    Args:
        validation: examples from `Problems.sort`. Their errors decide when a round ends and which weights are best.
        state: a state from which to continue, in place of `W`. The history then has only iterations after this state.
        look: called every `LOOK_EVERY` iterations with the state of all problems.

    Returns:
        the last state, in which `best` has the fitted weights; and the history, a table with a row for each iteration
        of each problem. Its columns `log_loss` and `error` are measured on training examples before the iteration,
        `validation_error` after it. `log_loss` is -L / (n log C), where L is the log-likelihood of n examples, so it is
        1 if all C capsules are equally probable. The first `iteration` is 1.
    """
    everyone, architecture = torch.arange(len(W)), problems.architecture
    counts = [  # the number of training and of validation examples of each problem
        architecture.sum_seen(torch.tensor(part.counts)).expand(len(W)) for part in (problems.examples, validation)
    ]
    blind = (counts[1] == 0).to(W.device)  # problems without validation examples
    if state is None:
        held = problems.passed(W, everyone, None, validation)
        zeros = [torch.zeros(len(W), dtype=torch.long, device=W.device) for _ in range(3)]
        state = State(W.clone(), W.clone(), W.clone(), held.errors, held.log_likelihood, *zeros)
    # The last entries are for problems that have finished all rounds, but continue to iterate until the next check.
    thresholds = torch.tensor([*schedule.thresholds, 0.0], dtype=W.dtype, device=W.device)
    patience = torch.tensor([*schedule.patience, 1], device=W.device)

    def are_working(state: State) -> Tensor:
        return (state.round < len(schedule.thresholds)) & (state.iterations < schedule.most_iterations)

    def iterate(now: State, active: Tensor, at: Tensor) -> Tensor:
        """Run one iteration of k problems, and update their state `now`. `active` and `at` both have the indices of
        these problems, `active` on the CPU and `at` on the device of `W`. Returns rows of the history, `[k, 6]`.
        """
        working, nu = are_working(now), thresholds[now.round]
        statistics = problems.passed(now.W, active, nu, problems.examples)
        new = problems.update(statistics.moments, active) + schedule.momentum * (now.W - now.previous)
        held = problems.passed(new, active, None, validation)
        fewer = working & (held.errors < now.fewest)
        likelier = (held.errors == now.fewest) & (held.log_likelihood > now.likelihood)
        better = fewer | (working & (likelier | blind[at]))
        now.best = torch.where(better[:, None, None, None], new, now.best)
        now.fewest = torch.where(better, held.errors, now.fewest)
        now.likelihood = torch.where(better, held.log_likelihood, now.likelihood)
        waited = torch.where(fewer, 0, now.waited + 1)
        over = working & (waited >= patience[now.round])
        restart = over[:, None, None, None]
        now.previous, now.W = torch.where(restart, now.best, now.W), torch.where(restart, now.best, new)
        now.waited = torch.where(over, 0, waited)
        now.round = now.round + over
        now.iterations = now.iterations + working
        problem = torch.where(working, at, -1)
        columns = (problem, now.iterations, nu, statistics.log_likelihood, statistics.errors, held.errors)
        return torch.stack([column.double() for column in columns], dim=1)

    rows = [torch.empty(0, 6)]
    while len(active := everyone[are_working(state).cpu()]):
        at = active.to(W.device)
        now = State(**{name: each[at] for name, each in vars(state).items()})
        rows += [iterate(now, active, at).cpu() for _ in range(LOOK_EVERY)]
        for name, each in vars(state).items():
            each[at] = getattr(now, name)
        look(state)
    columns = ["problem", "iteration", "threshold", "log_loss", "error", "validation_error"]
    table = pd.DataFrame(torch.cat(rows).numpy(), columns=columns)
    table = table[table["problem"] >= 0].astype({"problem": int, "iteration": int}).reset_index(drop=True)
    train, held_out = (count.clamp_min(1).numpy()[table["problem"]] for count in counts)
    return state, table.assign(
        log_loss=-table["log_loss"] / (train * math.log(architecture.shape[1])),
        error=table["error"] / train,
        validation_error=table["validation_error"] / held_out,
    )


def fit_without_validation(
    problems: Problems, W: Tensor, momentum: float, threshold: float, iterations: int
) -> pd.DataFrame:
    """Fit from weights `W` with one threshold and a fixed number of iterations. Returns the history (see `fit`)."""
    nothing = Examples(problems.examples.inputs[:0], [0] * problems.architecture.classes)
    schedule = ScheduleParams(
        momentum=momentum, thresholds=[threshold], patience=[iterations + 1], most_iterations=iterations
    )
    return fit(problems, W, nothing, schedule)[1]


@dataclass(frozen=True)
class Inputs:
    """Inputs and classes of the parts `train`, `validation` and `test` of a data set.

    Attributes:
        X: inputs `[n, p]` of each part, float32.
        y: classes `[n]` of each part.
        basis: matrix `[pixels, p]` that maps images with values in [0, 1] to inputs.
        images: images `[n, 1, S, S]` of each part, uint8, with sides of S pixels.
        checkpoints: folder for checkpoints of fits, which are kept after a fit. None: no checkpoints are used.
        depends: JSON values on which fits depend besides their settings. A checkpoint with other values is not used.
    """

    X: dict[str, Tensor]
    y: dict[str, Tensor]
    basis: Tensor
    classes: int
    images: dict[str, NDArray[np.uint8]]
    checkpoints: Path | None = None
    depends: dict[str, Any] = field(default_factory=dict)

    def without_validation(self) -> tuple[Tensor, Tensor]:
        """Inputs and classes of the training part, followed by those of the validation part."""
        X, y = (torch.cat([each["train"], each["validation"]]) for each in (self.X, self.y))
        return X, y


def build_inputs(dataset: Dataset, features: int, device: torch.device) -> Inputs:
    """Project the images of each part onto the `features` leading right singular vectors of the training images, or
    onto all of them if there are fewer (document 002, section 3.1). The mean image is not subtracted.
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
    """The share of each part's inputs that weights `W [K, C, d, p]` misclassify."""
    return {part: int(misclassified(architecture, W, inputs, part).sum()) / len(X) for part, X in inputs.X.items()}


def misclassified(architecture: Architecture, W: Tensor, inputs: Inputs, part: str = "test") -> Tensor:
    """Mask `[n]` of the inputs of a part that weights `W [K, C, d, p]` misclassify."""
    return decisions(architecture, W, inputs.X[part]) != inputs.y[part]


def decisions(architecture: Architecture, W: Tensor, X: Tensor) -> Tensor:
    """The classes `[n]` to which the weights `W [K, C, d, p]` assign the inputs `X [n, p]`."""
    return torch.cat([class_scores(architecture, W, rows).argmax(1) for rows in X.split(CHUNK)])


def fit_architecture(
    inputs: Inputs, architecture: Architecture, schedule: ScheduleParams, ridge: float = 0.0
) -> tuple[Tensor, dict[str, float]]:
    """Fit an architecture to the training part, from a checkpoint if there is one, else from weights of equation 28.
    Raises `ValueError` if a class has no examples, all inputs are 0, or a capsule's examples span too few dimensions.

    Returns:
        weights `[K, C, d, p]` for `inputs`, float32; and a dictionary with the error on each part, `iterations` (the
        maximum over the problems), and `seconds` (the time of this call, without the computation of the errors).
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
