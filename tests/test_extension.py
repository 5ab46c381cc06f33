"""A study and a system that the project does not have: added as CONTRIBUTING.md says, they reach the page."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from clones import executed, working_copy

pytestmark = pytest.mark.slow

MODULES = Path(__file__).parent / "extension"
STUDY = """
  brightness:
    foreach: ${brightness}
    do:
      cmd: python -m stages.study brightness ${key}
      deps:
        - pipeline/studies/brightness.py
        - models/${item.run}
      params:
        - brightness.${key}
      outs:
        - results/${profile}/brightness/${key}
      metrics:
        - reports/${profile}/results/brightness/${key}.json:
            cache: false
      plots:
        - reports/${profile}/results/brightness/${key}.csv:
            cache: false

"""
"""The entry of the study in dvc.yaml."""
RUN = {
    "variant": "linear", "dataset": "digits", "replicas": 1, "seed": 0, "holdout": None, "watched": 0,
    "augmentation": dict.fromkeys(("rotation", "scale", "aspect", "shear", "shift", "gamma", "gain", "offset"), 0.0)
    | {"crop": 28},
    "model": {"classes": 10},
}  # fmt: skip


def replace(path: Path, before: str, after: str) -> None:
    """Change a text that stands in a file once."""
    first, last = path.read_text(encoding="utf-8").split(before)
    path.write_text(first + after + last, encoding="utf-8")


def parameters(values: dict[str, Any]) -> None:
    """A run of the system, and the study of it."""
    training = values["runs"]["cnn-toys"]["training"] | {"epochs": 1}
    values["runs"]["linear-digits"] = RUN | {"training": training}
    values["brightness"] = {"digits": {"run": "linear-digits", "factors": [1.0, 0.5]}}


def test_a_study_and_a_system_reach_the_page(tmp_path: Path) -> None:
    clone = working_copy(tmp_path / "clone")
    place = clone.folder / "pipeline"
    shutil.copy(MODULES / "brightness.py", place / "studies/brightness.py")
    shutil.copy(MODULES / "report_brightness.py", place / "report/brightness.py")
    replace(clone.folder / "dvc.yaml", "\n  routing:\n", f"{STUDY}  routing:\n")
    shutil.copytree(MODULES / "linear", place / "systems/linear")
    systems, added = place / "systems/__init__.py", "from pipeline.systems.linear import SYSTEM as LINEAR\n"
    replace(systems, "from pipeline.systems.vae", f"{added}from pipeline.systems.vae")
    replace(systems, "CNN, REGRESSION)", "CNN, REGRESSION, LINEAR)")
    clone.edit(parameters)
    clone.run("git", "init", "-q")
    output = clone.run("dvc", "repro", "brightness@digits", "evaluate@linear-digits")
    assert {"train@linear-digits", "evaluate@linear-digits", "brightness@digits"} <= set(executed(output))
    clone.run("dvc", "repro", "-s", "figures", "tables")
    reports = clone.folder / "reports/quick"
    page = (reports / "index.html").read_text(encoding="utf-8")
    assert all(f'id="{shown}"' in page for shown in ("figure-brightness-digits", "table-brightness"))
    assert "logistic regression" in page, "the system is in the table of all"
    changed = yaml.safe_load((reports / "results/brightness/digits.json").read_text())["record"][0]["error"]
    assert changed.keys() == {"1.0", "0.5"}
