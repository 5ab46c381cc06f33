"""What keeps two copies of a stage apart, and a stage from outliving the reproduction that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from pipeline.errors import UserError
from pipeline.locks import FileLock

POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0
TERMINATED = 128 + signal.SIGTERM

_SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh"}


class SecondCopyError(UserError):
    """The same stage is already at work on the same item."""


@contextmanager
def only_copy(path: Path, label: str) -> Iterator[None]:
    """Hold the lock of a stage and item for the block. It goes with the process, however that ends.

    Raises:
        SecondCopyError: naming the process that holds it.
    """
    lock = FileLock(path)
    if not lock.acquire():
        raise SecondCopyError(f"{label} is already running (process {lock.holder() or 'unknown'}): this copy stops")
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class Process:
    """A process as the system knows it; `born` tells it from a later one with the same number."""

    id: int
    parent: int
    born: str
    words: tuple[str, ...]

    @property
    def is_dvc(self) -> bool:
        """Whether this is the `dvc` command, under whatever interpreter."""
        names = [Path(word).name for word in self.words[:4]]
        return "dvc" in names

    @property
    def is_shell(self) -> bool:
        return bool(self.words) and Path(self.words[0]).name.lstrip("-") in _SHELLS


def process(number: int) -> Process | None:
    """Look a process up; None where it is gone, or only waits for its parent to notice."""
    try:
        # The name, in brackets, may hold anything; state, parent and the rest come after its last bracket.
        fields = Path(f"/proc/{number}/stat").read_text(errors="replace").rpartition(")")[2].split()
        words = Path(f"/proc/{number}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None if sys.platform == "linux" else _process_elsewhere(number)
    if fields[0] in "ZX":
        return None
    return Process(number, int(fields[1]), fields[19], tuple(word for word in words if word))


def _process_elsewhere(number: int) -> Process | None:
    """The same without /proc (macOS), where psutil is installed."""
    try:
        import psutil
    except ImportError:
        return None
    try:
        found = psutil.Process(number)
        if found.status() == psutil.STATUS_ZOMBIE:
            return None
        return Process(number, found.ppid(), str(found.create_time()), tuple(found.cmdline()))
    except psutil.Error:
        return None


def starters() -> list[Process]:
    """The processes between this one and the `dvc` that started it, nearest first, `dvc` last.

    DVC runs a command through a shell, which may or may not replace itself by it. Where no ancestor is called `dvc`,
    the nearest one that is not a shell counts as the starter. Empty where DVC did not start this process.
    """
    if "DVC_STAGE" not in os.environ:
        return []
    chain: list[Process] = []
    number = os.getppid()
    while number > 0 and (found := process(number)) is not None:
        chain.append(found)
        if found.is_dvc:
            return chain
        number = found.parent
    for count, each in enumerate(chain, start=1):
        if not each.is_shell:
            return chain[:count]
    return []


@contextmanager
def dying_with(chain: list[Process]) -> Iterator[None]:
    """End this process soon after any of `chain` is gone; also turn SIGTERM into an orderly exit for the block.

    A reproduction that is killed leaves its stage behind: the shell in between keeps waiting, or the stage is handed to
    another parent, so neither the parent's number alone nor a signal at its death would do. The chain is watched
    instead. The stage gets SIGTERM, and `GRACE_SECONDS` later, if it is still stuck somewhere, it is ended.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            if any((now := process(each.id)) is None or now.born != each.born for each in chain):
                print("the process that started this stage is gone: stopping", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(GRACE_SECONDS)
                os._exit(TERMINATED)

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, leave) if in_main_thread else None
    if chain:
        threading.Thread(target=watch, name="starter-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)
