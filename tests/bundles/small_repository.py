"""A small repository with stages that take a moment and need nothing but Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

DVC_YAML = """\
stages:
  train:
    foreach: ${items}
    do:
      cmd: python -m stages.train ${key}
      deps: [stages/train.py, pipeline/numbers.py, data/numbers.txt, data/folder]
      params: ["items.${key}"]
      outs: ["models/${key}"]
      metrics:
        - "reports/${key}.json":
            cache: false
  total:
    foreach: ${items}
    do:
      cmd: python -m stages.total ${key}
      deps: [stages/total.py, "models/${key}"]
      outs: ["totals/${key}.txt", "totals/${key}-parts"]
  draw:
    cmd: python -m stages.draw
    deps: [stages/train.py]
    outs:
      - figures:
          persist: true
"""
PARAMS = """\
profile: quick
items:
  a: {factor: 2, steps: 1, epochs: {first: 1}}
  slow: {factor: 3, steps: 600, epochs: {first: 1}}
other: 1
"""
MAKE = '''\
"""Multiplies numbers; keeps a checkpoint and a journal like a training."""
import json, os, struct, sys, time
from pathlib import Path
from pipeline.numbers import times

name = sys.argv[1]
lines = [line for line in Path("params.yaml").read_text().splitlines() if line.strip().startswith(f"{name}:")]
factor, steps = (int(lines[0].partition(f"{key}: ")[2].split(",")[0]) for key in ("factor", "steps"))
run = f"20260101-000000-train-{name}-abcdef"
journal = Path(".tracking", run, "events.jsonl")
journal.parent.mkdir(parents=True, exist_ok=True)
with journal.open("a") as file:
    file.write(json.dumps({"event": "start", "commit": os.environ.get("CAPSULES_COMMIT")}) + "\\n")
checkpoint = Path(".cache/resume/fingerprint/checkpoint.safetensors")
done = 0
if checkpoint.exists():
    print("going on from a checkpoint", flush=True)
    done = 10**6
while done < steps:
    if steps > 1:
        about = json.dumps({"tracked_run": run, "state": {"epoch": done}})
        header = json.dumps({"__metadata__": {"capsules": about}}).encode()
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.write_bytes(struct.pack("<Q", len(header)) + header)
        print("waiting", flush=True)
        time.sleep(0.1)
    done += 1
checkpoint.unlink(missing_ok=True)
made = Path("models", name)
made.mkdir(parents=True)
made.joinpath("weights.txt").write_text(times(Path("data/numbers.txt").read_text(), factor))
made.joinpath("copy.txt").write_text(times(Path("data/numbers.txt").read_text(), factor))
Path("reports").mkdir(exist_ok=True)
Path("reports", f"{name}.json").write_text(json.dumps({"python": sys.executable, "safe": sys.flags.isolated}))
'''
NUMBERS = """\
def times(text: str, factor: int) -> str:
    return " ".join(str(factor * int(number)) for number in text.split())
"""
TOTAL = """\
import sys
from pathlib import Path

name = sys.argv[1]
Path("totals", f"{name}-parts").mkdir()
numbers = Path("models", name, "weights.txt").read_text().split()
Path("totals", f"{name}.txt").write_text(str(sum(map(int, numbers))))
"""


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
    command = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def dvc(root: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def create(root: Path) -> None:
    """Write the repository and commit it."""
    texts = {
        "dvc.yaml": DVC_YAML,
        "params.yaml": PARAMS,
        "stages/__init__.py": "",
        "stages/train.py": MAKE,
        "stages/total.py": TOTAL,
        "stages/unused.py": "# nothing depends on this\n",
        "pipeline/numbers.py": NUMBERS,
        "data/numbers.txt": "1 2 3",
        "data/folder/more.txt": "more",
        ".gitignore": "/.cache/\n/.tracking/\n/models/\n/totals/\n/figures/\n/reports/\n/*.bundle.tar\n__pycache__/\n",
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in ("__init__.py", "errors.py", "files.py", "commits.py", "layout.py", "locks.py"):
        shutil.copy(ROOT / "pipeline" / name, root / "pipeline")
    shutil.copytree(ROOT / "pipeline" / "bundles", root / "pipeline" / "bundles", ignore=lambda *_: ["__pycache__"])
    git(root, "init", "-q")
    dvc(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
