"""Effect of momentum and thresholds on likelihood and error (document 002, appendix B.1, Figures 6-7)."""

from __future__ import annotations

import pandas as pd
import torch

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import KeepAt, everything, nothing
from pipeline.systems.regression.model.inputs import Inputs
from pipeline.systems.regression.model.schedule import Round, fit
from pipeline.systems.regression.settings import ConvergenceStudy


def run(inputs: Inputs, study: ConvergenceStudy, keep_at: KeepAt | None = None) -> Outcome:
    """Fit the multiclass model on all training images with and without momentum, with and without a threshold.

    In float64: whether plain EM ever lowers the likelihood depends on the last digits.
    """
    X, y = everything(inputs)
    architecture = build_architecture("multiclass", study.size, inputs.classes)
    problems = Problems(X, y, architecture, dtype=torch.float64)
    W = problems.subspace_start()
    variants = {
        "plain": (0.0, 0.0),
        "threshold": (0.0, study.threshold),
        "momentum": (study.momentum, 0.0),
        "both": (study.momentum, study.threshold),
    }
    tables = []
    for variant, (momentum, threshold) in variants.items():
        rounds = [Round(threshold, study.iterations + 1)]
        held = nothing(problems)
        _, history = fit(problems, W, held, momentum=momentum, rounds=rounds, most_iterations=study.iterations)
        tables.append(history[["iteration", "log_loss", "error"]].assign(variant=variant))
    table = pd.concat(tables, ignore_index=True)[["variant", "iteration", "log_loss", "error"]]
    last = table.groupby("variant").last()
    numbers = {
        "last": {
            str(variant): {"log_loss": one(row["log_loss"]), "train": one(row["error"])}
            for variant, row in last.iterrows()
        },
        # Of the normalised log-loss: above 0 if an iteration of plain EM lowered the likelihood.
        "largest_rise": one(table[table["variant"] == "plain"]["log_loss"].diff().max()),
        "iterations": study.iterations,
    }
    headline = tuple(f"last.{variant}.{key}" for variant in last.index for key in ("log_loss", "train"))
    return Outcome("convergence", table, numbers, headline)
