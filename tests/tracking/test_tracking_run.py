"""The local journal: what a run writes, and what it survives."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import TrackedRun

GROUP = {"id": "host-1-2", "name": "reproduction"}


def new_run(folder: Path, name: str = "train@some run", **settings: Any) -> TrackedRun:
    return TrackedRun(folder, experiment="capsules/quick", name=name, **settings)


def events(run: TrackedRun) -> list[dict[str, Any]]:
    return [event for event, _ in run.journal.read()]


def test_a_run_is_written_line_by_line(tmp_path: Path) -> None:
    run = new_run(tmp_path, params={"training": {"epochs": 3}}, tags={"dirty": False})
    run.log_metrics({"bound": 1.5, "not": math.nan, "up": math.inf}, step=0)
    run.log_dataset("digits", "digits (scikit-learn)", "ab" * 32)
    run.log_metrics({"claims": 1.0}, step=0, of_group=True)  # it belongs to no group
    run.finish()
    start, values, dataset, end = events(run)
    assert (start["id"], start["params"], start["tags"]) == (run.id, {"training.epochs": 3}, {"dirty": "False"})
    assert (values["step"], values["values"]["bound"], values["values"]["up"]) == (0, 1.5, math.inf)
    assert math.isnan(values["values"]["not"])
    assert dataset["sha256"] == "ab" * 32
    assert (end["event"], end["status"]) == ("end", "FINISHED")


def test_what_cannot_be_written_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    run = new_run(tmp_path / "runs")
    for step in range(3):
        run.log_metrics({"bound": 0.0}, step)
    run.finish()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "The run goes on" in caplog.text
    other = new_run(tmp_path / "others")
    other.log_artifact(tmp_path / "not there")
    other.finish()
    assert "not there" in caplog.text
    assert events(other)[-1]["status"] == "FINISHED"
    assert next(other.journal.read())[0]["id"] == other.id
