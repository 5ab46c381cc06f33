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
from made_up import Writer, made_up_values, recorded, with_evidence

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
    rows = json.loads((reports / "scorecard.json").read_text(encoding="utf-8"))
    assert [row["id"] for row in rows] == [claim.id for claim in load_claims()]
    assert {row["profile"] for row in rows} == {"quick"}
    assert not any(row["other_settings"] for row in rows)
    content = (reports / "index.html").read_text(encoding="utf-8")
    assert content.count('<img src="data:') == 16 + 1
    assert {"sweep.md", "sweep.csv"} <= {path.name for path in (reports / "tables").iterdir()}
    journals = [path.read_text(encoding="utf-8") for path in (repository.root / ".tracking").glob("*/events.jsonl")]
    assert len(journals) == 2
    kept = "".join(journals)
    for name in ("learning-vae-digits.svg", "scorecard.json", "index.html", "sweep.csv"):
        assert name in kept


def test_what_is_missing_or_has_other_settings_is_named_and_marked(repository: Writer) -> None:
    (repository.results.records / "evaluate" / "capsules-digits.json").unlink()
    values = made_up_values()
    values["runs"]["vae-digits"]["seed"] += 1
    evidence = with_evidence(values, "generative", optimise=None)["evidence"]
    write_params(repository.root, runs=values["runs"], optimise={}, evidence=evidence)
    changed = ["train/vae-digits", "evaluate/vae-digits", *(f"sweep/vae-digits-{angle}" for angle in (0, 45, 180))]
    gone = ["optimise/capsules-digits", "turn/capsules-digits"]
    said = {"not executed": ["evaluate/capsules-digits"], CHANGED: changed, GONE: gone}
    told = run("tables", repository.root)
    assert told.returncode == 0, told.stderr
    told_by_words = dict(line.split(": ") for line in told.stdout.splitlines() if line.startswith(tuple(said)))
    assert {words: items.split(", ") for words, items in told_by_words.items()} == said
    reports = repository.root / "reports" / "quick"
    rows = {row["id"]: row for row in json.loads((reports / "scorecard.json").read_text(encoding="utf-8"))}
    assert "evaluate/vae-digits" in rows["000.t1.vae.0"]["other_settings"]
    assert rows["000.params"]["other_settings"] == []
    assert 'class="other"' in (reports / "index.html").read_text(encoding="utf-8")
    path = repository.results.records / "train" / "vae-digits.json"
    path.write_text("{", encoding="utf-8")
    told = run("tables", repository.root)
    assert told.returncode == 1
    assert str(path) in told.stderr
    assert "Traceback" not in told.stderr
