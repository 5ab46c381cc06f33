"""What a training came to, in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from pipeline.files import write_text
from pipeline.learning.gradient import Trained
from pipeline.learning.replicas import count_parameters
from pipeline.learning.runs import seen_size
from pipeline.models import build_model
from pipeline.params import Run
from pipeline.studies.summary import spread


def summarise(trained: Trained, run: Run, image_size: int, provenance: dict[str, Any]) -> dict[str, Any]:
    """The metrics file of a training: validation metrics at each replica's best epoch, speed, sizes."""
    history, best = trained.history, best_rows(trained)
    names = [column for column in history.columns if column.startswith("validation_")]
    model = build_model(run, seen_size(run, image_size))
    return {
        "validation": {name.removeprefix("validation_"): spread(row[name] for row in best) for name in names},
        "best_epoch": spread(trained.best_epoch),
        "epochs": spread(history.groupby("replica")["epoch"].max()),
        "images_per_second": spread(history.groupby("replica")["images_per_second"].median()),
        "seconds": round(trained.seconds, 2),
        "parameters": {"generative": model.generative_parameters(), "total": count_parameters(model)},
        "provenance": [provenance],
    }


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


def write_history(path: Path, history: pd.DataFrame) -> None:
    """Write the per-epoch table, one row per replica and epoch, with seven significant digits."""
    columns = ["replica", "epoch", *(column for column in history.columns if column not in ("replica", "epoch"))]
    table = history[columns].astype({"replica": int, "epoch": int})
    write_text(path, table.to_csv(index=False, float_format="%.7g"))
