"""The summary numbers of a training."""

from __future__ import annotations

from typing import Any

import pandas as pd

from pipeline.data.holdout import KNOWN
from pipeline.learning.model import Model, count_parameters
from pipeline.learning.train import Trained
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import spread


def outcome(trained: Trained, model: Model) -> Outcome:
    """Metrics of validation, and of known images where others validate, at each replica's best epoch; speed and sizes,
    by an untrained model. The table has every epoch of every replica, without its speed, which no two runs share.
    """
    history, best = trained.history, best_rows(trained)
    parts = {part: [name for name in history.columns if name.startswith(f"{part}_")] for part in ("validation", KNOWN)}
    numbers: dict[str, Any] = {
        **{
            part: {name.removeprefix(f"{part}_"): spread(row[name] for row in best) for name in names}
            for part, names in parts.items()
            if names
        },
        "best_epoch": spread(trained.best_epoch),
        "epochs": spread(history.groupby("replica")["epoch"].max()),
        "images_per_second": spread(history.groupby("replica")["images_per_second"].median()),
        "seconds": round(trained.seconds, 2),
        "parameters": {"generative": model.generative_parameters(), "total": count_parameters(model)},
    }
    headline = [f"{part}.{name}" for part in ("validation", KNOWN) for name in numbers.get(part, {})][:MOST_HEADLINES]
    first = ["replica", "epoch"]
    table = history[[*first, *history.columns.difference([*first, "images_per_second"], sort=False)]]
    return Outcome("training", table.astype({"replica": int, "epoch": int}), numbers, tuple(headline))


def best_rows(trained: Trained) -> list[pd.Series[float]]:
    """The history's row of each replica's best epoch."""
    history = trained.history
    return [
        history[(history.replica == replica) & (history.epoch == epoch)].iloc[0]
        for replica, epoch in enumerate(trained.best_epoch)
    ]


def best_validation(history: pd.DataFrame) -> dict[str, dict[str, float]]:
    """The spread over replicas of the highest validation bound, or of the lowest loss where a model has no bound."""
    replicas = history.groupby("replica")
    if "validation_bound" in history:
        return {"bound": spread(replicas["validation_bound"].max())}
    return {"loss": spread(replicas["validation_loss"].min())}
