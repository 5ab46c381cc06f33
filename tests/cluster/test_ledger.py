from __future__ import annotations

from pathlib import Path

from pipeline.cluster.ledger import Ledger


def test_what_was_dispatched_and_not_recorded_is_pending(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new" / "ledger.jsonl")
    for key in ("recorded", "failed", "running", "lost", "brought"):
        ledger.write("dispatched", f"stage-{key}", key, "tcp://worker")
    ledger.write("done", "stage-recorded", "recorded", seconds=2.5)
    ledger.write("recorded", "stage-recorded", "recorded")
    ledger.write("failed", "stage-failed", "failed", message="it\nfailed")
    ledger.write("lost", "stage-lost", "lost")
    ledger.write("done", "stage-brought", "brought", seconds=3.5)
    assert set(ledger.pending()) == {"running", "lost", "brought"}
    assert ledger.pending()["running"].worker == "tcp://worker"
    assert ledger.seconds() == {"stage-recorded": 2.5, "stage-brought": 3.5}


def test_a_line_that_was_cut_does_not_hide_others(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.write("dispatched", "a", "key-a")
    ledger.write("dispatched", "b", "key-b")
    path.write_bytes(path.read_bytes()[:-20])
    assert set(ledger.pending()) == {"key-a"}
    ledger.write("dispatched", "c", "key-c")
    assert set(ledger.pending()) == {"key-a", "key-c"}


def test_without_a_file_nothing_is_pending(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "ledger.jsonl").pending() == {}
