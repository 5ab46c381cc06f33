"""Effect of momentum and thresholds on likelihood and error (document 002, equations 25-27, B.1, Figures 6-7)."""

import pandas as pd
import torch

from pipeline.results.outcome import Outcome, one
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.expectation_maximisation import Problems
from pipeline.systems.regression.model.fits import Inputs, fit_without_validation
from pipeline.systems.regression.settings import ConvergenceStudy


def run(inputs: Inputs, study: ConvergenceStudy) -> Outcome:
    """Fit the multiclass model with four variants of EM: plain, with momentum, with a threshold, and with both. The
    table has one row per variant and iteration, with the log-loss (as in `fits.fit`) and the training error. Fits use
    float64, because rounding in float32 could lower the likelihood, which plain EM itself never does.
    """
    architecture = build_architecture("multiclass", study.size, inputs.classes)
    problems = Problems(*inputs.without_validation(), architecture, dtype=torch.float64)
    W = problems.subspace_start()
    variants = {
        "plain": (0.0, 0.0),
        "threshold": (0.0, study.threshold),
        "momentum": (study.momentum, 0.0),
        "both": (study.momentum, study.threshold),
    }
    tables = [
        fit_without_validation(problems, W, *settings, study.iterations).assign(variant=variant)
        for variant, settings in variants.items()
    ]
    table = pd.concat(tables, ignore_index=True)[["variant", "iteration", "log_loss", "error"]]
    last = table.groupby("variant")[["log_loss", "error"]].last().rename(columns={"error": "train"})
    numbers = {
        "last": last.map(one).to_dict("index"),
        # The largest rise of the log-loss in an iteration of plain EM: above 0 if the likelihood ever fell.
        "largest_rise": one(table[table["variant"] == "plain"]["log_loss"].diff().max()),
        "iterations": study.iterations,
    }
    headline = tuple(f"last.{variant}.{key}" for variant in last.index for key in last)
    return Outcome("convergence", table, numbers, headline)
