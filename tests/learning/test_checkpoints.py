"""Checkpoints in mid-training: found again by what they depend on, and by nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.learning.checkpoints import Checkpoint, CheckpointError, code_fingerprint

STATE: dict[str, Any] = {"epoch": 3, "history": [{"loss": 0.1 + 0.2, "bad": float("inf")}], "stopped": [True, False]}


def test_code_is_part_of_it_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "models" / "inner").mkdir(parents=True)
    (tmp_path / "reports").mkdir()
    (tmp_path / "models" / "a.py").write_text("1")
    (tmp_path / "compute.py").write_text("1")

    def code() -> str:
        return code_fingerprint(tmp_path, ["models", "compute.py"])

    found = {code()}
    (tmp_path / "reports" / "b.py").write_text("2")
    (tmp_path / "models" / "notes.md").write_text("2")
    assert code() in found, "another package does not matter, nor what is no code"
    assert code_fingerprint(tmp_path, ["compute.py", "models"]) in found
    assert code_fingerprint(tmp_path, ["compute.py", "models", "models/inner", "models/a.py"]) in found
    changes = ("models/a.py", "models/inner/c.py", "models/d.py", "models/kernel.cpp", "models/shared.h", "compute.py")
    for change in changes:
        (tmp_path / change).write_text("changed")
        found.add(code())
    shutil.copytree(tmp_path / "models", tmp_path / "elsewhere" / "models")
    assert code_fingerprint(tmp_path / "elsewhere", ["models"]) == code_fingerprint(tmp_path, ["models"])
    (tmp_path / "models" / "d.py").rename(tmp_path / "models" / "e.py")
    found.add(code())
    assert len(found) == 8


def test_tensors_and_state_come_back_with_the_tracked_run(tmp_path: Path) -> None:
    written = Checkpoint(tmp_path, "abc")
    assert written.load("cpu") is None
    written.tracked_run = "20260101-train"
    written.save({"w": torch.tensor([1.5])}, STATE)
    read = Checkpoint(tmp_path, "abc")
    loaded = read.load("cpu")
    assert loaded is not None
    assert loaded[0]["w"].tolist() == [1.5]
    assert loaded[1] == STATE
    assert read.written_by() == "20260101-train"
    assert read.tracked_run == "", "who goes on from here says for whom"
    assert Checkpoint(tmp_path, "abd").load("cpu") is None
    assert Checkpoint(tmp_path, "abd").written_by() == ""


def test_saves_are_spaced_unless_they_are_forced(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "abc", interval=1000)

    def saved(value: float, force: bool = False) -> float:
        checkpoint.save({"w": torch.tensor(value)}, {}, force)
        loaded = checkpoint.load("cpu")
        assert loaded is not None
        return loaded[0]["w"].item()

    assert [saved(1), saved(2), saved(3, force=True), saved(4)] == [1, 1, 3, 3]
    checkpoint.interval = 0
    assert saved(5) == 5


def test_a_checkpoint_under_anothers_name_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path, "abc").save({"w": torch.zeros(1)}, STATE)
    (tmp_path / "abc").rename(tmp_path / "xyz")
    with pytest.raises(CheckpointError, match=r"xyz/checkpoint\.safetensors belongs to something else: fingerprint"):
        Checkpoint(tmp_path, "xyz").load("cpu")
