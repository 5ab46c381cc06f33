"""Fan-out's order and overhead: this project's graph of stages with pauses in place of work, on 2 and 4 workers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import yaml

from benchmarks.machine import Budget
from benchmarks.rows import Mark, Row, duration
from pipeline.errors import UserError

ROOT = Path(__file__).parents[1]
WORKERS = (2, 4)
TOTAL_SECONDS = 240.0
"""Pauses of all stages together: a minute on four workers."""
LEAST = "the same stages with no cost of their own, longest chain first; stages that need no worker run beside them"

PAUSE = """import sys, time
from pathlib import Path

seconds, output = sys.argv[1:]
time.sleep(float(seconds))
Path(output).parent.mkdir(exist_ok=True)
Path(output).write_text(seconds)
"""


def measure(budget: Budget, quick: bool = False) -> tuple[list[Row], list[str]]:
    """Seconds from the first stage dispatched to the last one recorded, against the least and against the forecast.

    Pauses take the recorded durations' place, in proportion: four workers then do not share two cores.

    Returns:
        Rows, and notes on what could not be measured.
    """
    if importlib.util.find_spec("distributed") is None or importlib.util.find_spec("dvc") is None:
        return [], ["fan-out: not measured, it needs `pip install .[cluster]`"]
    from pipeline.cluster.estimate import remaining
    from pipeline.cluster.forecast import forecasts

    budget.show("fan-out, reading the graph")
    needs, pauses = paused_graph(1.0, ["train@vae-digits"]) if quick else paused_graph(TOTAL_SECONDS)
    rows = []
    for workers in WORKERS[:1] if quick else WORKERS:
        budget.show(f"fan-out, {workers} workers")
        with tempfile.TemporaryDirectory() as folder:
            make_repository(Path(folder), needs, pauses)
            taken, whole = _run(Path(folder), workers)
        (forecast,) = forecasts(needs, pauses, [workers])
        least = Mark(remaining(needs, pauses, {}, workers), LEAST)
        reference = Mark(forecast.seconds, "what `python -m pipeline forecast` says")
        note = (
            f"the quick profile's {len(needs)} stages as pauses of {sum(pauses.values()):.0f} s in all, as recorded"
            f" seconds are shared; from the first stage dispatched to the last recorded. The whole call: {whole:.1f} s"
        )
        rows.append(duration(f"fan-out: quick as pauses, {workers} workers", taken, "s", least, reference, note))
    return rows, []


def paused_graph(total: float, targets: Sequence[str] = ()) -> tuple[dict[str, frozenset[str]], dict[str, float]]:
    """The stages behind the targets, all by default, and `total` seconds shared as recorded durations are."""
    from pipeline.cluster.command import known_plan
    from pipeline.cluster.estimate import durations

    plan, known = known_plan(ROOT, targets)
    seconds = durations(list(plan), known)
    scale = total / sum(seconds.values())
    needs = {_plain(name): frozenset(map(_plain, plan[name])) for name in plan}
    return needs, {_plain(name): round(seconds[name] * scale, 3) for name in plan}


def _plain(name: str) -> str:
    """A stage's name without the @ of an item, which only DVC may write."""
    return name.replace("@", "--")


def make_repository(folder: Path, needs: Mapping[str, Collection[str]], pauses: Mapping[str, float]) -> None:
    """A repository under Git and DVC whose stages only wait."""
    for name in ("stages", "pipeline"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").touch()
    (folder / "stages" / "pause.py").write_text(PAUSE, encoding="utf-8")
    bundles = Path("pipeline", "bundles")
    (folder / bundles).mkdir()
    shutil.copy(ROOT / bundles / "start.py", folder / bundles)
    (folder / ".gitignore").write_text("/.cache\n/out\n/site\n__pycache__\n", encoding="utf-8")
    (folder / "params.yaml").write_text("{}\n", encoding="utf-8")  # the mark of a repository of this project
    stages = {
        name: {
            "cmd": f"python stages/pause.py {pauses[name]} out/{name}",
            "deps": ["stages/pause.py", *(f"out/{need}" for need in sorted(needs[name]))],
            "outs": [f"out/{name}"],
        }
        for name in needs
    }
    (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}), encoding="utf-8")
    for words in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(words, cwd=folder, env=_environment(folder), check=True, capture_output=True)


def _run(folder: Path, workers: int) -> tuple[float, float]:
    """Seconds from the first stage dispatched to the last one recorded, and of the whole call.

    Raises:
        UserError: a stage failed.
    """
    from pipeline.cluster.command import FOLDER
    from pipeline.cluster.ledger import Ledger

    begun = time.perf_counter()
    words = [sys.executable, "-m", "pipeline", "fan-out", "--workers", str(workers)]
    result = subprocess.run(words, cwd=folder, env=_environment(folder), capture_output=True, text=True, check=False)
    whole = time.perf_counter() - begun
    if result.returncode:
        raise UserError(f"fan-out failed: {(result.stdout + result.stderr).strip()[-300:]}")
    times = [entry.time for entry in Ledger(folder / FOLDER / "ledger.jsonl").entries()]
    return times[-1] - times[0], whole


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_", "GIT_", "OMP_"))}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",  # this project's `pipeline`, not that of the repository
        "DVC_NO_ANALYTICS": "true",
        "DVC_SITE_CACHE_DIR": str(folder / "site"),
    }
