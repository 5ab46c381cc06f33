"""Effect of momentum and thresholds on likelihood and error (document 002, appendix B.1, Figures 6-7)."""

from __future__ import annotations

import pandas as pd
import torch

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.experiments import Extras
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import everything, nothing
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.model.schedule import Round, fit
from pipeline.systems.regression.settings import ConvergenceStudy


def name_of(momentum: float, threshold: float) -> str:
    """The name of a variant in results."""
    return {(False, False): "plain", (True, False): "momentum", (False, True): "threshold"}.get(
        (momentum > 0, threshold > 0), "both"
    )


def run(inputs: Inputs, study: ConvergenceStudy, extras: Extras) -> Outcome:
    """Fit the multiclass model on all training images with and without momentum, with and without a threshold.

    In float64: whether plain EM ever lowers the likelihood depends on the last digits.
    """
    X, y = everything(inputs)
    architecture = build_architecture("multiclass", study.size, inputs.classes)
    problems = Problems(X, y, architecture, dtype=torch.float64)
    W = problems.subspace_start()
    tables = []
    for momentum in (0.0, study.momentum):
        for threshold in (0.0, study.threshold):
            rounds = [Round(threshold, study.iterations + 1)]
            result = fit(
                problems,
                W,
                nothing(problems),
                momentum=momentum,
                rounds=rounds,
                most_iterations=study.iterations,
            )
            columns = result.history[["iteration", "log_loss", "error"]]
            tables.append(columns.assign(variant=name_of(momentum, threshold)))
    table = pd.concat(tables, ignore_index=True)
    last = table.groupby("variant").last()
    plain = table[table["variant"] == "plain"]["log_loss"]
    numbers = {
        "last": {
            str(variant): {"log_loss": one(row["log_loss"]), "train": one(row["error"])}
            for variant, row in last.iterrows()
        },
        # Of the normalised log-loss: above 0 if an iteration of plain EM lowered the likelihood.
        "largest_rise": one(plain.diff().max()),
        "iterations": study.iterations,
    }
    headline = tuple(f"last.{variant}.{key}" for variant in last.index for key in ("log_loss", "train"))
    return Outcome("convergence", table[["variant", "iteration", "log_loss", "error"]], numbers, headline)
