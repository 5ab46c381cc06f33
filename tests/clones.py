"""Clones of a repository in which tests run the real `git` and `dvc`, and what they printed."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from scripts.small_copy import command, copy_repository, environment


@dataclass
class Clone:
    """A folder with a Git repository under DVC."""

    folder: Path

    def attempt(self, *words: str, **more: str) -> tuple[int, str]:
        """Exit code and output of a command (DVC's is `dvc`, Git's `git`, this project's `pipeline`). `more` are
        environment variables.
        """
        told = subprocess.run(
            command(words),
            cwd=self.folder,
            env=environment(self.folder.parent / "site", more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1200,
            check=False,
        )
        return told.returncode, told.stdout

    def run(self, *words: str, **more: str) -> str:
        """Output of a command, which must succeed."""
        code, output = self.attempt(*words, **more)
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
    copy_repository(folder)
    return Clone(folder)


def executed(output: str) -> list[str]:
    """The stages whose command DVC ran."""
    return re.findall(r"^Running stage '(.+)':$", output, re.MULTILINE)


def restored(output: str) -> list[str]:
    """The stages that DVC took from its run cache."""
    return re.findall(r"^Stage '(.+)' is cached - skipping run", output, re.MULTILINE)
