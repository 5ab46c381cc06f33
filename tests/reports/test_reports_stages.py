"""The two stages, run as DVC runs them, in a repository of made-up results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from made_up import Writer, made_up_values

from pipeline.page.scorecard import MEASURES
from pipeline.results.claims import load_claims

ROOT = Path(__file__).parents[2]


def run(stage: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    environment |= {"PYTHONPATH": str(ROOT), "CAPSULES_MLFLOW": "off"}
    command = [sys.executable, "-m", f"stages.{stage}"]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def repository(full: Writer) -> Writer:
    (full.root / "params.yaml").write_text(yaml.safe_dump(made_up_values()), encoding="utf-8")
    return full


def test_figures_then_tables_write_the_whole_report(repository: Writer) -> None:
    reports = repository.root / "reports" / "quick"
    drawn = run("figures", repository.root)
    assert drawn.returncode == 0, drawn.stderr
    assert "13 figures in reports/quick/figures" in drawn.stdout
    assert "not executed" not in drawn.stdout
    told = run("tables", repository.root)
    assert told.returncode == 0, told.stderr
    # The made-up parameters have no SCAE and no capsule regression.
    answered = {name for name in MEASURES if name.startswith("000")} - {"000.fig4.scae"}
    assert f"{len(answered)} of {len(load_claims())} claims run" in told.stdout
    rows = json.loads((reports / "scorecard.json").read_text(encoding="utf-8"))
    assert [row["id"] for row in rows] == [claim.id for claim in load_claims()]
    content = (reports / "index.html").read_text(encoding="utf-8")
    assert content.count("<img ") == 13
    names = {path.name for path in (reports / "tables").iterdir()}
    assert {
        "equivariance.csv",
        "optimise.csv",
        "part-use.md",
        "sensitivity.csv",
        "sweep.md",
        "templates.csv",
        "table1-capsules-digits.csv",
        "training.md",
    } <= names

    journals = [path.read_text(encoding="utf-8") for path in (repository.root / ".tracking").glob("*/events.jsonl")]
    assert len(journals) == 2
    kept = "".join(journals)
    for name in ("learning-vae-digits.svg", "scorecard.json", "index.html", "sweep.csv"):
        assert name in kept


def test_missing_runs_are_left_out_and_named(repository: Writer) -> None:
    shutil.rmtree(repository.metrics / "sweep")
    (repository.metrics / "evaluate" / "vae-digits.json").unlink()
    for stage in ("figures", "tables"):
        told = run(stage, repository.root)
        assert told.returncode == 0, told.stderr
        assert "sweep/capsules-digits-45" in told.stdout
        assert "evaluate/vae-digits" in told.stdout
        assert "optimise" not in told.stdout.partition("not executed")[2]


@pytest.mark.parametrize("stage", ["figures", "tables"])
def test_a_corrupt_file_ends_the_stage_with_one_message(repository: Writer, stage: str) -> None:
    path = repository.metrics / "train" / "vae-digits.json"
    path.write_text("{", encoding="utf-8")
    told = run(stage, repository.root)
    assert told.returncode == 1
    assert str(path) in told.stderr
    assert "Traceback" not in told.stderr
    assert not (repository.root / "reports" / "quick" / "index.html").exists()
