"""A small copy of the repository in which reproductions take seconds, so that many can be disturbed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import psutil
import yaml

from pipeline.files import json_sha256, sha256
from scripts.small_copy import command, copy_repository, environment

RUN = "vae-digits"
DATA = ("download@digits", "preprocess@digits")
TARGETS = (*DATA, f"train@{RUN}", f"evaluate@{RUN}")
LIMIT = 300.0
"""Seconds that a command may take."""
FOLDERS = ("data", "models", "results", "reports")
VARYING = ("record", "provenance", "seconds", "images_per_second", "tracking_run", "created")
"""Keys and columns of results that differ between reproductions, such as times and names of tracked runs."""

State = Literal["nothing", "prepared", "finished"]
"""What a repository has when a case begins: code only, code and data, or all results."""


class Repository:
    """One small repository and copies of it in three states, from which every case begins anew.

    Args:
        work: folder of everything that the campaign writes.

    Attributes:
        folder: the repository that faults disturb. Its path is the same in all cases.
        seconds: seconds that a reproduction from the state "prepared" takes.
        reference: hashes of the files that a reproduction without a fault leaves (`contents`).

    Raises:
        RuntimeError: the reproduction fails without any fault.
    """

    def __init__(self, work: Path) -> None:
        self.work, self.folder = work, work / "a repository"
        copy_repository(self.folder, "published/", "docs/", "tests/")
        self._set_sizes()
        self._must("git", "init", "-q")
        self._keep("nothing", "code")
        self._must("dvc", "repro", *DATA)
        self._keep("prepared", "data")
        begun = time.monotonic()
        self._must("dvc", "repro", *TARGETS)
        self.seconds = time.monotonic() - begun
        self._keep("finished", "results")
        self.reference = contents(self.folder)

    def begin(self, state: State) -> None:
        """End the processes that an earlier case left running, and restore the repository's files of a state."""
        for process in psutil.process_iter(["cmdline"]):
            if str(self.folder) in " ".join(process.info["cmdline"] or ()):
                with suppress(psutil.Error):
                    process.kill()
                    process.wait(10)
        shutil.rmtree(self.work / "site", ignore_errors=True)
        for path in self.folder.iterdir():  # the folder stays: a disk may be mounted there
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        shutil.copytree(self.work / state, self.folder, symlinks=True, dirs_exist_ok=True)

    def start(self, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, with the environment variables `more`; its output goes to a
        file.
        """
        with (self.work / "output.txt").open("w") as output:
            return subprocess.Popen(
                command(words),
                cwd=self.folder,
                env=environment(self.work / "site", {"OMP_NUM_THREADS": "1", **more}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def call(self, *words: str, **more: str) -> tuple[int, str]:
        """Exit code and output of a command; 124 if it took longer than `LIMIT` and was ended."""
        process = self.start(*words, **more)
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = 124
        return code, (self.work / "output.txt").read_text(errors="replace")

    def reproduce(self, **more: str) -> tuple[int, str]:
        """`dvc repro` of the targets: exit code and output."""
        return self.call("dvc", "repro", *TARGETS, **more)

    def _set_sizes(self) -> None:
        path = self.folder / "params.yaml"
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        run = values["runs"][RUN]
        run["replicas"] = 2
        run["training"] |= {"epochs": 20, "patience": 20, "batch_size": 32}
        values["datasets"]["digits"] |= {"train": 512, "validation": 32, "test": 32}
        path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")

    def _keep(self, state: State, message: str) -> None:
        """Commit everything with `message`, and copy the repository as its `state`."""
        self._must("git", "add", "-A")
        self._must("git", "commit", "-qm", message)
        shutil.copytree(self.folder, self.work / state, symlinks=True)

    def _must(self, *words: str) -> None:
        code, output = self.call(*words)
        if code:
            raise RuntimeError(f"{' '.join(words)} failed without any fault:\n{output[-2000:]}")


def contents(folder: Path) -> dict[str, str]:
    """A hash of every file in `FOLDERS`, by its path in the repository, without the keys and columns `VARYING`."""
    return {
        path.relative_to(folder).as_posix(): _hash(path)
        for name in FOLDERS
        for path in sorted((folder / name).rglob("*"))
        if path.is_file() and path.name != ".gitignore"
    }


def _hash(path: Path) -> str:
    try:
        if path.suffix == ".json":
            return json_sha256(_constant(json.loads(path.read_text(encoding="utf-8"))))
        if path.suffix == ".csv":
            import pandas as pd

            table = pd.read_csv(path)
            return json_sha256(table.drop(columns=[name for name in table if name in VARYING]).to_csv())
    except ValueError:
        return "damaged"
    return sha256(path)


def _constant(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _constant(each) for key, each in value.items() if key not in VARYING}
    return [_constant(each) for each in value] if isinstance(value, list) else value
