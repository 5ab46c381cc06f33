"""The two stages, run as DVC runs them, in a repository of made-up results."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_up import Writer, made_up_values, with_evidence
from recorded import recorded

from pipeline import report
from pipeline.params import parse_params
from pipeline.results.claims import load_claims
from pipeline.results.freshness import CHANGED, GONE

ROOT = Path(__file__).parents[2]


def run(stage: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_"))}
    environment |= {"PYTHONPATH": str(ROOT), "CAPSULES_MLFLOW": "off"}
    command = [sys.executable, "-m", f"stages.{stage}"]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def write_params(root: Path, **changes: Any) -> None:
    """Write the made-up parameters, changed; angles are whole, as params.yaml writes them and items are named."""
    values = made_up_values()
    values["sweep"] |= {"angles": [round(angle) for angle in values["sweep"]["angles"]]}
    (root / "params.yaml").write_text(yaml.safe_dump(values | changes), encoding="utf-8")


@pytest.fixture
def repository(full: Writer) -> Writer:
    """A repository after a reproduction of everything."""
    shutil.copy(ROOT / "dvc.yaml", full.root / "dvc.yaml")
    write_params(full.root)
    recorded(full.results, parse_params(made_up_values()))
    return full


def test_figures_then_tables_write_the_whole_report(repository: Writer) -> None:
    reports = repository.root / "reports" / "quick"
    drawn = run("figures", repository.root)
    assert drawn.returncode == 0, drawn.stderr
    assert "16 figures in reports/quick/figures" in drawn.stdout
    told = run("tables", repository.root)
    assert told.returncode == 0, told.stderr
    for said in (drawn.stdout, told.stdout):
        assert not re.search(f"not executed|arrays|{CHANGED}|{GONE}", said)
    # The made-up parameters have no SCAE and no capsule regression.
    answered = {name for name in report.measures() if name.startswith("000")} - {"000.fig4.scae"}
    assert f"{len(answered)} of {len(load_claims())} claims run" in told.stdout
    rows = json.loads((reports / "scorecard.json").read_text(encoding="utf-8"))
    assert [row["id"] for row in rows] == [claim.id for claim in load_claims()]
    assert {row["profile"] for row in rows} == {"quick"}
    assert not any(row["other_settings"] for row in rows)
    content = (reports / "index.html").read_text(encoding="utf-8")
    assert content.count('<img src="data:') == 16 + 1
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


def lines(told: subprocess.CompletedProcess[str]) -> dict[str, list[str]]:
    """What a stage said of results that are missing or not the profile's: by words, the items."""
    assert told.returncode == 0, told.stderr
    said = (line.partition(": ") for line in told.stdout.splitlines())
    return {words: items.split(", ") for words, _, items in said if words in ("not executed", CHANGED, GONE)}


def test_missing_runs_are_left_out_and_named(repository: Writer) -> None:
    shutil.rmtree(repository.results.records / "sweep")
    (repository.results.records / "evaluate" / "vae-digits.json").unlink()
    sweeps = [f"sweep/{run}-{angle}" for run in ("capsules-digits", "vae-digits") for angle in (0, 45, 180)]
    for stage in ("figures", "tables"):
        assert lines(run(stage, repository.root)) == {"not executed": ["evaluate/vae-digits", *sweeps]}
    page = (repository.root / "reports" / "quick" / "index.html").read_text(encoding="utf-8")
    assert "7 items of this profile were not executed" in page


def test_results_of_other_settings_are_named_and_marked(repository: Writer) -> None:
    values = made_up_values()
    values["runs"]["vae-digits"]["seed"] += 1
    evidence = with_evidence(values, "generative", optimise=None)["evidence"]
    write_params(repository.root, runs=values["runs"], optimise={}, evidence=evidence)
    changed = ["train/vae-digits", "evaluate/vae-digits", *(f"sweep/vae-digits-{angle}" for angle in (0, 45, 180))]
    for stage in ("figures", "tables"):
        gone = ["optimise/capsules-digits", "turn/capsules-digits"]
        assert lines(run(stage, repository.root)) == {CHANGED: changed, GONE: gone}
    reports = repository.root / "reports" / "quick"
    rows = {row["id"]: row for row in json.loads((reports / "scorecard.json").read_text(encoding="utf-8"))}
    assert "evaluate/vae-digits" in rows["000.t1.vae.0"]["other_settings"]
    assert rows["000.t1.t0.0"]["other_settings"] == []
    assert 'class="other"' in (reports / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("stage", ["figures", "tables"])
def test_a_corrupt_file_ends_the_stage_with_one_message(repository: Writer, stage: str) -> None:
    path = repository.results.records / "train" / "vae-digits.json"
    path.write_text("{", encoding="utf-8")
    told = run(stage, repository.root)
    assert told.returncode == 1
    assert str(path) in told.stderr
    assert "Traceback" not in told.stderr
    assert not (repository.root / "reports" / "quick" / "index.html").exists()
