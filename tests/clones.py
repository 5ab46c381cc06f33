"""Clones of a repository in which tests run the real `git` and `dvc`, and what they printed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.profiles import Profiles

ROOT = Path(__file__).parents[1]
SOMEONE = {f"GIT_{who}_{what}": "nobody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@dataclass
class Clone:
    """A folder with a Git repository under DVC."""

    folder: Path

    def attempt(self, *words: str, **environment: str) -> tuple[int, str]:
        """Exit code and output of a command (DVC's is `dvc`, Git's `git`, this project's `pipeline`)."""
        command = [sys.executable, "-m", *words] if words[0] in ("dvc", "pipeline") else list(words)
        # DVC starts stages with the `python` it finds first.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        foreign = ("DVC_", "MLFLOW_", "GIT_", "AWS_")
        told = subprocess.run(
            command,
            cwd=self.folder,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
                **{"PATH": path, "DVC_NO_ANALYTICS": "true", "CAPSULES_MLFLOW": "off"},
                **{"DVC_SITE_CACHE_DIR": str(self.folder.parent / "site")},
                **SOMEONE,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1200,
            check=False,
        )
        return told.returncode, told.stdout

    def run(self, *words: str, **environment: str) -> str:
        """Output of a command, which must succeed."""
        code, output = self.attempt(*words, **environment)
        assert code == 0, output
        return output

    def init(self) -> None:
        """Make a Git repository under DVC here, as `git init` and `dvc init` do, which takes seconds."""
        self.run("git", "init", "-q")
        (self.folder / ".dvc").mkdir()
        (self.folder / ".dvc/config").touch()
        (self.folder / ".dvc/.gitignore").write_text("/config.local\n/tmp\n/cache\n")

    def json(self, *words: str) -> Any:
        """The JSON that a DVC command prints."""
        output = self.run("dvc", *words, "--json")
        return json.loads(output[output.index("{") :])

    def tracked(self) -> set[str]:
        """Ids of the tracked runs."""
        return {path.name for path in (self.folder / ".tracking").iterdir()}

    def edit(self, change: Any) -> None:
        """Let `change` edit the content of params.yaml."""
        path = self.folder / "params.yaml"
        values = yaml.safe_load(path.read_text())
        change(values)
        path.write_text(yaml.safe_dump(values, sort_keys=False))


def working_copy(folder: Path) -> Clone:
    """The repository as it stands, in a new folder, without results, with little data and few epochs; not committed."""
    clone = Clone(folder)
    folder.mkdir()
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True
    ).stdout.decode()
    for name in listed.split("\0"):
        made = (name.startswith("reports/") and name != "reports/faults.json") or name.endswith("dvc.lock")
        if name and not made and (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    shutil.copy(Profiles(ROOT).params_path("quick"), folder / "params.yaml")
    clone.run(sys.executable, "scripts/shorten.py", "params.yaml")
    return clone


def executed(output: str) -> list[str]:
    """The stages whose command DVC ran."""
    return re.findall(r"^Running stage '(.+)':$", output, re.MULTILINE)


def restored(output: str) -> list[str]:
    """The stages that DVC took from its run cache."""
    return re.findall(r"^Stage '(.+)' is cached - skipping run", output, re.MULTILINE)
