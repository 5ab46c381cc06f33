"""Journals with damaged or odd lines: these are skipped, named once, and keep back nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from mutations import damaged, thorough

from pipeline.tracking import Delivery, Group, Store, TrackedRun
from pipeline.tracking.delivery import _Note
from pipeline.tracking.journal import Journal

STORE = Store("sqlite:///nowhere")


def make_run(folder: Path) -> TrackedRun:
    group = Group("host-1-2", "reproduction", {"a": "b"})
    run = TrackedRun(folder / "runs", experiment="capsules/quick", name="train@x", params={"a": [1]}, group=group)
    run.log_metrics({"bound": 0.5, "odd": float("nan")}, 0)
    run.log_metrics({"bound": 0.5}, 0, of_group=True)
    run.log_dataset("digits", "digits (scikit-learn)", "cd" * 32)
    run.log_tags({"a": 1})
    (folder / "curve.svg").write_text("<svg/>")
    run.log_artifact(folder / "curve.svg", "figures")
    run.log_model("x", "VAE", [folder / "curve.svg"], {"run": "x", "signature": {"inputs": []}}, {"bound": 0.5})
    run.finish()
    return run


def client() -> MagicMock:
    """A client of MLflow that takes everything; what is sent is still made of MLflow's own entities."""
    made = MagicMock()
    made.search_runs.return_value = made.search_logged_models.return_value = []
    made.get_experiment_by_name.return_value = None
    made.get_run.return_value.info.end_time, made.get_run.return_value.info.lifecycle_stage = 0, "active"
    made.create_logged_model.return_value.model_id = "m-1"
    return made


def deliver(folder: Path) -> tuple[dict[str, int], MagicMock]:
    delivery, taking = Delivery(folder / "runs", STORE), client()
    delivery._connection._client = taking
    return dict(delivery.run()), taking


def test_a_damaged_journal_is_delivered_as_far_as_it_can_be(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    path = run.path / "events.jsonl"
    content = path.read_bytes()
    before = list(Journal(run.path).read())

    @thorough
    @given(changed=damaged(content))
    def check(changed: bytes) -> None:
        path.write_bytes(changed)
        (run.path / f"{STORE.key}.json").unlink(missing_ok=True)
        events = list(Journal(run.path).read())
        offsets = [end for _, end in events]
        assert offsets == sorted(offsets)
        lines = set(changed.split(b"\n")[:-1])  # the last one is not complete
        untouched = [event for event, line in zip(before, content.split(b"\n")[:-1], strict=True) if line in lines]
        found = [event for event, _ in events]
        assert all(event in found for event, _ in untouched)
        counts, _ = deliver(tmp_path)
        started = any(event["event"] == "start" for event in found)
        assert counts == {run.id: len(events) if started else 0}

    check()


ODD = {
    "a list": b"[1, 2]",
    "deeply nested": b"[" * 200_000,
    "deeply nested in a field": b'{"event": "tags", "time": 1, "tags": ' + b'{"a": ' * 100_000 + b"1" + b"}" * 100_001,
    "a number beyond floats": b'{"event": "metrics", "time": 1, "step": 0, "values": {"a": 1' + b"0" * 400 + b"}}",
    "a step beyond a store": b'{"event": "metrics", "time": 1, "step": 9223372036854775808, "values": {"a": 1}}',
    "a time beyond a store": b'{"event": "resume", "time": -1' + b"0" * 30 + b"}",
    "half a character": b'{"event": "tags", "time": 1, "tags": {"a": "\\ud800"}}',
    "another encoding": '{"event": "tags", "time": 1, "tags": 1}'.encode("utf-16-le").replace(b"\n", b""),
    "files that are none": json.dumps(
        {"event": "model", "time": 1, "name": "x", "kind": "v", "files": [3], "card": {}, "metrics": {}}
    ).encode(),
    "a quote in an id": json.dumps(
        {"event": "start", "time": 1, "id": "a'b", "experiment": "e", "name": "n", "params": {}, "tags": {}}
    ).encode(),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("place", [0, 2, -1])
def test_an_odd_line_is_named_once_with_its_number_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, odd: bytes, place: int
) -> None:
    run = make_run(tmp_path)
    path = run.path / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    count = len(lines)
    lines.insert(place, odd + b"\n")
    path.write_bytes(b"".join(lines))
    for _ in range(3):
        counts, taking = deliver(tmp_path)
        assert list(counts) == [run.id]
    assert taking.set_terminated.called is False, "nothing is left for a third delivery"
    assert len([*Journal(run.path).read()]) == count
    number = lines.index(odd + b"\n") + 1
    warnings = [each.getMessage() for each in caplog.records if "not an event" in each.getMessage()]
    assert warnings in ([f"warning: {path}, line {number}: not an event, skipped: {odd.decode()[:80]}"], [])
    assert bool(warnings) == (b"\0" not in odd)  # UTF-16 is no JSON: as half a line


def test_an_event_of_a_group_that_is_not_there_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = TrackedRun(tmp_path / "runs", experiment="capsules/quick", name="train@x")
    run._write("metrics", step=0, values={"a": 1.0}, of_group=True)
    run.finish()
    assert deliver(tmp_path)[0] == {run.id: 4}
    assert f"'metrics' of {run.id} belongs to no group: skipped" in caplog.text


@pytest.mark.parametrize(
    "note",
    [
        *(
            "",
            "{",
            "[1]",
            "null",
            "[" * 100_000,
            '{"run_id": 1}',
            '{"run_id": "", "offset": 0, "last": "", "time": ""}',
        ),
        *(json.dumps({"run_id": "r", "offset": offset, "last": "", "time": 0}) for offset in (-5, "a", None, 1.5)),
        json.dumps({"run_id": "r", "offset": 10**9, "last": "end", "time": 0}),
    ],
)
def test_a_damaged_note_means_that_everything_is_delivered_again(tmp_path: Path, note: str) -> None:
    run = make_run(tmp_path)
    (run.path / f"{STORE.key}.json").write_text(note)
    assert deliver(tmp_path)[0] == {run.id: len(list(Journal(run.path).read()))}
    assert _Note.read(run.path / f"{STORE.key}.json").offset == Journal(run.path).size()


def test_what_is_no_file_in_place_of_a_journal_is_left_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for name, make in (("a pipe", os.mkfifo), ("a folder", os.mkdir)):
        (tmp_path / "runs" / name).mkdir()
        make(tmp_path / "runs" / name / "events.jsonl")
    counts: dict[str, Any] = deliver(tmp_path)[0]
    assert list(counts) == [run.id]
