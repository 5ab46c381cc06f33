"""What the head prints: a line for each event, and how far it is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TextIO

TERMINAL_SECONDS = 1.0
FILE_SECONDS = 60.0
NAMED = 4
"""Running stages that are named in a line."""


@dataclass(frozen=True)
class Counts:
    """How far a fan-out is.

    Attributes:
        running: seconds that each running stage has run for.
        waiting: stages that may still have to run.
        seconds: until the expected end; None if nothing is known of how long stages take.
    """

    done: int
    running: Mapping[str, float]
    failed: int
    waiting: int
    seconds: float | None


class Progress:
    """Writes to a stream. On a terminal, the last line is kept up to date; in a file there is one a minute."""

    def __init__(
        self, stream: TextIO, clock: Callable[[], float] = time.monotonic, now: Callable[[], datetime] = datetime.now
    ) -> None:
        self._stream, self._clock, self._now = stream, clock, now
        self._terminal = stream.isatty()
        self._interval = TERMINAL_SECONDS if self._terminal else FILE_SECONDS
        self._last = self._clock() - self._interval
        self._status = ""
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Print an event with the time."""
        with self._lock:
            self._clear()
            print(f"{self._now():%H:%M:%S}  {text}", file=self._stream, flush=True)
            self._show()

    def due(self) -> bool:
        """Whether it is time to tell how far it is."""
        return self._clock() - self._last >= self._interval

    def counts(self, counts: Counts) -> None:
        """Tell how far it is."""
        self._last = self._clock()
        if self._terminal:
            self.status(self.describe(counts))
        else:
            self.note(self.describe(counts))

    def describe(self, counts: Counts) -> str:
        """One line."""
        longest = sorted(counts.running.items(), key=lambda each: -each[1])
        named = ", ".join(f"{name} {_duration(seconds)}" for name, seconds in longest[:NAMED])
        more = f", {len(longest) - NAMED} more" if len(longest) > NAMED else ""
        parts = [f"{counts.done} done", f"{len(longest)} running" + (f" ({named}{more})" if named else "")]
        parts += [f"{counts.failed} failed", f"{counts.waiting} to come"]
        if counts.seconds is not None:
            end = self._now() + timedelta(seconds=counts.seconds)
            parts.append(f"expected end {end:%a %H:%M} (in {_duration(counts.seconds)})")
        return ", ".join(parts)

    def status(self, text: str) -> None:
        """Replace the last line of a terminal."""
        with self._lock:
            self._clear()
            self._status = text
            self._show()

    def _clear(self) -> None:
        if self._terminal and self._status:
            self._stream.write("\r\033[K")

    def _show(self) -> None:
        if self._terminal and self._status:
            self._stream.write(self._status)
            self._stream.flush()


def _duration(seconds: float) -> str:
    """`0:07`, `12:30` (minutes and seconds) or `3 h 05 min`."""
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02}"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
