"""A small repository whose stages take fractions of a second, and what DVC says of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import yaml
from clones import SOMEONE
from dvc.repo import Repo

ROOT = Path(__file__).parents[2]

STEP = '''"""Write the stage's name, a parameter and the inputs into the output, after a while; note when."""
import sys, time
from pathlib import Path

name, seconds, output, *inputs = sys.argv[1:]
notes = Path("NOTES")
begun = time.time()
print("this is", name, flush=True)
time.sleep(float(seconds))
if Path("FAIL", name).exists():
    sys.exit(f"{name} cannot work")
path = Path(output)
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(name + "".join(Path(each).read_text() for each in inputs))
with (notes / name).open("a") as file:
    file.write(f"{begun} {time.time()} {Path.cwd()}\\n")
'''


@dataclass
class MadeUp:
    """A repository.

    Attributes:
        notes: a folder outside with the times at which every stage began and ended.
    """

    folder: Path
    notes: Path

    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "MLFLOW_", "GIT_"))}
        return {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",  # not the repository's own `pipeline`
            "DVC_NO_ANALYTICS": "true",
            "DVC_SITE_CACHE_DIR": str(self.folder.parent / "site"),
            "OMP_NUM_THREADS": "1",
            **SOMEONE,
        }

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`python -m <words>` in the repository."""
        return subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # a group of its own, as in a terminal
        )

    def run(self, *words: str, code: int = 0) -> str:
        """The output of `python -m <words>`, which must exit with `code`."""
        process = self.start(*words)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == code, output
        return output

    def fan_out(self, *words: str, code: int = 0) -> str:
        return self.run("pipeline", "fan-out", "--workers", "2", *words, code=code)

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.folder, env=self.environment(), check=True, capture_output=True)

    def times(self, name: str) -> list[tuple[float, float]]:
        """When each run of a stage began and ended."""
        return [(float(begun), float(ended)) for begun, ended, _ in self._noted(name)]

    def places(self, name: str) -> list[Path]:
        """Where each run of a stage was."""
        return [Path(place) for _, _, place in self._noted(name)]

    def _noted(self, name: str) -> list[list[str]]:
        path = self.notes / name
        return [line.split(maxsplit=2) for line in path.read_text().splitlines()] if path.exists() else []

    def runs(self) -> dict[str, int]:
        """How often each stage has run to its end, by name."""
        return {path.name: len(self.times(path.name)) for path in sorted(self.notes.iterdir())}

    def fail(self, name: str, fails: bool = True) -> None:
        """Let a stage fail, or no longer."""
        path = self.notes.parent / "fail" / name
        path.parent.mkdir(exist_ok=True)
        path.touch() if fails else path.unlink()

    def stale(self) -> set[str]:
        """The stages that `dvc status` names."""
        with chdir(self.folder), Repo() as repo:
            found = repo.status()
        return {name.partition(":")[2] or name for name in found}

    def lock(self) -> str:
        return (self.folder / "dvc.lock").read_text()

    def edit(self, **params: str) -> None:
        path = self.folder / "params.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | params))

    def wait_for(self, name: str, seconds: float = 30.0) -> None:
        """Wait until a stage has begun somewhere."""
        until = time.monotonic() + seconds
        while not (self.notes.parent / "begun" / name).exists():
            assert time.monotonic() < until, f"{name} has not begun"
            time.sleep(0.05)


def make(folder: Path, stages: Mapping[str, tuple[float, tuple[str, ...]]]) -> MadeUp:
    """A repository with stages given by name, seconds and the stages that each needs."""
    notes = folder / "notes"
    repository = MadeUp(folder / "a repository", notes)
    for each in (notes, folder / "begun", repository.folder / "stages", repository.folder / "pipeline" / "bundles"):
        each.mkdir(parents=True)
    text = STEP.replace("NOTES", str(notes)).replace("FAIL", str(folder / "fail"))
    text = text.replace("begun = time.time()", f"begun = time.time()\nPath({str(folder / 'begun')!r}, name).touch()")
    (repository.folder / "stages" / "step.py").write_text(text)
    (repository.folder / "stages" / "__init__.py").write_text("")
    (repository.folder / "pipeline" / "__init__.py").write_text("")
    for name in ("start.py",):
        shutil.copy(ROOT / "pipeline" / "bundles" / name, repository.folder / "pipeline" / "bundles")
    (repository.folder / "params.yaml").write_text(yaml.safe_dump(dict.fromkeys(stages, 1)))
    (repository.folder / ".gitignore").write_text("/.cache\n/out\n__pycache__\n")
    entries = {
        name: {
            "cmd": " ".join(["python stages/step.py", name, str(seconds), f"out/{name}", *(f"out/{n}" for n in needs)]),
            "deps": ["stages/step.py", *(f"out/{need}" for need in needs)],
            "params": [name],
            "outs": [f"out/{name}"],
        }
        for name, (seconds, needs) in stages.items()
    }
    (repository.folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": entries}, sort_keys=False))
    repository.git("init", "-q")
    (repository.folder / ".dvc").mkdir()  # as `dvc init`
    (repository.folder / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    (repository.folder / ".dvc" / ".gitignore").write_text("/config.local\n/tmp\n/cache\n")
    (repository.folder / ".dvcignore").write_text(".cache\n")
    repository.git("add", "-A")
    repository.git("commit", "-qm", "code")
    return repository


def executed(output: str) -> list[str]:
    """The stages that DVC ran or took from its run cache."""
    return re.findall(r"^(?:Running stage|Stage) '(.+)'(?::| is cached)", output, re.MULTILINE)
