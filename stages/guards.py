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

_SHELLS = {"sh", "bash", "dash", "zsh", "fish", "ksh"}


def starters() -> tuple[list[Process], Process | None]:
    """The processes that started this stage, nearest first, and the one of them that stands for the reproduction.

    They are `dvc`, the `python -m pipeline repro` above it, the `make` above these, and shells between them: DVC runs a
    command through a shell, which may or may not replace itself by it. If one is killed, its child lives on. None if
    DVC did not start this process.
    """
    chain: list[Process] = []
    shells: list[Process] = []
    reproduction = None
    if "DVC_STAGE" not in os.environ:
        return chain, reproduction
    import psutil

    with suppress(psutil.Error):
        for process in psutil.Process().parents():
            words = [Path(word).name.lstrip("-") for word in process.cmdline()[:4]]
            if words and words[0] in _SHELLS:
                shells.append(process)
                continue
            if "dvc" in words:
                reproduction = reproduction or process
            elif words[2:] == ["pipeline", "repro"]:
                reproduction = process
            elif words[:1] not in (["make"], ["gmake"]):
                break
            chain += [*shells, process]
            shells = []
    return chain, reproduction


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

    before = signal.signal(signal.SIGTERM, exit_in_order)
    if chain:
        threading.Thread(target=watch, name="ancestor-watch", daemon=True).start()
    try:
        yield
    finally:
        done.set()
        signal.signal(signal.SIGTERM, before)


def _is_alive(process: Process) -> bool:
    """Whether a process runs. Its id may be reused by another process, and a zombie is still listed."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
