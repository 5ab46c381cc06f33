"""The local journal: what a run writes, and what it survives."""

from __future__ import annotations

import json
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
    assert not any(tmp_path.iterdir()), "nothing may be written before the first entry"
    run.log_metrics({"bound": 1.5, "not": math.nan, "up": math.inf}, step=0)
    run.log_dataset("digits", "digits (scikit-learn)", "ab" * 32)
    run.log_metrics({"claims": 1.0}, step=0, of_group=True)  # it belongs to no group
    run.finish()
    run.finish()
    start, values, dataset, wall, end = events(run)
    assert (start["id"], start["params"], start["tags"]) == (run.id, {"training.epochs": 3}, {"dirty": "False"})
    assert (values["step"], values["values"]["bound"], values["values"]["up"]) == (0, 1.5, math.inf)
    assert math.isnan(values["values"]["not"])
    assert dataset["sha256"] == "ab" * 32
    assert "wall_seconds" in wall["tags"]
    assert (end["event"], end["status"]) == ("end", "FINISHED")


def test_resume_continues_the_same_run_and_logs_no_step_twice(tmp_path: Path) -> None:
    killed = new_run(tmp_path, group=GROUP)
    for step in range(3):
        killed.log_metrics({"bound": step}, step)
    killed.log_metrics({"bound": 5.0}, 7, of_group=True)  # hides no step of the run's own
    with killed.journal.path.open("ab") as file:
        file.write(b'{"event": "metr')  # the kill costs only this line
    killed.journal.writer.release()
    again = new_run(tmp_path, group=GROUP)
    assert again.resume(killed.id)
    for step in range(1, 5):  # its checkpoint was older than its last metrics
        again.log_metrics({"bound": 10 + step}, step)
    again.finish()
    assert again.id == killed.id
    assert [path.name for path in tmp_path.iterdir()] == [killed.id]
    own = [event for event in events(again) if not event.get("of_group")]
    assert [event["event"] for event in own] == ["start", *["metrics"] * 3, "resume", *["metrics"] * 2, "tags", "end"]
    assert [event["values"]["bound"] for event in own if "values" in event] == [0, 1, 2, 13, 14]


def test_resume_leaves_alone_what_is_gone_written_finished_or_of_other_work(tmp_path: Path) -> None:
    running, done, killed = new_run(tmp_path), new_run(tmp_path), new_run(tmp_path)
    for run in (running, done, killed):
        run.log_metrics({"bound": 0.0}, 0)
    done.finish()
    killed.finish("KILLED")
    before = events(done)
    fresh = new_run(tmp_path)
    for other in (running.id, done.id, "20200101-000000-nothing-abc", "../elsewhere", ""):
        assert not fresh.resume(other)
    assert not new_run(tmp_path, "another").resume(killed.id)
    assert not new_run(tmp_path, params={"a": 1}).resume(killed.id)
    assert events(done) == before
    fresh.log_metrics({"bound": 1.0}, 0)
    assert not fresh.resume(killed.id), "it has begun"
    assert new_run(tmp_path).resume(killed.id)


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
    assert json.loads(other.journal.path.read_text().splitlines()[0])["id"] == other.id
