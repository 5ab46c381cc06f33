"""Made-up results of every study of capsule regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from made_up import Writer, pictures, spreads
from small import REGRESSION

ERRORS = {
    "multiclass": {"1": 0.09, "2": 0.06, "8": 0.03},
    "one-vs-all": {"1": 0.08, "2": 0.05, "8": 0.025},
    "all-vs-all": {"1": 0.06, "2": 0.04, "8": 0.02},
}


def with_regression(values: dict[str, Any], **datasets: str) -> dict[str, Any]:
    """Parameters with every study on a data set.

    Args:
        datasets: source of further data sets of the paper by their name, each with a full set of studies.
    """
    whole = values["datasets"]["digits"] | {"train": 50_000, "validation": 10_000, "test": 10_000}
    roles = {"mnist": "digits"} | {source.replace("-", "_"): name for name, source in datasets.items()}
    evidence = {study: {role: f"{study}-{name}" for role, name in roles.items()} for study in REGRESSION}
    return values | {
        "sources": sorted({*values["sources"], *datasets.values()}),
        "datasets": values["datasets"] | {name: whole | {"source": source} for name, source in datasets.items()},
        "regression": {
            f"{study}-{name}": {"dataset": name, "features": 196, **settings}
            for name in ("digits", *datasets)
            for study, settings in REGRESSION.items()
        },
        "evidence": values["evidence"] | {"regression": evidence},
    }


def cell(error: float) -> dict[str, float]:
    return {part: share * error for part, share in (("train", 0.5), ("validation", 0.9), ("test", 1))} | {
        "test_log_loss": 10 * error,
        "ece": 2 * error,
        "ece_by_chance": 0.015,
        "apart_smaller": 0.04,
        "apart_fewer": 0.04,
    }


METHODS = {
    "batch": (0.03, 40.0),
    "batch, momentum": (0.031, 16.0),
    "incremental": (0.029, 10.0),
    "incremental, momentum": (0.029, 40.0),
    "online": (0.04, 41.0),
}
"""Test error of each method, and its passes."""
VARIANTS = {"plain": (0.3, 0.05), "momentum": (0.2, 0.03), "threshold": (0.5, 0.02), "both": (0.4, 0.01)}
"""Log-loss and error of each variant."""
NUMBERS: dict[str, dict[str, Any]] = {
    "grid": {
        "errors": {model: {size: cell(error) for size, error in row.items()} for model, row in ERRORS.items()},
        "baseline": {"logistic-regression": cell(0.085), "support-vectors": cell(0.015)},
        "rim": {"own": 0.8, "others": 0.2, "largest": 1.0},
        "prototypes": 0.95,
    },
    "convergence": {
        "last": {name: {"log_loss": loss, "train": error} for name, (loss, error) in VARIANTS.items()},
        "largest_rise": -1e-6,
    },
    "starts": {"subspace": 0.01, "best_random": 0.012},
    "exactness": {of: {"largest": 3.1, "mean_square": 1.02} for of in ("probability", "posterior_mean")},
    "online": {
        "passes": 40,
        "last": {name: {"test": error} for name, (error, _) in METHODS.items()},
        "reached": {name: {"log_loss": passes} for name, (_, passes) in METHODS.items()},
        "disagreement": {name: dict.fromkeys(METHODS, 0.3) for name in METHODS},
    },
    "ridge": {"errors": {"0": cell(0.06)}, "chosen": {"penalty": 0.01, "disagreement": 0.05, **cell(0.02)}},
    "distorted": {"distorted": {"train": 0.0069, "test": 0.0138, "strength": 1}},
}


def tables() -> dict[str, pd.DataFrame]:
    """The table of each study that has one in the report."""
    cells = [{"model": model, "size": int(d), **cell(e)} for model, row in ERRORS.items() for d, e in row.items()]
    cells.append({"model": "logistic-regression", "size": 0, **cell(0.085)})
    cells.append({"model": "support-vectors", "size": 0, "train": 0.0075, "validation": 0.0135, "test": 0.015})
    steps = np.arange(1, 51)
    starts = [(sd, k, 0.012 + 0.001 * k) for sd in ("0.1", "1") for k in range(4)]
    return {
        "grid": pd.DataFrame(cells).assign(iterations=300.0, parameters=1280.0, seconds=2.25),
        "convergence": pd.concat(
            pd.DataFrame({"variant": name, "iteration": steps, "log_loss": loss + 1 / steps, "error": error})
            for name, (loss, error) in VARIANTS.items()
        ),
        "starts": pd.DataFrame([*starts, ("subspace", 0, 0.01)], columns=["start", "seed", "error"]),
    }


def write_regression(writer: Writer, name: str = "digits", **provenance: Any) -> None:
    """Every study on one data set."""
    for study, numbers in NUMBERS.items():
        writer.numbers("regression", f"{study}-{name}", {"study": study} | spreads(numbers, 0, 1), **provenance)
    for study, table in tables().items():
        writer.table("regression", f"{study}-{name}", table)
    digits = (255 * pictures(10, 28, 28)).astype(np.uint8)
    writer.examples(
        "regression",
        f"grid-{name}",
        latents=pictures(300, 10, 2),
        labels=np.arange(300) % 10,
        confident=digits,
        prototypes=np.repeat(digits[:, None], 8, axis=1),
    )
