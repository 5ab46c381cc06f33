"""Stages that run in the repository itself, one at a time: those that keep former outputs, use the network or files
outside, or take seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pipeline.cluster.dispatch import Result, StageError, StoppedError

GRACE_SECONDS = 8.0  # more than a stage takes to end in order (stages.guards)
TAIL_LINES = 20


class Beginner(Protocol):
    """What is needed of the repository."""

    def begin_here(self, name: str) -> tuple[list[str], Path, dict[str, str]]:
        """Remove the outputs of a stage; its commands, their folder, and the variables that DVC sets for them."""


class Here:
    """Runs stages in the repository.

    Args:
        folder: for the output of the commands.
    """

    def __init__(self, repository: Beginner, folder: Path) -> None:
        self._repository, self._folder = repository, folder
        self._commands: dict[str, tuple[list[str], Path, dict[str, str]]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = threading.Event()

    def slots(self) -> int:
        return 1

    def begin(self, name: str) -> None:
        self._commands[name] = self._repository.begin_here(name)

    def run(self, name: str, begun: Callable[[], None]) -> Result:
        commands, folder, variables = self._commands.pop(name)
        begun()
        start = time.monotonic()
        log = self._folder / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            for command in commands:
                if self._stopped.is_set():
                    raise StoppedError
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", command],
                    cwd=folder,
                    env={**stage_environment(), **variables},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for the head, which ends it in order
                )
                if self._stopped.is_set():  # set while it was started
                    self.stop()
                code = self._process.wait()
                if self._stopped.is_set():
                    raise StoppedError
                if code:
                    raise StageError(failure(name, code, "", tail(log)))
        log.unlink()
        return Result("", None, "", time.monotonic() - start)

    def collect(self, name: str, result: Result, record: Callable[[], None]) -> None:
        """Its outputs are in place."""
        record()

    def stop(self) -> None:
        self._stopped.set()
        if self._process is not None and self._process.poll() is None:
            end_group(self._process)


def stage_environment() -> dict[str, str]:
    """The variables of this process, with the `python` of stages being this one."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def end_group(process: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """End a process and all that it started: in order, or after `grace` seconds without."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(log: Path) -> str:
    """The last lines of a stage's output."""
    with suppress(OSError):
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - (1 << 16)))
            lines = file.read().decode(errors="replace").rstrip().splitlines()
        return "\n".join(lines[-TAIL_LINES:])
    return ""


def failure(name: str, code: int, worker: str, output: str) -> str:
    """The message of a failed command, with its last lines of output."""
    ended = f"ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
    where = f" on {worker}" if worker else ""
    shown = "".join(f"\n    {line}" for line in output.splitlines())
    return f"{name} {ended}{where}{shown or ' (no output)'}"
