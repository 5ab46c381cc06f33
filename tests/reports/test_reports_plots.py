"""What `dvc plots` shows of all runs together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from records import ResultFiles

from pipeline.page.plots import write_plots
from pipeline.results.outcome import one


def read(folder: Path, name: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in pd.read_csv(folder / f"{name}.csv").itertuples(index=False)]


def test_every_run_is_in_the_plots_of_all_runs(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path / "results", tmp_path / "arrays")

    def write(stage: str, run: str, numbers: dict[str, Any], table: str) -> None:
        settings = {"runs": {run: {"variant": run.partition("-")[2]}}}
        files.numbers(stage, run, numbers, settings=settings).with_suffix(".csv").write_text(table)

    loss = {"validation": {"loss": one(1.0)}}
    both = {"validation": {"loss": one(1.0), "accuracy": one(0.5)}}
    curves = "replica,epoch,validation_loss\n0,1,4\n0,2,2\n1,1,6\n"  # the second seed stopped after an epoch
    write("train", "a-vae", loss, curves)
    write("train", "b-cnn", both, "replica,epoch,validation_loss,validation_accuracy\n0,1,3,0.5\n")
    probes = "features,protocol,test,accuracy\n"
    for seed in (0.2, 0.4):
        probes += f"mu,refit,rotated_45,{seed}\nmu,fixed,rotated_45,0\nmu,refit,affine,0\nz,refit,rotated_0,{seed}\n"
    write("evaluate", "a-vae", {"probe": {"mu": {}}}, probes)
    write("evaluate", "b-cnn", {"test": {}}, "replica,test,accuracy\n0,centre,0.5\n")
    folder = tmp_path / "plots"
    write_plots(folder, files.results)
    assert read(folder, "learning") == [("vae", "a-vae", 1, 5), ("vae", "a-vae", 2, 2), ("cnn", "b-cnn", 1, 3)]
    assert read(folder, "accuracy") == [("cnn", "b-cnn", 1, 0.5)]
    assert read(folder, "rotation") == [("vae", "a-vae mu", 45, 0.3), ("vae", "a-vae z", 0, 0.3)]
