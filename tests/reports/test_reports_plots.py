"""What `dvc plots` shows of all runs together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from made_up import Writer

from pipeline.page.plots import write_plots
from pipeline.results.outcome import RECORD, one
from pipeline.results.reading import Results

ROOT = Path(__file__).parents[2]


def write_result(results: Results, stage: str, run: str, variant: str, numbers: dict[str, Any], table: str) -> None:
    provenance = {"stage": stage, "item": run, "settings": {"runs": {run: {"variant": variant}}}}
    path = results.records / stage / f"{run}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({RECORD: [{**numbers, "provenance": [provenance]}]}))
    path.with_suffix(".csv").write_text(table)


def read(folder: Path, name: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in pd.read_csv(folder / f"{name}.csv").itertuples(index=False)]


def test_every_run_is_in_the_plots_of_all_runs(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", tmp_path / "arrays")
    loss = {"validation": {"loss": one(1.0)}}
    both = {"validation": {"loss": one(1.0), "accuracy": one(0.5)}}
    curves = "replica,epoch,validation_loss\n0,1,4\n0,2,2\n1,1,6\n"  # the second seed stopped after an epoch
    write_result(results, "train", "a-vae", "vae", loss, curves)
    write_result(
        results, "train", "b-cnn", "cnn", both, "replica,epoch,validation_loss,validation_accuracy\n0,1,3,0.5\n"
    )
    probes = "features,protocol,test,accuracy\n"
    for seed in (0.2, 0.4):
        probes += f"mu,refit,rotated_45,{seed}\nmu,fixed,rotated_45,0\nmu,refit,affine,0\nz,refit,rotated_0,{seed}\n"
    write_result(results, "evaluate", "a-vae", "vae", {"probe": {"mu": {}}}, probes)
    write_result(results, "evaluate", "b-cnn", "cnn", {"test": {}}, "replica,test,accuracy\n0,centre,0.5\n")
    folder = tmp_path / "plots"
    write_plots(folder, results)
    assert read(folder, "learning") == [("vae", "a-vae", 1, 5), ("vae", "a-vae", 2, 2), ("cnn", "b-cnn", 1, 3)]
    assert read(folder, "accuracy") == [("cnn", "b-cnn", 1, 0.5)]
    assert read(folder, "rotation") == [("vae", "a-vae mu", 45, 0.3), ("vae", "a-vae z", 0, 0.3)]


def test_what_dvc_plots_of_all_runs_is_what_is_written(full: Writer, tmp_path: Path) -> None:
    write_plots(tmp_path / "plots", full.results)
    definitions = yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]
    assert len(definitions) == 3
    for definition in definitions:
        ((plot),) = definition.values()
        ((path, y),) = plot["y"].items()
        assert path.startswith("reports/${profile}/plots/")
        columns = pd.read_csv(tmp_path / "plots" / Path(path).name).columns
        assert {plot["x"], y, "system", "run"} <= set(columns)
        assert (ROOT / ".dvc" / "plots" / f"{plot['template']}.json").exists()
