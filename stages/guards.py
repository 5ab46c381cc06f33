"""Prevents a stage from outliving the reproduction that started it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from psutil import Process

POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0
TERMINATED = 128 + signal.SIGTERM

_MAKES = {"make", "gmake"}
_SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh"}


def dvc_ancestors() -> list[Process]:
    """The processes between this one and the reproduction that started it, nearest first, the reproduction last.

    It is the nearest process called `dvc`, or the `python -m pipeline repro` that started it. DVC runs a command
    through a shell, which may or may not replace itself by it. If no ancestor is called `dvc`, the chain ends at the
    nearest one that is not a shell. Empty if DVC did not start this process.
    """
    if "DVC_STAGE" not in os.environ:
        return []
    import psutil

    chain: list[Process] = []
    nearest = 0  # number of processes up to the first that is not a shell
    through_dvc = False
    with suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = [Path(word).name.lstrip("-") for word in process.cmdline()[:4]]
            if through_dvc:
                return [*chain, process] if words[2:] == ["pipeline", "repro"] else chain
            chain.append(process)
            through_dvc = "dvc" in words
            if not nearest and not _SHELLS.intersection(words[:1]):
                nearest = len(chain)
    return chain if through_dvc else chain[:nearest]


def make_ancestors(dvc: Process) -> list[Process]:
    """The `make` processes that started `dvc`, with the shells between them. If one is killed, its child lives on."""
    import psutil

    found: list[Process] = []
    shells: list[Process] = []
    with suppress(psutil.Error):
        for process in dvc.parents():
            name = Path((process.cmdline() or [""])[0]).name.lstrip("-")
            if name in _MAKES:
                found += [*shells, process]
                shells = []
            elif name in _SHELLS:
                shells.append(process)
            else:
                break
    return found


@contextmanager
def exit_with(chain: list[Process]) -> Iterator[None]:
    """Exit soon after any process of `chain` has ended; during the block, SIGTERM also causes an orderly exit.

    If a reproduction is killed, its stage goes on: the shell in between keeps waiting, or the stage gets another
    parent. So neither the parent's id nor a signal at its death is enough, and the whole chain is watched. The stage
    gets SIGTERM; if it is still running after `GRACE_SECONDS`, it is ended.
    """
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            if not all(_is_alive(process) for process in chain):
                with suppress(OSError):  # it may have been the reader of this output
                    print("the process that started this stage has ended: stopping", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(GRACE_SECONDS)
                os._exit(TERMINATED)

    def exit_in_order(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, exit_in_order) if in_main_thread else None
    if chain:
        threading.Thread(target=watch, name="ancestor-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)


def _is_alive(process: Process) -> bool:
    """Whether a process runs. Its id may be reused by another process, and a zombie is still listed."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
