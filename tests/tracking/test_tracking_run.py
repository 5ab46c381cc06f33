"""The local journal: what a run writes, and what it survives."""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import Store, TrackedRun
from pipeline.tracking import drainer as drainer_module
from pipeline.tracking.journal import Journal, encode_number, flatten


def new_run(folder: Path, **settings: Any) -> TrackedRun:
    return TrackedRun(folder, experiment="capsules/quick", name="train@some run", **settings)


def events(run: TrackedRun) -> list[dict[str, Any]]:
    return [event for event, _ in Journal(run.path).read()]


def test_a_run_is_written_line_by_line(tmp_path: Path) -> None:
    run = new_run(tmp_path, params={"training": {"epochs": 3}}, tags={"dirty": False})
    assert not any(tmp_path.iterdir()), "nothing may be written before the first entry"
    run.log_metrics({"bound": 1.5}, step=0)
    run.log_dataset("digits", "digits (scikit-learn)", "ab" * 32)
    run.finish()
    run.finish()
    start, metrics, dataset, wall, end = events(run)
    assert (start["id"], start["params"], start["tags"]) == (run.id, {"training.epochs": 3}, {"dirty": "False"})
    assert (metrics["step"], metrics["values"]) == (0, {"bound": 1.5})
    assert dataset["sha256"] == "ab" * 32
    assert "wall_seconds" in wall["tags"]
    assert (end["event"], end["status"]) == ("end", "FINISHED")


def test_numbers_that_are_not_finite_survive_json(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.log_metrics({"nan": math.nan, "up": math.inf, "down": -math.inf, "one": 1}, step=0)
    values = events(run)[-1]["values"]
    json.dumps(values, allow_nan=False)
    assert math.isnan(float(values["nan"]))
    assert [float(values[key]) for key in ("up", "down", "one")] == [math.inf, -math.inf, 1.0]
    assert encode_number(0.1) == 0.1


def test_flatten_names_what_is_nested() -> None:
    assert flatten({"a": {"b": {"c": 1}}, "d": [1, 2]}) == {"a.b.c": 1, "d": [1, 2]}


def test_resume_continues_the_same_run_and_logs_no_step_twice(tmp_path: Path) -> None:
    killed = new_run(tmp_path)
    for step in range(3):
        killed.log_metrics({"bound": step}, step)
    killed.finish("KILLED")
    again = new_run(tmp_path)
    assert again.resume(killed.id)
    assert again.id == killed.id
    for step in range(1, 5):  # its checkpoint was older than its last metrics
        again.log_metrics({"bound": 10 + step}, step)
    again.finish()
    kinds = [event["event"] for event in events(again)]
    assert kinds == ["start", *["metrics"] * 3, "tags", "end", "resume", *["metrics"] * 2, "tags", "end"]
    assert [event["step"] for event in events(again) if event["event"] == "metrics"] == [0, 1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == [killed.id]


def test_resume_leaves_alone_what_is_gone_or_still_written(tmp_path: Path) -> None:
    running = new_run(tmp_path)
    running.log_metrics({"bound": 0.0}, 0)
    other = new_run(tmp_path)
    own = other.id
    assert not other.resume(running.id)
    assert not other.resume("20200101-000000-nothing-abc")
    assert not other.resume("../elsewhere")
    assert not other.resume("")
    assert other.id == own
    other.log_metrics({"bound": 0.0}, 0)
    with pytest.raises(RuntimeError, match="before anything is logged"):
        other.resume(running.id)


def test_resume_leaves_alone_what_is_finished_or_of_other_work(tmp_path: Path) -> None:
    """A finished run's weights may serve another stage; its record stays what it was."""
    done, killed = new_run(tmp_path), new_run(tmp_path)
    for run in (done, killed):
        run.log_metrics({"bound": 0.0}, 0)
    done.finish("FINISHED")
    killed.finish("KILLED")
    before = events(done)
    fresh = new_run(tmp_path)
    assert not fresh.resume(done.id)
    assert events(done) == before
    fresh.log_metrics({"bound": 1.0}, 0)
    assert [event["step"] for event in events(fresh) if event["event"] == "metrics"] == [0]
    other = TrackedRun(tmp_path, experiment="e", name="another", params={})
    assert not other.resume(killed.id)
    assert new_run(tmp_path).resume(killed.id)


def test_a_line_cut_off_by_a_kill_costs_only_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append("metrics", step=0, values={})
    with journal.path.open("ab") as file:
        file.write(b'{"event": "metr')
    assert [event["step"] for event, _ in journal.read()] == [0]
    journal.append("metrics", step=1, values={})
    found = list(journal.read())
    assert [event["step"] for event, _ in found] == [0, 1]
    assert found[-1][1] == journal.size()
    assert list(journal.read(found[0][1])) == found[1:]


def test_an_artifact_is_kept_as_it_was(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"first")
    run = new_run(tmp_path / "runs")
    run.log_artifact(weights, "model")
    weights.unlink()  # as DVC does before a stage runs again
    weights.write_bytes(b"second")
    event = events(run)[-1]
    assert (run.path / event["file"]).read_bytes() == b"first"
    assert (event["event"], event["folder"], Path(event["file"]).name) == ("artifact", "model", "weights.safetensors")


def test_half_a_copy_is_never_taken_for_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(b"all of it")
    copy = shutil.copyfile

    def no_link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    def killed(source: Path, target: Path) -> None:
        Path(target).write_bytes(b"all")
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", no_link)
    monkeypatch.setattr(shutil, "copyfile", killed)
    first = new_run(tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        first.log_artifact(weights)
    first.finish("KILLED")
    monkeypatch.setattr(shutil, "copyfile", copy)
    second = new_run(tmp_path / "runs")
    assert second.resume(first.id)
    second.log_artifact(weights)
    assert (second.path / events(second)[-1]["file"]).read_bytes() == b"all of it"


def test_a_journal_that_cannot_be_written_costs_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    run = new_run(tmp_path / "runs")
    for step in range(3):
        run.log_metrics({"bound": 0.0}, step)
    run.log_artifact(tmp_path / "runs")
    run.finish()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "The run goes on" in caplog.text


def test_without_mlflow_there_is_one_note_and_no_process(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(drainer_module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(drainer_module.subprocess, "Popen", lambda *a, **k: pytest.fail("no process is wanted"))
    caplog.set_level(logging.INFO, "pipeline")
    run = new_run(tmp_path / "runs", store=store)
    run.log_metrics({"bound": 0.0}, 0)
    run.finish()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "MLflow is not installed" in caplog.text
    assert events(run)[-1]["status"] == "FINISHED"


ODD_LINES = [
    "[1, 2]",
    '"text"',
    "{}",
    '{"event": "metrics", "time": 1, "step": 0}',
    '{"event": "metrics", "time": 1, "step": 0, "values": [1]}',
    '{"event": "metrics", "time": 1, "step": 0, "values": {"bound": "high"}}',
    '{"event": "metrics", "time": 1, "step": 0, "values": {"bound": null}}',
    '{"event": ["end"], "time": 1, "status": "FINISHED"}',
    '{"event": "end", "status": "FINISHED"}',
    '{"event": "tags", "time": "now", "tags": {}}',
    '{"event": "resume", "time": 1, "group": {"id": 1}}',
    '{"event": "dance", "time": 1}',
]


@pytest.mark.parametrize("line", ODD_LINES)
def test_json_that_is_no_event_is_passed_over_with_a_warning(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(tmp_path)
    journal.append("metrics", step=0, values={})
    with journal.path.open("a") as file:
        file.write(f"{line}\n")
    journal.append("metrics", step=1, values={})
    assert [event["step"] for event, _ in journal.read()] == [0, 1]
    assert caplog.text.count("not an event, skipped") == 1
    assert str(journal.path) in caplog.text


def test_a_writers_lock_says_whether_the_run_is_written(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.log_metrics({"bound": 0.0}, 0)
    assert Journal(run.path).is_written()
    assert Journal(run.path).is_written(), "asking must not take it"
    run.finish()
    assert not Journal(run.path).is_written()
