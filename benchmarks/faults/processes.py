"""Faults of processes: signals at random moments, and two reproductions at once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

import psutil

from benchmarks.faults.repository import LIMIT, Repository

POLL_SECONDS = 0.02

Command = tuple[tuple[str, ...], float]
"""The words of a command before its targets, and the seconds before its first stage begins, about."""

REPRODUCTION: Command = (("dvc", "repro"), 0.0)
FAN_OUT: Command = (("pipeline", "fan-out", "--workers", "2"), 10.0)


def kill_any(repository: Repository, chance: random.Random) -> str:
    """SIGKILL to a random process of the reproduction."""
    return _signal_one(repository, chance, signal.SIGKILL)


def terminate_any(repository: Repository, chance: random.Random) -> str:
    """SIGTERM to a random process of the reproduction."""
    return _signal_one(repository, chance, signal.SIGTERM)


def kill_of_fan_out(repository: Repository, chance: random.Random) -> str:
    """SIGKILL to a random process of a fan-out: the head, a worker, its keeper, or a stage."""
    return _signal_one(repository, chance, signal.SIGKILL, FAN_OUT)


def kill_fan_out(repository: Repository, chance: random.Random) -> str:
    """SIGKILL to all processes of a fan-out at once."""
    return _kill_all(repository, chance, FAN_OUT)


def can_fan_out() -> str:
    """Why there can be no fan-out here; empty if there can."""
    return "" if find_spec("distributed") else "needs the packages of `pip install .[cluster]`"


def interrupt(repository: Repository, chance: random.Random) -> str:
    """SIGINT to all processes of the reproduction, as Ctrl-C in a terminal sends it."""
    process, moment = _start_and_wait(repository, chance, REPRODUCTION)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _await_end(process)
    return f"after {moment:.1f} s"


def kill_all(repository: Repository, chance: random.Random) -> str:
    """SIGKILL to all processes at once, as when power fails (what was written is kept)."""
    return _kill_all(repository, chance, REPRODUCTION)


def two_at_once(repository: Repository, chance: random.Random) -> str:
    """A second reproduction begins while the first one runs; each may fail, but not both may damage anything."""
    process, moment = _start_and_wait(repository, chance, REPRODUCTION)
    code, _ = repository.reproduce()
    _await_end(process)
    return f"the second after {moment:.1f} s; exit codes {process.returncode} and {code}"


def _signal_one(
    repository: Repository, chance: random.Random, number: signal.Signals, command: Command = REPRODUCTION
) -> str:
    process, moment = _start_and_wait(repository, chance, command)
    tree = _tree(process.pid)
    chosen = chance.choice(tree) if tree else None
    name = _describe(chosen) if chosen else "nothing"
    if chosen:
        _send(chosen, number)
    _await_end(process)
    return f"{name} after {moment:.1f} s"


def _kill_all(repository: Repository, chance: random.Random, command: Command) -> str:
    process, moment = _start_and_wait(repository, chance, command)
    for each in _tree(process.pid):
        _send(each, signal.SIGKILL)
    _await_end(process)
    return f"after {moment:.1f} s"


def _start_and_wait(
    repository: Repository, chance: random.Random, command: Command
) -> tuple[subprocess.Popen[str], float]:
    """Start a reproduction and wait for a random part of the time that it takes."""
    words, begins_after = command
    moment = begins_after + chance.uniform(0.02, 0.98) * repository.seconds[repository.state]
    process = repository.start(*words, *repository.targets)
    end = time.monotonic() + moment
    while time.monotonic() < end and process.poll() is None:
        time.sleep(POLL_SECONDS)
    return process, moment


def _tree(pid: int) -> list[psutil.Process]:
    """A process and all below it, nearest first."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.Error:
        return []


def _describe(process: psutil.Process) -> str:
    """What a process does, in a word or two."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return "a process that ended"
    modules = [word for word in words if word in ("dvc", "pipeline") or word.startswith(("stages.", "distributed"))]
    return modules[0] if modules else Path(words[0]).name if words else "a process that ended"


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:
        return


def _await_end(process: subprocess.Popen[str]) -> None:
    """Wait until the reproduction and all stages that it started have ended."""
    try:
        process.wait(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    end = time.monotonic() + 30
    while time.monotonic() < end and _members(process.pid):
        time.sleep(0.1)


def _members(group: int) -> bool:
    """Whether processes of a group still run."""
    for each in psutil.process_iter():
        try:
            if os.getpgid(each.pid) == group and each.status() != psutil.STATUS_ZOMBIE:
                return True
        except (psutil.Error, ProcessLookupError):
            continue
    return False
