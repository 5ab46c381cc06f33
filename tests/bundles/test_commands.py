"""`python -m pipeline bundle` and `collect`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from small_repository import dvc, git

from pipeline.bundles.packing import unpack
from pipeline.bundles.running import run
from pipeline.cli import main

Pipeline = Callable[..., tuple[int, str]]


@pytest.fixture
def pipeline(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pipeline:
    """Calls the command line in the repository; the exit code and what it printed."""

    def call(*arguments: str) -> tuple[int, str]:
        monkeypatch.chdir(root)
        monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        found = capsys.readouterr()
        return int(caught.value.code or 0), found.out + found.err

    return call


def test_two_commands_bring_a_stage_there_and_back(root: Path, tmp_path: Path, pipeline: Pipeline) -> None:
    code, said = pipeline("bundle", "train@a", "total@a")
    assert code == 0, said
    assert "train-a.bundle.tar" in said
    assert "uncommitted" not in said
    unpack(root / "train-a.bundle.tar", tmp_path / "there")
    code, said = pipeline("collect", str(run(tmp_path / "there")))
    assert code == 0, said
    assert "train@a,total@a: ran on" in said
    assert "sync-mlflow" in said
    assert "Running" not in dvc(root, "repro", "total@a")


def test_stale_inputs_are_refused_and_changes_are_told(root: Path, tmp_path: Path, pipeline: Pipeline) -> None:
    dvc(root, "repro", "-q", "train@a")
    params = root / "params.yaml"
    params.write_text(params.read_text().replace("factor: 2", "factor: 5"))
    code, said = pipeline("bundle", "total@a")
    assert code == 1
    assert "what total@a reads is not up to date: run `dvc repro train@a` first" in said
    code, said = pipeline("bundle", "train@a", "--output", str(tmp_path / "b.tar"))
    assert code == 0, said
    assert "there are uncommitted changes" in said
    assert git(root, "status", "--porcelain").split() == ["M", "params.yaml", "??", "dvc.lock"]
    assert pipeline("bundle", "train@nobody")[0] == 1
    code, said = pipeline("collect", str(tmp_path / "b.tar"))
    assert code == 1
    assert "is not a results file" in said
