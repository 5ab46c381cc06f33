"""A small copy of the repository in which reproductions take seconds, so that many of them can be spoilt."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from benchmarks.faults.contents import contents

ROOT = Path(__file__).parents[2]
RUN = "vae-digits"
DATA = ("download@digits", "preprocess@digits")
MNIST = ("download@mnist",)
TARGETS = (*DATA, f"train@{RUN}", f"evaluate@{RUN}")
LIMIT = 300.0  # seconds that a command may take


class CampaignError(Exception):
    """The campaign itself went wrong: nothing is known about the fault."""


@dataclass
class Repository:
    """One small repository and copies of it in three states, from which every case begins anew.

    Args:
        work: folder of everything that the campaign writes.
        mirror: a folder with the files of MNIST, for faults of downloads; without it there are none.

    Attributes:
        folder: the repository that is spoilt; it always lies in the same place.
        state: from which this case began.
        targets: what this case reproduces.
        environment: what later commands of this case find in their environment.
        seconds: how long a reproduction takes from each state.
        reference: what a reproduction without a fault leaves, by targets.
    """

    work: Path
    mirror: Path | None = None

    def __post_init__(self) -> None:
        self.folder = self.work / "a repository"
        self.state = "nothing"
        self.targets: tuple[str, ...] = TARGETS
        self.environment: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self.reference: dict[tuple[str, ...], dict[str, str]] = {}

    def build(self) -> None:
        """Copy the code as it stands, cut its settings down and reproduce it, keeping a copy of each state.

        Raises:
            CampaignError: the reproduction fails without any fault.
        """
        self.folder.mkdir(parents=True)
        names = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True
        ).stdout.decode()
        for name in names.split("\0"):
            wanted = name and not name.startswith(("reports/", "published/", "docs/", "tests/"))
            if wanted and not name.endswith("dvc.lock") and (ROOT / name).is_file():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, self.folder / name)
        self._shorten()
        self._git("init", "-q")
        self._git("add", "-A")
        self._git("commit", "-qm", "code")
        self._keep("nothing")
        self._must("dvc", "repro", *DATA)
        self._keep("prepared")
        begun = time.monotonic()
        self._must("dvc", "repro", *TARGETS)
        self.seconds["prepared"] = time.monotonic() - begun
        self._git("add", "-A")
        self._git("commit", "-qm", "results")
        self._keep("finished")
        self.seconds["nothing"] = self.seconds["prepared"] + 5.0
        self.reference[TARGETS] = contents(self.folder)
        if self.mirror:
            self.begin("nothing")
            self.environment = {"CAPSULES_MIRROR": str(self.mirror)}
            self._must("dvc", "repro", *MNIST)
            self.reference[MNIST] = contents(self.folder)

    def begin(self, state: str, folder_exists: bool = False) -> None:
        """Put the repository into a state: `nothing` (code only), `prepared` (with data) or `finished`."""
        self._end_processes()
        if not folder_exists:
            shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.work / "site", ignore_errors=True)
        shutil.copytree(self.work / state, self.folder, symlinks=True, dirs_exist_ok=folder_exists)
        self.state, self.targets, self.environment = state, TARGETS, {}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own; its output goes to a file."""
        with (self.work / "output.txt").open("a") as output:
            return subprocess.Popen(
                _command(words),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def call(self, *words: str, limit: float = LIMIT) -> tuple[int, str]:
        """Exit code and output of a command; 124 if it took longer than `limit` seconds and was ended."""
        process = subprocess.Popen(
            _command(words),
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)
            try:
                output, _ = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                output, _ = process.communicate()
            return 124, output
        return process.returncode, output

    def reproduce(self) -> tuple[int, str]:
        """`dvc repro` of this case's targets: exit code and output."""
        return self.call("dvc", "repro", *self.targets)

    def _end_processes(self) -> None:
        """End what an earlier case left, such as the process that delivers to a tracking server that never answers."""
        left = [
            each
            for each in psutil.process_iter(["cmdline"])
            if str(self.folder) in " ".join(each.info["cmdline"] or ())
        ]
        for each in left:
            with suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(left, timeout=10)

    def _shorten(self) -> None:
        path = self.folder / "params.yaml"
        subprocess.run([sys.executable, str(self.folder / "scripts/shorten.py"), str(path)], check=True)
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        run = values["runs"][RUN]
        run["replicas"] = 2
        run["training"] |= {"epochs": 20, "patience": 20, "batch_size": 32}
        values["sources"] += ["mnist"] if self.mirror else []
        values["datasets"]["digits"] |= {"train": 512, "validation": 32, "test": 32}
        path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")

    def _keep(self, state: str) -> None:
        shutil.copytree(self.folder, self.work / state, symlinks=True)

    def _git(self, *words: str) -> None:
        self._must("git", *words)

    def _must(self, *words: str) -> None:
        code, output = self.call(*words)
        if code:
            raise CampaignError(f"{' '.join(words)} failed without any fault:\n{output[-2000:]}")

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "MLFLOW_", "GIT_"))}
        someone = {
            f"GIT_{who}_{what}": "nobody@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        return {
            **kept,
            **someone,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "DVC_NO_ANALYTICS": "true",
            "DVC_SITE_CACHE_DIR": str(self.work / "site"),
            "CAPSULES_MLFLOW": "off",
            "OMP_NUM_THREADS": "1",
            **self.environment,
        }


def _command(words: tuple[str, ...]) -> list[str]:
    if words[0] in ("dvc", "pipeline"):
        return [sys.executable, "-m", *words]
    return list(words)
