"""A small repository whose items take fractions of a second, and notes of what they did."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from clones import Clone

ROOT = Path(__file__).parents[2]

STEP = '''"""Write the item's name and its inputs, after a while; note outside of the repository that it begins."""
import json, os, sys, time
from pathlib import Path

name, notes, *inputs = sys.argv[1:]
notes, checkpoint = Path(notes), Path(".cache", "resume", name)
with (notes / f"{name}.begun").open("a") as file:
    file.write(f"{os.getpid()} {'again' if checkpoint.exists() else 'anew'} {Path.cwd()}\\n")
for path in (checkpoint, Path(".tracking", name)):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
print("this is", name, flush=True)
time.sleep(float((notes / "seconds").read_text()) if name == "slow" else 0)
other, patience = {"left": "right", "right": "left"}.get(name, name), time.monotonic() + 60
while not (notes / f"{other}.begun").exists():
    assert time.monotonic() < patience, f"{other} does not begin"
    time.sleep(0.05)
if (notes / f"{name}.fails").exists():
    sys.exit(f"{name} cannot work")
text = name + Path("rate.txt").read_text() + "".join(Path(each).read_text() for each in inputs)
Path("out").mkdir(exist_ok=True)
Path("out", name).write_text(text)
Path("reports").mkdir(exist_ok=True)
Path("reports", f"{name}.json").write_text(json.dumps({"length": len(text)}))
'''


@dataclass
class Short(Clone):
    """A repository, and a folder outside of it, where every item notes that it begins."""

    notes: Path

    def attempt(self, *words: str, **environment: str) -> tuple[int, str]:
        """As in any clone, but the repository lacks this project's code."""
        path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
        return super().attempt(*words, PYTHONPATH=path, **environment)

    def fan_out(self, *words: str, code: int = 0) -> str:
        """What `python -m pipeline fan-out` prints; it must exit with `code`."""
        found, output = self.attempt("pipeline", "fan-out", *words)
        assert found == code, output
        return output

    def begun(self, name: str) -> list[list[str]]:
        """Of each time that an item began: its process, whether `anew` or `again` from a checkpoint, and its folder."""
        path = self.notes / f"{name}.begun"
        return [line.split(maxsplit=2) for line in path.read_text().splitlines()] if path.exists() else []

    def runs(self) -> dict[str, int]:
        """How often each item began."""
        names = sorted(path.stem for path in self.notes.glob("*.begun"))
        return {name: len(self.begun(name)) for name in names}

    def fail(self, name: str, fails: bool = True) -> None:
        """Let an item fail, or no longer."""
        path = self.notes / f"{name}.fails"
        path.touch() if fails else path.unlink()

    def forget(self) -> None:
        """Drop the notes of earlier runs."""
        for path in self.notes.glob("*.begun"):
            path.unlink()

    def commit(self) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-qm", "a change")


def make(folder: Path, needs: Mapping[str, Sequence[str]], seconds: float = 0.0) -> Short:
    """A repository with items given by name and the items that each needs. The item `slow` takes `seconds`;
    `left` and `right` end after both have begun.

    As studies of this project do, an item also reads what the items that it needs depend on, without naming it.
    """
    read: dict[str, list[str]] = {}
    for name in needs:
        read[name] = list(dict.fromkeys([*needs[name], *(each for need in needs[name] for each in read[need])]))
    made = Short(folder / "a repository", folder / "notes")
    for each in (made.folder, made.notes):
        each.mkdir()
    (made.notes / "seconds").write_text(str(seconds))
    stages = {
        name: {
            "cmd": f"python step.py {name} {made.notes} {' '.join(f'out/{each}' for each in read[name])}",
            "deps": ["step.py", "rate.txt", *(f"out/{need}" for need in needs[name])],
            "outs": [f"out/{name}"],
            "metrics": [{f"reports/{name}.json": {"cache": False}}],
        }
        for name in needs
    }
    files = {
        "step.py": STEP,
        "rate.txt": "1",
        "params.yaml": "{}\n",  # the mark of a repository of this project
        "dvc.yaml": yaml.safe_dump({"stages": stages}, sort_keys=False),
        ".gitignore": "/.cache/\n/.tracking/\n/out/\n",
        ".dvcignore": ".cache/\n",
    }
    for name, text in files.items():
        (made.folder / name).write_text(text)
    made.init()
    made.commit()
    return made
