"""make and requirements.lock: what a bare machine meets first, in a folder with spaces in its name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import ruamel.yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]

# Stands in for a Python: makes a "virtual environment" whose python writes down what it is asked to do.
FAKE = """#!/bin/sh
case "$1 $2" in
    "-c "*) exit 0 ;;
    "--version "*) echo Python 3.11.99 ;;
    "-m venv") mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pipeline") echo "quick"; case "$3" in repro | ui) echo "$@" >> calls ;; esac ;;
    *) echo "$@" >> calls ;;
esac
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    folder = tmp_path / "a clone with spaces"
    (folder / "scripts").mkdir(parents=True)
    for name in ("Makefile", "requirements.lock", "scripts/setup.sh"):
        shutil.copy(ROOT / name, folder / name)
    fake = tmp_path / "python3.11"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    return folder


def make(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    environment["PYTHON"] = str(clone.parent / "python3.11")
    return subprocess.run(["make", *arguments], cwd=clone, env=environment, capture_output=True, text=True, timeout=60)


def calls(clone: Path) -> list[str]:
    return (clone / "calls").read_text().splitlines()


def test_the_first_call_installs_the_lock_and_the_second_does_nothing(clone: Path) -> None:
    first = make(clone, "repro")
    assert first.returncode == 0, first.stderr
    install, repro = calls(clone)
    assert install.startswith("-m pip install")
    assert install.endswith("--requirement requirements.lock")
    assert repro.split() == ["-m", "pipeline", "repro"]
    assert first.stdout.splitlines()[-1] == "done: open reports/quick/index.html"

    second = make(clone, "repro", "ARGS=train@x")
    assert calls(clone)[2:] == ["-m pipeline repro train@x"]
    assert "Setting up" not in second.stdout

    os.utime(clone / "requirements.lock", None)
    future = (clone / ".venv" / "installed").stat().st_mtime + 10
    os.utime(clone / "requirements.lock", (future, future))
    assert "Setting up" in make(clone, "test").stdout
    assert make(clone, "ui", "PORT=5001").returncode == 0
    assert calls(clone)[-1] == "-m pipeline ui --port 5001"


def test_a_failed_installation_is_explained_and_tried_again(clone: Path) -> None:
    python = clone.parent / "python3.11"
    python.write_text(FAKE.replace('*) echo "$@"', '"-m pip") exit 1 ;;\n    *) echo "$@"'))
    result = make(clone, "test")
    assert result.returncode != 0
    assert "PIP_INDEX_URL" in result.stderr
    assert not (clone / ".venv" / "installed").exists()
    python.write_text(FAKE)
    assert make(clone, "test").returncode == 0


def test_a_named_python_that_will_not_do_is_not_replaced_by_another(clone: Path) -> None:
    (clone.parent / "python3.11").unlink()
    result = make(clone, "test")
    assert result.returncode != 0
    assert str(clone.parent / "python3.11") in result.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("entry", ["pipeline", "stages.train", "benchmarks"])
def test_a_python_without_the_packages_is_named_with_the_one_that_has_them(entry: str) -> None:
    command = [sys.executable, "-S", "-m", entry, "x"]  # -S: without the folder of installed packages
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 1
    (line,) = told.stderr.splitlines()
    assert all(words in line for words in (sys.executable, "make setup", ".venv/bin/python"))


def test_the_lock_answers_everything_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    assert all(re.fullmatch(r"[0-9][0-9a-z.]*", version) for version in pinned.values()), "plain versions only"
    assert not [name for name in pinned if name.startswith(("nvidia", "cuda", "triton"))], "left to torch"
    extras = [text for name in ("dev", "sharing", "server") for text in project["optional-dependencies"][name]]
    for text in [*project["dependencies"], *extras]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text


def test_dvc_reads_its_lock_with_the_parser_in_c() -> None:
    """Without it every command of DVC takes seconds longer; newer versions of ruamel.yaml leave it out."""
    assert ruamel.yaml.__with_libyaml__
