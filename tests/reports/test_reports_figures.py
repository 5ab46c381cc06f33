"""Figures: every one that the results give, the same bytes each time, and what is missing by name."""

from __future__ import annotations

import shutil
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from made_up import Report, Writer, changed, check_drawn, recorded, with_evidence, with_scae
from records import dump_record, load_record

from pipeline.drawing.drawings import Drawing, Written
from pipeline.page.figures import incomplete, on_disk, write_figures
from pipeline.params import Params, parse_params
from pipeline.report import draw
from pipeline.results.reading import ResultError
from pipeline.systems.generative.report.optimise import mean_over_replicas

ALL = {
    "accuracy-capsules-digits.svg",
    "reconstructions-capsules-digits.png",
    "optimisation-capsules-digits.svg",
    "arrangements-capsules-digits.png",
    "templates-capsules-digits.png",
    "objects-capsules-digits.png",
    "prior-capsules-digits.png",
    "sweep-capsules-digits.svg",
    "equivariance-capsules-digits.svg",
    "copies-capsules-digits.png",
    "part-use-capsules-digits.png",
    "sensitivity-capsules-digits.svg",
    "learning-capsules-digits.svg",
    "learning-vae-digits.svg",
    "turning-capsules-digits.png",
    "systems-parameters.svg",
}


def drawings_of(writer: Writer, params: Params) -> dict[str, Drawing]:
    """What results made with these parameters give, by name."""
    return {drawing.name: drawing for drawing in draw(recorded(writer.results, params), Written())}


def test_every_figure_is_drawn_the_same_each_time(report: Report) -> None:
    before = dict(matplotlib.rcParams)
    drawings = drawings_of(report.writer, report.params).values()
    contents = check_drawn(drawings)
    assert contents == {path.name: path.read_bytes() for path in report.figures.iterdir()}
    assert set(contents) == ALL
    for file, content in contents.items():
        named = content.replace(b"http://www.w3.org/", b"").count(b"://")
        assert file.endswith(".png") or not named, "a drawing names no address"
    assert dict(matplotlib.rcParams) == before


def test_missing_arrays_and_tables_of_a_record_are_named(full: Writer, params: Params) -> None:
    shutil.rmtree(full.arrays)
    (full.metrics / "train" / "vae-digits.csv").unlink()
    (full.metrics / "optimise" / "capsules-digits.csv").unlink()
    written = write_figures(full.root / "figures", recorded(full.results, params))
    assert {path.name for path in written.files} == {
        "accuracy-capsules-digits.svg",
        "sweep-capsules-digits.svg",
        "equivariance-capsules-digits.svg",
        "sensitivity-capsules-digits.svg",
        "learning-capsules-digits.svg",
        "systems-parameters.svg",
    }
    assert sorted(written.missing) == [
        "evaluate/capsules-digits (its examples)",
        "optimise/capsules-digits (its examples)",
        "optimise/capsules-digits (its table)",
        "sweep/capsules-digits-0 (its examples)",
        "sweep/capsules-digits-180 (its examples)",
        "sweep/capsules-digits-45 (its examples)",
        "train/vae-digits (its table)",
        "turn/capsules-digits (its examples)",
    ]


def test_a_picture_stays_while_its_arrays_are_away_and_its_result_is_the_same(
    report: Report, full: Writer, params: Params
) -> None:
    reports = full.root / "reports" / "quick"
    shutil.copytree(report.figures.parent, reports, dirs_exist_ok=True)
    folder = reports / "figures"
    results = recorded(full.results, params)
    shutil.rmtree(full.arrays)
    written = write_figures(folder, results)
    assert "evaluate/capsules-digits (its examples)" in incomplete(folder) == written.missing
    assert {path.name for path in folder.iterdir()} == ALL
    assert {f"{each.name}.{each.kind}" for each in on_disk(folder, results)} == ALL
    content = (folder / "templates-capsules-digits.png").read_bytes()
    assert content == (report.figures / "templates-capsules-digits.png").read_bytes()
    path = results.records / "evaluate" / "capsules-digits.json"
    dump_record(path, changed(load_record(path), "provenance/-1/tracking_run", "another"))
    for gone in full.metrics.glob("*/vae-digits*"):
        gone.unlink()
    write_figures(folder, results)
    assert not (folder / "templates-capsules-digits.png").exists(), "it showed a result that was made anew since"
    assert (folder / "reconstructions-capsules-digits.png").exists()
    assert not (folder / "learning-vae-digits.svg").exists(), "of a run that is gone"


def test_corrupt_files_stop_the_drawing_and_are_named(full: Writer, params: Params) -> None:
    folder = full.root / "figures"
    folder.with_suffix(".json").write_text("[]")
    with pytest.raises(ResultError, match=r"figures\.json is corrupt"):
        write_figures(folder, recorded(full.results, params))
    path = full.arrays / "evaluate" / "capsules-digits" / "examples.npz"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ResultError, match=str(path)):
        write_figures(full.root / "others", recorded(full.results, params))


def test_a_run_with_parts_in_any_slot_is_drawn_beside_the_one_it_differs_from(
    full: Writer, values: dict[str, Any]
) -> None:
    run = values["runs"]["capsules-digits"]
    run["model"] |= {"seeding": None}  # which needs parts in their own slots
    slots = run | {"model": run["model"] | {"slots": "any"}}
    values["sweep"] |= {"runs": [*values["sweep"]["runs"], "capsules-slots"]}
    values["runs"] |= {"capsules-slots": slots}
    named = with_evidence(values, "generative", sweep={"own_slots": "capsules-digits", "any_slots": "capsules-slots"})
    full.sweep("capsules-slots", {"t0": {0: 0.9, 45: 0.8, 180: 0.6}, "t0_A0": {0: 0.9, 45: 0.9, 180: 0.7}})
    drawing = drawings_of(full, parse_params(named))["beyond-capsules-slots"]
    assert {record["item"] for record in drawing.records} == {
        f"{run}-{angle}" for run in ("capsules-digits", "capsules-slots") for angle in (0, 45, 180)
    }
    (axes,) = drawing.figure().axes
    drawn = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    lines = {tuple(y.round(6)) for y in drawn if len(y) == 3 and np.isfinite(y).all()}
    assert lines == {(93.0, 74.0, 47.0), (90.0, 80.0, 60.0)}


def test_runs_shown_together_are_told_apart_by_their_data_and_objective(full: Writer, values: dict[str, Any]) -> None:
    full.scae()
    drawings = drawings_of(full, parse_params(with_scae(values, canvas=40)))
    for name in ("sweep-capsules-digits", "accuracy-capsules-digits"):
        assert "capsules-digits was trained on 28x28 pixels, scae-digits on 40x40 pixels" in drawings[name].caption
        figure = drawings[name].figure()
        assert "SCAE: posterior" in " ".join(text.get_text() for text in figure.legends[0].get_texts())
    assert drawings["learning-scae-digits"].figure().axes[0].get_ylabel() == "loss (nats per image)"


def test_a_replica_that_has_ended_counts_with_its_last_row() -> None:
    rows = pd.DataFrame(
        {
            "replica": [0, 0, 1, 1, 1],
            "round": [10, 13, 10, 13, 18],
            "evaluations": [10.0, 13.0, 20.0, 26.0, 36.0],
            "seconds": 1.0,
            "bound": [-230.0, -199.0, -290.0, -270.0, -259.0],
        }
    )
    means = mean_over_replicas(rows)
    assert means["bound"].tolist() == pytest.approx([-260.0, -234.5, -229.0])
    assert means["evaluations"].tolist() == pytest.approx([15.0, 19.5, 24.5])
