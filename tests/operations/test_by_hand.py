"""The commands of docs/scaling.md for one machine with a GPU, with a bare repository and a folder as the remote."""

from __future__ import annotations

import shutil
from pathlib import Path

from clones import Clone, executed, restored
from commands import commands_of
from short_stages import make

from pipeline.dependencies import Graph
from pipeline.files import read_yaml
from pipeline.profiles import Profiles

ROOT = Path(__file__).parents[2]
DATA, TRAINING = "preprocess@mnist", "train@capsules-mnist"
SWITCH = "python -m pipeline profile switch paper-gpu "
"""The repository of this test has no profiles."""
SET_UP = "make setup && . .venv/bin/activate && "
"""The environment of this test stands for it."""


def test_what_ran_on_the_other_machine_runs_nothing_at_home(tmp_path: Path) -> None:
    graph = Graph.load(ROOT, read_yaml(Profiles(ROOT).params_path("paper-gpu")))
    for label in (DATA, TRAINING):
        assert graph.item(*label.split("@")).label == label
    before, there, home = commands_of("scaling.md", "One machine with a GPU, by hand")
    assert before.startswith(SWITCH)
    assert len([*before.splitlines(), *there.splitlines(), *home.splitlines()]) == 9
    git, remote = tmp_path / "capsules.git", tmp_path / "remote"
    places = {"git@example.org:capsules.git": str(git), "s3://bucket/capsules": str(remote), SET_UP: ""}
    for name, place in places.items():
        assert there.count(name) == 1, name
        there = there.replace(name, place)

    made = make(tmp_path, {"preprocess": [], "train": ["preprocess"]})
    made.run("git", "clone", "-q", "--bare", ".", str(git))
    made.run("git", "remote", "add", "origin", str(git))
    made.run("git", "fetch", "-q")
    branch = made.run("git", "branch", "--show-current").strip()
    made.run("git", "branch", "-q", f"--set-upstream-to=origin/{branch}")
    made.run("dvc", "remote", "add", "--local", "-d", "team", str(remote))

    other = Clone(tmp_path / "other machine")
    other.folder.mkdir()
    for machine, script in ((made, before.partition("\n")[2]), (other, there), (made, home)):
        machine.run("bash", "-ec", script.replace(TRAINING, "train").replace(DATA, "preprocess"))
    assert made.runs() == {"preprocess": 1, "train": 1}
    assert made.begun("train")[0][2] == str(other.folder / "capsules")
    shutil.rmtree(other.folder)
    output = made.run("dvc", "repro", "train")
    assert executed(output) == restored(output) == []
    assert (made.folder / "out" / "train").read_text() == "train1preprocess1"
