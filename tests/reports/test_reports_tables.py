"""Tables hold the numbers they were given, in both forms, and so do those that `dvc plots` shows."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest
from made_up import Report, Writer, recorded
from records import ResultFiles

from pipeline.drawing.table import Table
from pipeline.page.figures import write_plots
from pipeline.params import Params
from pipeline.report import build
from pipeline.results.outcome import one


def built(writer: Writer, params: Params) -> dict[str, Table]:
    return {table.name: table for table in build(recorded(writer.results, params))}


@pytest.fixture(scope="module")
def tables(report: Report) -> dict[str, Table]:
    """All tables of the made-up results."""
    return built(report.writer, report.params)


def test_table_1_has_both_protocols_beside_the_paper(tables: dict[str, Table]) -> None:
    table = tables["table1-capsules-digits"]
    paper, refit, fixed = "the paper (MNIST)", "ours, probe refit", "ours, probe fixed"
    data = pd.read_csv(io.StringIO(table.to_csv())).set_index(["features", "source"])
    assert data.loc[("t0 and A0", refit), ["rotated_90", "rotated_90_sd", "n"]].tolist() == [82.0, 1.2, 2]
    assert data.loc[("t0 and A0", fixed), "rotated_90"] == pytest.approx(73.0)
    assert data.loc[("t0 and A0", refit), "tracking_run"] == "20251102-140509-evaluate-capsules-digits-a1b2c3"
    assert pd.isna(data.loc[("t0 and A0", paper), "tracking_run"]), "the paper's numbers are of no run of ours"
    assert data.loc[("VAE: mu and sigma", refit), "run"] == "vae-digits"

    shown = table.shown.set_index(["features", "source"])
    assert list(table.shown.columns)[4:] == ["0°", "±45°", "±90°", "±135°", "±180°", "affine"]
    assert shown.loc[("t0 and A0", paper), "±90°"] == "77.0 ± 1.0"
    assert shown.loc[("t0 and A0", refit)].tolist()[1:5] == ["2", "97.0 ± 1.2", "90.0 ± 1.2", "82.0 ± 1.2"]


def test_what_was_not_executed_is_left_out(tables: dict[str, Table], full: Writer, params: Params) -> None:
    (full.metrics / "optimise" / "capsules-digits.json").unlink()
    assert tables.keys() - built(full, params).keys() == {"optimise"}


def test_every_run_is_in_the_plots_of_all_runs(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path / "results", tmp_path / "arrays")
    probes = "features,protocol,test,accuracy\n"
    for seed in (0.2, 0.4):
        probes += f"mu,refit,rotated_45,{seed}\nmu,fixed,rotated_45,0\nmu,refit,affine,0\nz,refit,rotated_0,{seed}\n"
    curves = "replica,epoch,validation_loss\n0,1,4\n0,2,2\n1,1,6\n"  # the second seed stopped after an epoch
    both = {"validation": {"loss": one(1.0), "accuracy": one(0.5)}}
    for stage, run, numbers, table in (
        ("train", "a-vae", {"validation": {"loss": one(1.0)}}, curves),
        ("train", "b-cnn", both, "replica,epoch,validation_loss,validation_accuracy\n0,1,3,0.5\n"),
        ("evaluate", "a-vae", {"probe": {"mu": {}}}, probes),
        ("evaluate", "b-cnn", {"test": {}}, "replica,test,accuracy\n0,centre,0.5\n"),
    ):
        settings = {"runs": {run: {"variant": run.partition("-")[2]}}}
        files.numbers(stage, run, numbers, settings=settings).with_suffix(".csv").write_text(table)
    write_plots(tmp_path, files.results)
    found = {path.stem: pd.read_csv(path).to_numpy().tolist() for path in tmp_path.glob("*.csv")}
    assert found == {
        "learning": [["vae", "a-vae", 1, 5], ["vae", "a-vae", 2, 2], ["cnn", "b-cnn", 1, 3]],
        "accuracy": [["cnn", "b-cnn", 1, 0.5]],
        "rotation": [["vae", "a-vae mu", 45, 0.3], ["vae", "a-vae z", 0, 0.3]],
    }
