"""Incremental and online EM against batch EM, by passes over the data (document 002, section 4, left open there).

The document's own results come from batch EM with momentum (equation 27). Both batch and incremental EM are run with
and without that term.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import Inputs, errors
from pipeline.systems.regression.model.online import Incremental, Online, split
from pipeline.systems.regression.settings import OnlineStudy

Weights = Iterator[Tensor]


def run(inputs: Inputs, study: OnlineStudy) -> Outcome:
    """Log-loss on the training part and errors on all parts after every pass, by method, from the subspace start.

    All updates are plain (no threshold, and no momentum unless named): only the use of the data is compared.
    """
    architecture = build_architecture("multiclass", study.size, inputs.classes)
    problems = Problems(inputs.X["train"], inputs.y["train"], architecture)
    W = problems.subspace_start()
    methods: dict[str, Weights] = {
        "batch": _batch(problems, W, 0.0),
        "batch, momentum": _batch(problems, W, study.momentum),
        "incremental": _incremental(problems, W, study, 0.0),
        "incremental, momentum": _incremental(problems, W, study, study.momentum),
        "online": _online(problems, inputs, W, study),
    }
    rows = []
    for name, method in methods.items():
        for done, weights in zip(range(1, study.passes + 1), method, strict=False):
            rows.append({"method": name, "passes": done, **_measured(problems, weights, inputs)})
    table = pd.DataFrame(rows)
    last = {str(name): rows.iloc[-1] for name, rows in table.groupby("method")}
    numbers = {
        "last": {
            name: {key: one(row[key]) for key in ("log_loss", "train", "validation", "test")}
            for name, row in last.items()
        },
        "passes": study.passes,
        # Passes until each reaches batch EM's final log-loss, and its final validation error; inf: never.
        "reached": {
            str(name): {key: one(_first(rows, key, float(last["batch"][key]))) for key in ("log_loss", "validation")}
            for name, rows in table.groupby("method")
        },
    }
    return Outcome("online", table, numbers, tuple(f"last.{method}.test" for method in last))


def _first(rows: pd.DataFrame, key: str, value: float) -> float:
    reached = rows[rows[key] <= value + 1e-12]
    return float(reached["passes"].iloc[0]) if len(reached) else float(rows["passes"].max()) + 1


def _measured(problems: Problems, W: Tensor, inputs: Inputs) -> dict[str, float]:
    found = problems.passed(W, torch.arange(1), None, problems.examples)
    n = len(inputs.X["train"])
    return {
        "log_loss": -float(found.log_likelihood[0]) / (n * math.log(inputs.classes)),
        **errors(problems.architecture, problems.own_coordinates(W).float(), inputs),
    }


def _batch(problems: Problems, W: Tensor, momentum: float) -> Weights:
    which, previous = torch.arange(1), W
    while True:
        moments = problems.passed(W, which, W.new_zeros(1), problems.examples).moments
        W, previous = problems.update(moments, which) + momentum * (W - previous), W
        yield W


def _incremental(problems: Problems, W: Tensor, study: OnlineStudy, momentum: float) -> Weights:
    batches = split(problems.examples, study.batches, torch.Generator().manual_seed(study.seed))
    incremental = Incremental(problems, batches, W)
    incremental.update()
    yield incremental.W  # the start was a pass over the data
    while True:
        for batch in range(study.batches):
            incremental.visit(batch, momentum)
        yield incremental.W


def _online(problems: Problems, inputs: Inputs, W: Tensor, study: OnlineStudy) -> Weights:
    X, y = inputs.X["train"].double(), inputs.y["train"]
    online = Online(problems.architecture, problems.own_coordinates(W), ridge=1e-6, rate=study.rate)
    generator = torch.Generator().manual_seed(study.seed)
    while True:
        for rows in torch.randperm(len(X), generator=generator).tensor_split(study.batches):
            online.learn(X[rows.to(X.device)], y[rows.to(y.device)])
        yield problems.whitened(online.W)
