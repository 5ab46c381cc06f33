"""Checks of the machine: what is installed and reachable, what is missing, and what to do about it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.tracking import Store
from pipeline.tracking.store import StoreError

if TYPE_CHECKING:
    from pipeline.data.sources import Source

NEEDED_GIB = 5.0
NETWORK_SECONDS = 5.0


@dataclass(frozen=True)
class Check:
    """One line of the report; `advice` says what to do if the check fails."""

    what: str
    ok: bool
    found: str
    advice: str = ""


def examine(root: Path, store: Store | None) -> Iterator[Check]:
    """Run all checks, one after another; each has its own time limit, and none raises an error."""
    checks: dict[str, Callable[[], Check]] = {
        "python": _python,
        "torch": lambda: _torch(root),
        "kernels": _kernels,
        "parameters": lambda: _parameters(root),
        "lock": lambda: _lock(root),
        "disk": lambda: _disk(root),
        "downloads": lambda: _downloads(root),
        "mlflow": lambda: _mlflow(store),
        "dvc": lambda: _dvc(root),
        "run-cache": lambda: _run_cache(root),
        "git": lambda: _git(root),
    }
    for what, check in checks.items():
        try:
            yield check()
        except Exception as error:  # a check that raises is reported as a problem
            yield Check(what, False, " ".join(f"{type(error).__name__}: {error}".split())[:200])


def _python() -> Check:
    return Check("python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer")


def _torch(root: Path) -> Check:
    import torch

    from pipeline.compute import DeviceError, choose_device
    from pipeline.params import load_params

    try:
        choose_device(load_params(root / "params.yaml").device)
    except DeviceError as error:
        return Check("torch", False, f"{torch.__version__} on CPU", str(error))
    except UserError:
        pass  # reported with the parameters
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        device = f"{torch.cuda.get_device_name()}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free"
    else:
        device = f"CPU, {torch.get_num_threads()} threads"
    return Check("torch", True, f"{torch.__version__} on {device}")


def _kernels() -> Check:
    from pipeline import kernels

    names = ", ".join(source.stem for source in kernels.sources())
    compiled = [kernel for source in kernels.sources() if (kernel := kernels.find(source))]
    if len(compiled) == len(kernels.sources()):
        return Check("kernels", True, f"{names}: compiled, {compiled[0].form}")
    # Slow, not wrong: no problem by itself.
    missing = "" if kernels.compiler() else "install a C++ compiler (Debian, Ubuntu: apt install g++), then run "
    return Check("kernels", True, f"{names}: slower PyTorch forms; {missing}python -m pipeline kernels")


def _parameters(root: Path) -> Check:
    from pipeline.params import load_params

    try:
        params = load_params(root / "params.yaml")
    except UserError as error:
        return Check("parameters", False, str(error), "correct params.yaml")
    return Check("parameters", True, f"profile {params.profile}, {len(params.runs)} runs")


def _lock(root: Path) -> Check:
    from pipeline.state import outputs

    try:
        recorded = {each.label for each in outputs(root / "dvc.lock") if each.path.startswith("reports/")}
    except UserError as error:
        advice = "resolve the merge conflict, or get it back: git checkout dvc.lock"
        return Check("lock", False, " ".join(str(error).split()), advice)
    return Check("lock", True, f"dvc.lock has {len(recorded)} results")


def _disk(root: Path) -> Check:
    free = shutil.disk_usage(root).free / 2**30
    writable = os.access(root, os.W_OK)
    found = f"{free:.0f} GiB free in {root}" if writable else f"no permission to write in {root}"
    return Check("disk", writable and free >= NEEDED_GIB, found, f"{NEEDED_GIB:g} GiB are needed for data and models")


def _downloads(root: Path) -> Check:
    mirror = os.environ.get("CAPSULES_MIRROR") or None
    if mirror and "://" not in mirror:
        there = Path(mirror).is_dir()
        return Check("downloads", there, f"mirror {mirror}", "CAPSULES_MIRROR names a folder that does not exist")
    address = mirror
    if address is None:
        wanted = _wanted(root)
        unserved = [name for name, source in wanted.items() if source.files and not source.mirrors]
        if unserved:
            found = f"{', '.join(unserved)}: not on any public server"
            return Check(
                "downloads", False, found, "set CAPSULES_MIRROR to where they are, or use others: docs/data.md"
            )
        address = _first_address(wanted.values())
    if address is None:
        return Check("downloads", True, "nothing to download")
    import requests

    try:
        requests.head(address, timeout=NETWORK_SECONDS, allow_redirects=True)
    except requests.RequestException:
        advice = "without a network only digits and toys work; set CAPSULES_MIRROR to a local folder or another URL"
        return Check("downloads", False, f"no answer from {address}", advice)
    return Check("downloads", True, f"{address} answers")


def _wanted(root: Path) -> dict[str, Source]:
    """The sources of the current profile whose files have not been downloaded yet, by name."""
    from pipeline.data.sources import SOURCES
    from pipeline.layout import raw_folder
    from pipeline.params import load_params

    names = {dataset.source for dataset in load_params(root / "params.yaml").datasets.values()}
    published = [name for name in names if name in SOURCES]  # others are own images
    missing = [
        name for name in published if any(not (raw_folder(root, name) / file).exists() for file in SOURCES[name].files)
    ]
    return {name: SOURCES[name] for name in sorted(missing)}


def _first_address(sources: Iterable[Source]) -> str | None:
    """The first mirror on the network of any source; None if there is none."""
    mirrors = [mirror for source in sources for mirror in source.mirrors]
    return next((mirror for mirror in mirrors if mirror.startswith(("http://", "https://"))), None)


def _mlflow(store: Store | None) -> Check:
    if store is None:
        return Check("mlflow", True, "switched off by CAPSULES_MLFLOW; runs are recorded under .tracking only")
    try:
        found = f"{version('mlflow')} at {store.shown}"
    except PackageNotFoundError:
        return Check("mlflow", False, "not installed; runs are recorded under .tracking only", "pip install mlflow")
    try:
        store.probe()
    except StoreError as error:
        advice = "start it, or unset MLFLOW_TRACKING_URI; `python -m pipeline sync-mlflow` delivers runs later"
        return Check("mlflow", False, f"{version('mlflow')}: {error}", advice)
    if store.database and not store.database.exists():
        found += " (will be created at its first use)"
    return Check("mlflow", True, found)


def _dvc(root: Path) -> Check:
    try:
        found = version("dvc")
    except PackageNotFoundError:
        return Check("dvc", False, "not installed", "`make repro` installs it; stages also run without it")
    if not (root / ".dvc" / "config").exists():
        return Check("dvc", False, f"{found}, but {root}/.dvc is missing", "clone the repository again")
    marks = root / ".dvc" / "tmp" / "rwlock"
    if marks.exists() and not _is_json(marks):
        return Check("dvc", False, f"{found}, but it cannot read {marks}", "delete this file while no `dvc` runs")
    return Check("dvc", True, found)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def _run_cache(root: Path) -> Check:
    """DVC's records of earlier runs; it stops at a damaged one without saying which."""
    from pipeline.files import FileReadError, read_yaml

    damaged, count = [], 0
    for path in sorted((root / ".dvc" / "cache" / "runs").glob("*/*/*")):
        count += 1
        try:
            record = read_yaml(path)
        except FileReadError:
            record = None
        if not isinstance(record, dict) or not {"cmd", "deps", "outs"} <= record.keys():
            damaged.append(path.relative_to(root).as_posix())
    found = f"{count - len(damaged)} of {count} records can be read"
    return Check("run-cache", not damaged, found, f"delete {', '.join(damaged)}")


def _git(root: Path) -> Check:
    try:
        result = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10
        )
    except FileNotFoundError:
        return Check("git", False, "not installed", "install Git: DVC needs it")
    if result.returncode:
        advice = (
            "clone the repository, or `git init && git add -A && git commit -m start`: DVC needs Git, and results "
            "record their commit"
        )
        return Check("git", False, "no commit here", advice)
    return Check("git", True, f"at {result.stdout.strip()}")
