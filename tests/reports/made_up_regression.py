"""Made-up results of every study of capsule regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from made_up import Writer, pictures, spread

from pipeline.results.settings import DATASETS
from pipeline.systems.regression.report.studies import SOURCES

SCHEDULE = {"momentum": 0.9, "thresholds": [0.8, 0.0], "patience": [8, 4], "most_iterations": 100}
CONVERGENCE = {"size": 4, "iterations": 50, "momentum": 0.9, "threshold": 0.8}
LARGEST = {"size": 8, "decision": "all-vs-all", "schedule": SCHEDULE}
STUDIES: dict[str, dict[str, Any]] = {
    "grid": {
        "sizes": [1, 2, 8],
        "decisions": ["multiclass", "one-vs-all", "all-vs-all"],
        "baselines": ["logistic-regression", "support-vectors"],
        "schedule": SCHEDULE,
    },
    "convergence": CONVERGENCE,
    "starts": CONVERGENCE | {"sds": [0.1, 1.0], "seeds": 4, "seed": 0},
    "exactness": {"size": 2, "images": 3, "samples": 1000, "seed": 0, "schedule": SCHEDULE},
    "online": {"size": 4, "batches": 5, "passes": 40, "momentum": 0.9, "rate": 0.7, "seed": 0},
    "ridge": LARGEST | {"penalties": [0.01]},
    "distorted": LARGEST | {"examples": 5000, "strengths": [1.0], "seed": 0},
}
ERRORS = {
    "multiclass": {"1": 0.09, "2": 0.06, "8": 0.03},
    "one-vs-all": {"1": 0.08, "2": 0.05, "8": 0.025},
    "all-vs-all": {"1": 0.06, "2": 0.04, "8": 0.02},
}


def with_regression(values: dict[str, Any], **datasets: str) -> dict[str, Any]:
    """Parameters with every study on a data set.

    Args:
        datasets: source of further data sets by their name, each with a full set of studies.
    """
    digits = values["datasets"]["digits"]
    whole = {source: {"train": 50_000, "validation": 10_000, "test": 10_000} for source in SOURCES}
    sets = {"mnist": "digits", **{source.replace("-", "_"): name for name, source in datasets.items()}}
    return values | {
        "sources": sorted({*values["sources"], *datasets.values()}),
        "datasets": values["datasets"]
        | {name: digits | {"source": source} | whole.get(source, {}) for name, source in datasets.items()},
        "regression": {
            f"{study}-{name}": {"study": study, "dataset": name, "features": 196, **settings}
            for name in ("digits", *datasets)
            for study, settings in STUDIES.items()
        },
        "evidence": values["evidence"]
        | {
            "regression": {
                study: {role: f"{study}-{name}" for role, name in sets.items() if role in DATASETS} for study in STUDIES
            }
        },
    }


def cell(value: float) -> dict[str, Any]:
    return {part: spread(value * factor, 0, 1) for part, factor in (("train", 0.5), ("validation", 0.9), ("test", 1))}


def calibrated(error: float) -> dict[str, Any]:
    return {"test_log_loss": spread(10 * error, 0, 1), "ece": spread(2 * error, 0, 1)}


def grid_numbers() -> dict[str, Any]:
    return {
        "errors": {
            model: {size: cell(error) | calibrated(error) for size, error in row.items()}
            for model, row in ERRORS.items()
        },
        "baseline": {"logistic-regression": cell(0.085), "support-vectors": cell(0.015)},
        "rim": {"own": spread(0.8, 0, 1), "others": spread(0.2, 0, 1), "largest": spread(1.0, 0, 1)},
        "prototypes": spread(0.95, 0, 1),
    }


def convergence_numbers() -> dict[str, Any]:
    last = {"plain": (0.3, 0.05), "momentum": (0.2, 0.03), "threshold": (0.5, 0.02), "both": (0.4, 0.01)}
    return {
        "last": {
            name: {"log_loss": spread(loss, 0, 1), "train": spread(error, 0, 1)} for name, (loss, error) in last.items()
        },
        "largest_rise": spread(-1e-6, 0, 1),
    }


def write_regression(writer: Writer, name: str = "digits", **provenance: Any) -> None:
    """Every study on one data set."""

    def numbers(study: str, values: dict[str, Any]) -> None:
        writer.numbers("regression", f"{study}-{name}", {"study": study} | values, **provenance)

    def table(study: str, columns: dict[str, Any]) -> None:
        writer.table("regression", f"{study}-{name}", pd.DataFrame(columns))

    numbers("grid", grid_numbers())
    rows: list[dict[str, Any]] = [
        {"model": model, "size": int(size), "train": error / 2, "validation": error, "test": error, "iterations": 300.0}
        for model, row in ERRORS.items()
        for size, error in row.items()
    ]
    rows += [
        {"model": model, "size": 0, "train": 0.01, "validation": error, "test": error, "chosen": "C 1"}
        for model, error in (("logistic-regression", 0.085), ("support-vectors", 0.015))
    ]
    for row in rows[:-1]:  # support vectors have no probabilities
        row |= {"test_log_loss": 10 * row["test"], "ece": 2 * row["test"], "ece_by_chance": 0.015}
    writer.table("regression", f"grid-{name}", pd.DataFrame(rows).assign(parameters=1280.0, seconds=2.25))
    random = np.random.default_rng(0)
    angle, radius = random.uniform(0, 6.28, (300, 10)), random.uniform(0, 0.4, (300, 10))
    labels = np.arange(300) % 10
    radius[np.arange(300), labels] = 0.9
    digits = (255 * pictures(10, 28, 28)).astype(np.uint8)
    writer.examples(
        "regression",
        f"grid-{name}",
        latents=np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).astype(np.float32),
        labels=labels,
        confident=digits,
        prototypes=np.repeat(digits[:, None], 8, axis=1),
        reliability=np.tile([[0.0, 0, 0, 0], [3, 0.4, 0.3, 0.1], [97, 0.9, 0.95, 0.03]], (4, 1, 1)),
    )
    numbers("convergence", convergence_numbers())
    iterations = np.arange(1, 51)
    curves = [
        pd.DataFrame({"variant": variant, "iteration": iterations, "log_loss": low + 1 / iterations, "error": low / 5})
        for variant, low in (("plain", 0.3), ("momentum", 0.2), ("threshold", 0.5), ("both", 0.4))
    ]
    writer.table("regression", f"convergence-{name}", pd.concat(curves))
    numbers("starts", {"subspace": spread(0.01, 0, 1), "best_random": spread(0.012, 0, 1)})
    starts = [{"start": sd, "seed": k, "error": 0.012 + 0.001 * k} for sd in ("0.1", "1") for k in range(4)]
    subspace = {"start": "subspace", "seed": 0, "error": 0.01}
    writer.table("regression", f"starts-{name}", pd.DataFrame([*starts, subspace]))
    deviation = {"largest": spread(3.1, 0, 1), "mean_square": spread(1.02, 0, 1), "count": 30}
    numbers("exactness", {"probability": deviation, "posterior_mean": deviation})
    incremental = {"incremental": 0.029, "incremental, momentum": 0.029}
    methods = {"batch": 0.03, "batch, momentum": 0.031, **incremental, "online": 0.04}
    reached = dict(zip(methods, (40, 16, 10, 40, 41), strict=True))
    numbers(
        "online",
        {
            "passes": 40,
            "last": {method: {"log_loss": spread(0.2, 0, 1), **cell(error)} for method, error in methods.items()},
            "reached": {method: {"log_loss": spread(passes, 0, 1)} for method, passes in reached.items()},
        },
    )
    passes = np.arange(1, 41)
    curves = [
        pd.DataFrame({"method": method, "passes": passes, "log_loss": 0.2 + 1 / passes}).assign(
            train=error, validation=error, test=error
        )
        for method, error in methods.items()
    ]
    writer.table("regression", f"online-{name}", pd.concat(curves))
    chosen = {"penalty": spread(0.01, 0, 1), **cell(0.02)}
    numbers("ridge", {"errors": {"0": cell(0.06), "0.01": cell(0.02)}, "chosen": chosen})
    table("ridge", {"penalty": [0.0, 0.01], "train": [0.0, 0.01], "validation": [0.02, 0.018], "test": [0.06, 0.02]})
    plain = {**cell(0.03), "examples": 1200, "strength": 0.0}
    numbers("distorted", {"plain": plain, "distorted": {**cell(0.0138), "examples": 5000, "strength": 1.0}})
    grown = {"data": ["plain", "distorted"], "strength": [0.0, 1.0], "examples": [1200, 5000]}
    grown |= {"train": 0.0, "validation": 0.02, "test": 0.03, "iterations": 200, "seconds": 3.0}
    table("distorted", grown)
    writer.examples("regression", f"distorted-{name}", originals=digits.repeat(2, 0), copies=digits.repeat(8, 0))
