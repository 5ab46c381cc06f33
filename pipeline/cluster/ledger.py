"""The head's record of what it dispatched: `.cache/fan-out/ledger.jsonl`, one line for each event, only ever appended
to. A head that is killed leaves it as it is; the next one reads what had been dispatched, and how long stages took.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Event = Literal["dispatched", "done", "failed", "lost", "recorded"]
"""`done`: its results are on the head; `recorded`: they are in dvc.lock; `lost`: its worker was."""


@dataclass(frozen=True)
class Entry:
    """One event.

    Attributes:
        key: the hash of the bundle: stage, command, code, parameters and inputs.
        worker: address of the worker; "" if none.
        time: seconds since 1970.
        seconds: that the command took; 0 if unknown.
        message: of a failure.
    """

    event: Event
    stage: str
    key: str
    worker: str
    time: float
    seconds: float
    message: str


class Ledger:
    """The ledger of a repository. Several threads may write.

    Args:
        path: the file; it is created with its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def write(
        self, event: Event, stage: str, key: str, worker: str = "", seconds: float = 0.0, message: str = ""
    ) -> None:
        """Append an event; it is on the disk when this returns."""
        entry = Entry(event, stage, key, worker, round(time.time(), 3), round(seconds, 3), message)
        line = json.dumps(asdict(entry)).encode() + b"\n"
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                if file.tell() and not _ends_line(file):
                    line = b"\n" + line  # a line cut by a crash must not swallow this one
                file.write(line)
                file.flush()
                os.fsync(file.fileno())

    def entries(self) -> Iterator[Entry]:
        """All events, oldest first. A line that is cut or damaged is left out."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                yield Entry(**json.loads(line))
            except (ValueError, TypeError):
                continue

    def pending(self) -> dict[str, Entry]:
        """By key, the last event of what was dispatched and not recorded since; not what failed."""
        last: dict[str, Entry] = {}
        for entry in self.entries():
            last[entry.key] = entry
        return {key: entry for key, entry in last.items() if entry.event in ("dispatched", "done", "lost")}

    def seconds(self) -> dict[str, float]:
        """How long stages took the last time, by name."""
        return {entry.stage: entry.seconds for entry in self.entries() if entry.event == "done" and entry.seconds}


def _ends_line(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")
