"""Runs the items that are out of date on several workers at once, with Dask.distributed.

The process that the user starts (the *head*) asks DVC which items are out of date, and gives Dask a task for each
item. A task calls `dvc repro --single-item` in a clone of the head's repository at the head's commit. Head and workers
exchange data, weights and arrays through a DVC cache that they share, or through a DVC remote. The rest of an item's
result is only a few kilobytes: its entry in dvc.lock, and the outputs that DVC does not cache. The task returns this
rest as the item's *packet*. Dask passes the packet to the tasks of all items that need this item. The head writes the
packet into its own repository, and fetches the cached outputs. If no item failed, `dvc repro` then has nothing to run.

Functions whose docstrings begin with "On a worker" are sent to workers with their code (pickled by value). They must
not call other modules of `pipeline`, because workers may lack these modules.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvc.repo import Repo
from dvc.utils.serialize import dump_yaml
from joblib import cpu_count

from pipeline.commits import git_state
from pipeline.errors import UserError
from pipeline.files import atomic_path, read_yaml
from pipeline.layout import CHECKPOINTS, JOURNALS, tracking_store
from pipeline.locks import single_instance
from pipeline.operations.reproduce import DRAWING, Plan, read_plan, start_dvc

if TYPE_CHECKING:
    from distributed import Client, Future

HERE = DRAWING | {"download", "own_images"}
"""Stages that run in the head's repository. They need a network or files outside Git, or write uncached folders."""

Packet = dict[str, Any]
"""An item's `name`, its `entry` in dvc.lock and its uncached outputs (`files`, by path). A worker adds a `note`."""


def fan_out(
    root: Path,
    targets: Sequence[str],
    workers: int | None,
    scheduler: str | None,
    remote: str | None,
    repository: str | None,
) -> int:
    """Bring the targets, and all items that they need, up to date. `python -m pipeline fan-out --help` describes the
    arguments. Without a remote, workers use the head's cache, which must have the same path on their machines. Returns
    1 if an item failed, or if DVC could not fetch outputs, otherwise 0. Raises `UserError` if there are uncommitted
    changes, the remote is unknown or does not accept files, workers cannot be reached or have other versions of
    packages, the scheduler is lost, another fan-out is running, or DVC cannot read the repository.
    """
    commit, dirty = git_state(root)
    if commit == "unknown":
        raise UserError("workers run a commit, but Git finds none here: install Git, and clone the repository")
    if dirty:
        raise UserError(
            "workers run the last commit, but there are uncommitted changes: commit them (`git status` lists them)"
        )
    with single_instance(root, "fan-out"):
        plan = read_plan(root, targets)
        if before := split(plan)[0]:
            start_dvc(root, "repro", "--keep-going", "--single-item", *before).wait()
            plan = read_plan(root, targets)
        before, sent, after = split(plan)
        done, failed = list[str](), set(before)
        print(f"{len(sent)} items for workers, {len(after)} to run here, {len(plan)} in all", flush=True)
        if sent:
            job, count = _job(root, commit, remote, repository), workers or min(len(sent), cpu_count())
            needs = {need for name in sent for need in plan[name].needs if not plan[need].stale}
            if remote and needs and start_dvc(root, "push", "--remote", remote, *needs).wait():
                raise UserError(f"DVC could not push what workers need to the remote '{remote}'")
            try:
                with _client(root, count, scheduler) as client:
                    _collect(root, plan, _submit(client, root, plan, sent, job), done, failed)
            finally:  # also after Ctrl-C, so that the outputs of finished items are fetched
                if done and start_dvc(root, *job["fetch"], *done).wait():
                    failed.add(" ".join(["dvc", *job["fetch"]]))
        for name in after:
            if failed.isdisjoint(plan[name].behind) and start_dvc(root, "repro", "--single-item", name).wait():
                failed.add(name)
    for name in sorted(failed):
        skipped = [each for each, item in plan.items() if name in item.behind]
        print(f"{name} failed{'; not run because of it: ' if skipped else ''}{', '.join(skipped)}")
    return 1 if failed else 0


def split(plan: Plan) -> tuple[list[str], list[str], list[str]]:
    """Split the stale items into three lists: to run here first, to run on workers, and to run here at the end."""
    stale = [name for name, item in plan.items() if item.stale]
    here = {name for name in stale if name.partition("@")[0] in HERE}
    before = [name for name in stale if here.issuperset({name, *plan[name].behind})]
    sent = [name for name in stale if here.isdisjoint({name, *plan[name].behind})]
    return before, sent, [name for name in stale if name not in (*before, *sent)]


def _job(root: Path, commit: str, remote: str | None, repository: str | None) -> dict[str, Any]:
    """What workers need to make clones. Without a remote, clones use the head's cache, checkpoints and journals."""
    with Repo(str(root)) as repo:
        cache = repo.config["cache"].get("dir") or str(root / ".dvc" / "cache")
        if remote and remote not in repo.config["remote"]:
            raise UserError(f"there is no DVC remote '{remote}': see `dvc remote list`")
    folders = {} if remote else {name: str(root / name) for name in (CHECKPOINTS, JOURNALS)}
    for folder in (cache, *folders.values()):
        Path(folder).mkdir(parents=True, exist_ok=True)
    local = root / ".dvc" / "config.local"
    config = local.read_text(encoding="utf-8") if local.exists() else ""
    fetch = ["pull", "--force", "--remote", remote] if remote else ["checkout", "--force"]
    shared = {"cache": None if remote else cache, "remote": remote, "folders": folders, "fetch": fetch}
    return {"repository": repository or str(root), "commit": commit, "config": config, **shared}


def _client(root: Path, workers: int, scheduler: str | None) -> Client:
    """Connect to the scheduler or, if `scheduler` is None, start workers on this machine. Returns a Dask client. Raises
    `UserError` if Dask is missing, the scheduler cannot be reached, or a worker has another version of a package.
    """
    try:
        from distributed import Client

        if scheduler:
            client = Client(scheduler, timeout="10s")
            _check_versions(client)
            return client
        size = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": 0}
        place = {"host": "127.0.0.1", "local_directory": str(root / ".cache" / "fan-out")}
        quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
        # Workers ignore Ctrl-C. The head does not: it ends, and ends the workers.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        client = Client(**size, **place, **quiet)
        signal.signal(signal.SIGINT, before)
        return client
    except (ModuleNotFoundError, OSError, ValueError) as error:
        raise UserError(f"there are no workers: {error} (see docs/scaling.md)") from None


def _check_versions(client: Client) -> None:
    """Raise `UserError` if a worker has another version of DVC, NumPy or PyTorch than this machine. The part of a
    version that names the build (such as +cpu or +cu130) may differ.
    """
    names = ["dvc", "numpy", "torch"]
    found: Any = client.get_versions(packages=names)  # with `check=True`, Dask would only warn

    def versions(machine: Any) -> dict[str, str]:
        return {name: str(machine["packages"][name]).partition("+")[0] for name in names}

    here = versions(found["client"])
    for worker, machine in found["workers"].items():
        for name, there in versions(machine).items():
            if there != here[name]:
                advice = f"this machine has {here[name]}: install the same version"
                raise UserError(f"the worker at {worker} has {name} {there}, but {advice}")


def _submit(client: Client, root: Path, plan: Plan, sent: Sequence[str], job: dict[str, Any]) -> dict[str, Future]:
    """Submit a task for each item, with its packet and those of all items that it needs. Returns futures by item."""
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    def task(*of_item: Any) -> Packet:  # local, because Dask would pickle `run_item` by name, despite the call above
        return run_item(job, *of_item)

    entries = _lock_entries(root)
    futures: dict[str, Future] = {}
    for name in sent:
        known = [each for each in (name, *plan[name].needs) if each not in futures]
        packets: list[Any] = [_packet(root, each, entries.get(each), plan[each].uncached) for each in known]
        packets += [futures[need] for need in plan[name].needs if need in futures]
        key = f"{name}-{uuid.uuid4().hex[:8]}"
        futures[name] = client.submit(task, name, plan[name].uncached, packets, key=key)
    return futures


def _collect(root: Path, plan: Plan, futures: Mapping[str, Future], done: list[str], failed: set[str]) -> None:
    """Record finished items, and add them to `done`. Add failed items to `failed`, but not the items that need them."""
    from distributed import as_completed

    for batch in as_completed(futures.values()).batches():
        ended = [(name, future) for name, future in futures.items() if future in batch]
        packets = [future.result() for _, future in ended if future.status == "finished"]
        if packets:
            record(root, packets)
        for packet in packets:
            done.append(packet["name"])
            print(f"[{len(done)}/{len(futures)}] {packet['name']}: {packet['note']}", flush=True)
        for name, future in ended:
            if future.status == "error" and failed.isdisjoint(plan[name].behind):
                failed.add(name)
                print(f"{name} failed: {future.exception()}", flush=True)
            elif future.status not in ("finished", "error"):
                raise UserError(
                    "the connection to the scheduler was lost: call fan-out again, which runs what has no result yet"
                )
        if store := tracking_store(root):
            with suppress(OSError):
                store.start_delivery(root / JOURNALS)


def record(root: Path, packets: Sequence[Packet]) -> None:
    """Write packets from workers into the head's repository. First wait until no other process uses DVC there."""
    with Repo(str(root), _wait_for_lock=True) as repo, repo.lock:
        for packet in packets:
            _write_files(root, packet)
        entries = _lock_entries(root) | {packet["name"]: packet["entry"] for packet in packets}
        with atomic_path(root / "dvc.lock") as path:
            dump_yaml(str(path), {"schema": "2.0", "stages": entries})


def _lock_entries(root: Path) -> dict[str, Any]:
    """The entries of dvc.lock by item."""
    return dict(read_yaml(root / "dvc.lock")["stages"]) if (root / "dvc.lock").exists() else {}


def _packet(root: Path, name: str, entry: dict[str, Any] | None, uncached: Iterable[str]) -> Packet:
    """On a worker or in the head: make the packet of an item."""
    files = {path: (root / path).read_bytes() for path in uncached if (root / path).is_file()}
    return {"name": name, "entry": entry, "files": files}


def _write_files(root: Path, packet: Packet) -> None:
    """On a worker or in the head: write the uncached outputs of a packet."""
    for path, content in packet["files"].items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def run_item(job: dict[str, Any], name: str, uncached: tuple[str, ...], packets: Sequence[Packet]) -> Packet:
    """On a worker: update an item, given its packet and the packets of items that it needs. Returns the new packet."""
    import yaml

    begun = time.monotonic()
    clone = _clone(job)
    entries = {packet["name"]: packet["entry"] for packet in packets if packet["entry"]}
    lock = clone / "dvc.lock"
    lock.write_text(yaml.safe_dump({"schema": "2.0", "stages": entries}, sort_keys=False))
    for packet in packets:
        _write_files(clone, packet)
    if entries:
        _call(clone, "dvc", *job["fetch"], "--allow-missing", *entries)
    output = _call(clone, "dvc", "repro", "--single-item", name)
    if job["remote"]:
        _call(clone, "dvc", "push", "--remote", job["remote"], name)
    what = "ran" if f"Running stage '{name}'" in output else "restored or unchanged"
    note = f"{what}, {time.monotonic() - begun:.0f} s on {socket.gethostname()}"
    return _packet(clone, name, yaml.safe_load(lock.read_text())["stages"][name], uncached) | {"note": note}


def _clone(job: dict[str, Any]) -> Path:
    """On a worker: return this thread's clone of the head's repository, at the head's commit. Make it if necessary."""
    from distributed import get_worker

    clone = Path(get_worker().local_directory) / f"clone-{threading.get_ident()}"
    made_for = clone / ".git" / "made-for"
    if made_for.exists() and made_for.read_text() == repr(job):
        return clone
    shutil.rmtree(clone, ignore_errors=True)
    _call(clone.parent, "git", "clone", "--quiet", "--no-checkout", job["repository"], str(clone))
    _call(clone, "git", "checkout", "--quiet", "--detach", job["commit"])
    (clone / ".dvc" / "config.local").write_text(job["config"])
    if cache := job["cache"]:
        if not Path(cache).is_dir():
            raise RuntimeError(f"{socket.gethostname()} cannot read {cache}: share this folder, or name a --remote")
        _call(clone, "dvc", "cache", "dir", "--local", cache)
    for name, folder in job["folders"].items():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).symlink_to(folder)
    (clone / ".git" / "info" / "exclude").write_text("".join(f"/{name}\n" for name in job["folders"]))
    made_for.write_text(repr(job))
    return clone


def _call(folder: Path, *command: str) -> str:
    """On a worker: run a command and return its output. Raises `RuntimeError` if the command fails. On Linux, the
    command is killed when the worker ends.
    """
    words = (sys.executable, "-m", *command) if command[0] == "dvc" else command
    guard = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DVC_ROOT", "DVC_STAGE", "GIT_"))}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"  # so that DVC runs this Python
    if "MLFLOW_TRACKING_URI" not in env or (folder / JOURNALS).is_symlink():  # a store in the clone would be lost
        env["CAPSULES_MLFLOW"] = "off"  # if journals are shared, the head sends them to MLflow
    told = subprocess.run([*guard, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if told.returncode:
        end = "\n    ".join((told.stdout + told.stderr).splitlines()[-20:])
        raise RuntimeError(f"`{' '.join(command)}` on {socket.gethostname()}\n    {end}")
    return told.stdout
