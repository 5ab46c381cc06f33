"""A look at the machine: what is there, what is missing, and what to do about it."""

from __future__ import annotations

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
from pipeline.tracking.store import SQLITE, Connection, UnreachableError

if TYPE_CHECKING:
    from pipeline.data.sources import Source

NEEDED_GIB = 5.0
NETWORK_SECONDS = 5.0


@dataclass(frozen=True)
class Finding:
    """One line of the report; `advice` says what to do where something is wrong."""

    what: str
    ok: bool
    found: str
    advice: str = ""


def examine(root: Path, store: Store | None) -> Iterator[Finding]:
    """Look at everything in turn; each look has its own time limit and none raises."""
    looks: dict[str, Callable[[], Finding]] = {
        "python": _python,
        "torch": _torch,
        "parameters": lambda: _parameters(root),
        "disk": lambda: _disk(root),
        "downloads": lambda: _downloads(root),
        "mlflow": lambda: _mlflow(store),
        "dvc": lambda: _dvc(root),
        "git": lambda: _git(root),
    }
    for what, look in looks.items():
        try:
            yield look()
        except Exception as error:  # a look that fails is a finding
            yield Finding(what, False, " ".join(f"{type(error).__name__}: {error}".split())[:200])


def _python() -> Finding:
    return Finding("python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer")


def _torch() -> Finding:
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        device = f"{torch.cuda.get_device_name()}, {free / 2**30:.0f} of {total / 2**30:.0f} GiB free"
    else:
        device = f"CPU, {torch.get_num_threads()} threads"
    return Finding("torch", True, f"{torch.__version__} on {device}")


def _parameters(root: Path) -> Finding:
    from pipeline.params import load_params

    try:
        params = load_params(root / "params.yaml")
    except UserError as error:
        return Finding("parameters", False, str(error), "correct params.yaml")
    return Finding("parameters", True, f"profile {params.profile}, {len(params.runs)} runs")


def _disk(root: Path) -> Finding:
    free = shutil.disk_usage(root).free / 2**30
    writable = os.access(root, os.W_OK)
    found = f"{free:.0f} GiB free in {root}" if writable else f"no permission to write in {root}"
    return Finding("disk", writable and free >= NEEDED_GIB, found, f"{NEEDED_GIB:g} GiB are needed for data and models")


def _downloads(root: Path) -> Finding:
    mirror = os.environ.get("CAPSULES_MIRROR")
    if mirror and "://" not in mirror:
        there = Path(mirror).is_dir()
        return Finding("downloads", there, f"mirror {mirror}", "CAPSULES_MIRROR names a folder that is not there")
    address = mirror
    if address is None:
        wanted = _wanted(root)
        unserved = [name for name, source in wanted.items() if source.files and not source.mirrors]
        if unserved:
            found = f"{', '.join(unserved)}: on no public server"
            return Finding("downloads", False, found, "set CAPSULES_MIRROR to a folder or a URL that holds them")
        address = _first_address(wanted.values())
    if address is None:
        return Finding("downloads", True, "nothing comes over the network")
    import requests

    try:
        requests.head(address, timeout=NETWORK_SECONDS, allow_redirects=True)
    except requests.RequestException:
        advice = "only the digits can be had without a network; CAPSULES_MIRROR may name a local folder or another URL"
        return Finding("downloads", False, f"no answer from {address}", advice)
    return Finding("downloads", True, f"{address} answers")


def _wanted(root: Path) -> dict[str, Source]:
    """Where those of the current profile's data come from that are not there yet, by name."""
    from pipeline.data.sources import SOURCES
    from pipeline.params import load_params

    names = {dataset.source for dataset in load_params(root / "params.yaml").datasets.values()}
    raw = root / "data" / "raw"
    missing = [name for name in names if any(not (raw / name / file).exists() for file in SOURCES[name].files)]
    return {name: SOURCES[name] for name in sorted(missing)}


def _first_address(sources: Iterable[Source]) -> str | None:
    """A server that serves some of them; None where nothing comes over the network."""
    mirrors = [mirror for source in sources for mirror in source.mirrors]
    return next((mirror for mirror in mirrors if mirror.startswith(("http://", "https://"))), None)


def _mlflow(store: Store | None) -> Finding:
    if store is None:
        return Finding("mlflow", True, "switched off by CAPSULES_MLFLOW; runs are recorded under .tracking only")
    try:
        found = f"{version('mlflow')} at {store.shown}"
    except PackageNotFoundError:
        return Finding("mlflow", False, "not installed; runs are recorded under .tracking only", "pip install mlflow")
    if store.is_server:
        try:
            Connection(store).probe()
        except UnreachableError as error:
            advice = "start it, or unset MLFLOW_TRACKING_URI; `python -m pipeline sync-mlflow` delivers runs later"
            return Finding("mlflow", False, f"{version('mlflow')}: {error}", advice)
    elif not Path(store.uri.removeprefix(SQLITE)).exists():
        found += " (made at its first use)"
    return Finding("mlflow", True, found)


def _dvc(root: Path) -> Finding:
    try:
        found = version("dvc")
    except PackageNotFoundError:
        return Finding("dvc", False, "not installed", "`make repro` installs it; stages also run without it")
    there = (root / ".dvc" / "config").exists()
    return Finding(
        "dvc", there, found if there else f"{found}, but {root}/.dvc is missing", "clone the repository again"
    )


def _git(root: Path) -> Finding:
    advice = "results will not name the commit they come from"
    try:
        result = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10
        )
    except FileNotFoundError:
        return Finding("git", False, "not installed", advice)
    if result.returncode:
        return Finding("git", False, "no commit here", advice)
    return Finding("git", True, f"at {result.stdout.strip()}")
