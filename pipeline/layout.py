"""Paths in a repository: data, weights, results, reports, checkpoints and journals. This module writes no file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import ParamsError, UserError

if TYPE_CHECKING:
    from pipeline.tracking import Store

JOURNALS = ".tracking"
"""The folder of journals. A journal records the events of a tracked run. It is kept after MLflow has received them."""
CHECKPOINTS = ".cache/resume"
"""The folder of checkpoints, with a folder for each replica of a training. DVC does not delete them."""


def find_root() -> Path:
    """The nearest folder with a `params.yaml`, from the working folder upward. `ParamsError` if there is none."""
    begin = Path.cwd()
    for folder in (begin, *begin.parents):
        if (folder / "params.yaml").exists():
            return folder
    raise ParamsError(f"no params.yaml in {begin} or above: run this inside the repository")


def tracking_store(home: Path) -> Store | None:
    """The store of MLflow: at `MLFLOW_TRACKING_URI` if this is set, else in the user's clone `home`. None if
    `CAPSULES_MLFLOW` is off. Raises `UserError` if `CAPSULES_MLFLOW` is neither on nor off.
    """
    from pipeline.tracking import Store

    switch = os.environ.get("CAPSULES_MLFLOW", "on")
    if switch == "off":
        return None
    if switch != "on":
        raise UserError(f"CAPSULES_MLFLOW is '{switch}': set it to on or off")
    if uri := os.environ.get("MLFLOW_TRACKING_URI"):
        return Store(uri)
    return Store(f"sqlite:///{home / 'mlflow.db'}", home / "mlartifacts")


def raw_folder(root: Path, source: str) -> Path:
    """The folder of a source's downloaded files."""
    return root / "data" / "raw" / source


def model_folder(root: Path, run: str) -> Path:
    """The folder of a trained run: `model.json` and the weights of every seed."""
    return root / "models" / run


def dataset_path(root: Path, dataset: str) -> Path:
    """The file of a preprocessed data set."""
    return root / "data" / "processed" / f"{dataset}.npz"


@dataclass
class Layout:
    """Paths of a profile's results in a repository. Stages write all of them except `noise_path`.

    Attributes:
        arrays_folder: arrays of results, which DVC caches. The files in `reports_folder` are in Git.
        records_folder: results with their settings (`<stage>/<item>.json`) and their tables (`<stage>/<item>.csv`).
        noise_path: the differences of the scorecard's numbers between machines, written by `compare --noise`.
    """

    root: Path
    profile: str

    def __post_init__(self) -> None:
        self.arrays_folder = self.root / "results" / self.profile
        self.reports_folder = self.root / "reports" / self.profile
        self.records_folder = self.reports_folder / "results"
        self.figures_folder = self.reports_folder / "figures"
        self.tables_folder = self.reports_folder / "tables"
        self.scorecard_path = self.reports_folder / "scorecard.json"
        self.noise_path = self.reports_folder / "noise.json"
