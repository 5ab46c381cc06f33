"""The kinds of faults: processes killed, caches damaged, a full disk, dead servers, all at random."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil

from benchmarks.faults.repository import LIMIT, TARGETS, Repository, State

MEBIBYTE = 1 << 20
REPRODUCTION = ("dvc", "repro")
FAN_OUT = ("pipeline", "fan-out", "--workers", "2")


@dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        state: state of the repository in which the case begins.
        apply: a function that makes the fault with a random generator, and returns a description of it.
        missing: why it cannot be done on this machine; empty if it can.
    """

    state: State
    apply: Callable[[Repository, random.Random], str]
    missing: str = ""


def kill(words: tuple[str, ...], count: int | None) -> Callable[[Repository, random.Random], str]:
    """A fault: SIGKILL to `count` processes of the command `words`, or to all (None) as in a power failure."""

    def apply(repository: Repository, chance: random.Random) -> str:
        process, moment = _start_and_wait(repository, chance, words)
        tree = _tree(process)
        # Of a fan-out, only workers and their children, not the command itself and Dask's tracker of shared memory.
        tree = tree[2:] if words == FAN_OUT else tree
        chosen = tree if count is None else chance.sample(tree, min(count, len(tree)))
        names = []
        for each in chosen:
            with suppress(psutil.Error):
                command = each.cmdline()
                each.kill()
                modules = [word for word in command if word in ("dvc", "pipeline") or word.startswith("stages.")]
                names += modules[:1] or [Path(command[0]).name if command else "a process that ended"]
        return f"{', '.join(names) or 'nothing'} after {moment:.1f} s{_await_end(process)}"

    return apply


def two_at_once(repository: Repository, chance: random.Random) -> str:
    """A second reproduction begins while the first one runs. Either may fail, but neither may damage anything."""
    process, moment = _start_and_wait(repository, chance, REPRODUCTION)
    code, _ = repository.reproduce()
    return f"the second after {moment:.1f} s, exit code {code}" + _await_end(process)


def damage_cache(repository: Repository, chance: random.Random) -> str:
    """A file of DVC's cache is cut or changed, and outputs are deleted: DVC must restore them from the cache."""
    cache = repository.folder / ".dvc" / "cache"
    chosen = chance.choice(sorted(path for path in cache.rglob("*") if path.is_file() and path.stat().st_size))
    content = bytearray(chosen.read_bytes())
    place = chance.randrange(len(content))
    how = chance.choice(("cut", "changed"))
    content[place] ^= 1 << chance.randrange(8)
    chosen.chmod(chosen.stat().st_mode | 0o200)
    chosen.write_bytes(content[:place] if how == "cut" else content)
    for name in ("data", "models", "results"):
        shutil.rmtree(repository.folder / name, ignore_errors=True)
    return f"{chosen.relative_to(cache)} {how} at byte {place:,} of {len(content):,}"


def disk_full(repository: Repository, chance: random.Random) -> str:
    """A reproduction on a disk with too little room. The disk, a file system in memory, is then made larger."""
    folder, room = repository.folder, chance.randrange(4096, 3 * MEBIBYTE)
    used = sum(path.stat().st_size + 4096 for path in folder.rglob("*") if path.is_file()) + MEBIBYTE

    def mount(*words: str) -> None:
        subprocess.run(["mount", *words, str(folder)], check=True)

    mount("-t", "tmpfs", "-o", f"size={2 * used}", "tmpfs")
    repository.begin("prepared")
    mount("-o", f"remount,size={shutil.disk_usage(folder).used + room}")
    code, _ = repository.reproduce()
    mount("-o", f"remount,size={4 * used + 512 * MEBIBYTE}")
    return f"{room:,} bytes free; exit code {code}"


def leave_disk(repository: Repository) -> None:
    """Unmount the file system of `disk_full`, if it is mounted. Raises `RuntimeError` if this fails."""
    for _ in range(20):
        if not os.path.ismount(repository.folder):
            return
        if subprocess.run(["umount", str(repository.folder)], capture_output=True, check=False).returncode:
            time.sleep(0.5)
    raise RuntimeError(f"{repository.folder} could not be unmounted")


def dead_server(repository: Repository, chance: random.Random) -> str:
    """A reproduction with an MLflow server that refuses connections, or accepts them and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = chance.choice([9, silent.getsockname()[1]])
        code, _ = repository.reproduce(CAPSULES_MLFLOW="on", MLFLOW_TRACKING_URI=f"http://127.0.0.1:{port}")
    return f"{'dead' if port == 9 else 'silent'}; exit code {code}"


_CAN_MOUNT = sys.platform == "linux" and os.geteuid() == 0
FAULTS: dict[str, Fault] = {
    "kill one process": Fault("prepared", kill(REPRODUCTION, 1)),
    "kill all processes": Fault("prepared", kill(REPRODUCTION, None)),
    "kill while data are made": Fault("nothing", kill(REPRODUCTION, 1)),
    "two reproductions at once": Fault("prepared", two_at_once),
    "lost worker of a fan-out": Fault("prepared", kill(FAN_OUT, 1), "" if find_spec("distributed") else "needs Dask"),
    "DVC's cache damaged": Fault("finished", damage_cache),
    "disk full": Fault("prepared", disk_full, "" if _CAN_MOUNT else "needs root on Linux"),
    "tracking server": Fault("prepared", dead_server),
}


def _start_and_wait(
    repository: Repository, chance: random.Random, words: tuple[str, ...]
) -> tuple[subprocess.Popen[str], float]:
    """Start a command, and wait for a random share of a reproduction's time (in a fan-out, once its workers run)."""
    moment = chance.uniform(0.02, 0.98) * repository.seconds
    process = repository.start(*words, *TARGETS)
    while words == FAN_OUT and process.poll() is None and len(_tree(process)) < 4:
        time.sleep(0.1)  # the command, two workers and Dask's tracker of shared memory
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment)
    return process, moment


def _tree(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """A process and all its descendants, nearest first."""
    top = psutil.Process(process.pid)  # it exists until it is waited for, at least as a zombie
    with suppress(psutil.Error):
        return [top, *top.children(recursive=True)]
    return [top]


def _await_end(process: subprocess.Popen[str]) -> str:
    """Wait until the reproduction and all stages that it started have ended; its exit code in words."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(LIMIT)
    with suppress(ProcessLookupError):
        for _ in range(300):
            os.killpg(process.pid, 0)  # raises once no process of the group is left
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    return f"; exit code {process.wait()}"
