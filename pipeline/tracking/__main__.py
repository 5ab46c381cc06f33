"""The feeding process: replays one run's journal into MLflow while the run goes on. Started by `feeder.Feeder`.

Standard input brings the store on one line, the journal's folder on the next, and its end is the run's end (or its
death). A store that fails is tried again; the user hears about it once. What is left at the end is delivered after
it, within a time limit.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pipeline.tracking.journal import Journal
from pipeline.tracking.replay import Replayer
from pipeline.tracking.store import Connection, Store, UnreachableError

GATHER_SECONDS = 2.0  # between deliveries, so that fast epochs go in one batch
RETRY_SECONDS = 2.0
PATIENCE_SECONDS = 4.0  # of failures before the warning
OUTAGE_RETRY_SECONDS = 60.0
FLUSH_SECONDS = 60.0  # for the rest, once the run has ended


class _Input:
    """Lines of standard input, read by a thread so that waiting for the next one can have a time limit."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self.ended = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        self._lines.put("")
        self.ended.set()

    def line(self) -> str:
        """The next line; empty at the end."""
        return self._lines.get()


class _Feeding:
    """The loop around one replayer: deliver, wait, deliver; warn once per outage."""

    def __init__(self, store: Store, connection: Connection, ended: threading.Event) -> None:
        self._store, self._connection, self._ended = store, connection, ended
        self._failing_since: float | None = None
        self._outage = False

    def open(self) -> None:
        """Import MLflow and open the store ahead of the first delivery."""
        self._attempt(self._connection.open)

    def deliver_until_end(self, folder: Path) -> None:
        """Keep the store up to date until the run has ended and the store has everything, or does not answer."""
        replayer = Replayer(Journal(folder), self._connection)
        while True:
            last_round = self._ended.is_set()
            delivered = self._attempt(replayer.catch_up)
            if last_round and (delivered or self._outage):
                return
            if delivered:
                self._ended.wait(GATHER_SECONDS)
            elif last_round:
                time.sleep(RETRY_SECONDS / 4)
            else:
                self._ended.wait(OUTAGE_RETRY_SECONDS if self._outage else RETRY_SECONDS)

    def _attempt(self, action: Callable[[], None]) -> bool:
        begun = time.monotonic()
        try:
            action()
        except Exception as error:  # whatever MLflow, and what lies under it, may raise
            self._failing_since = self._failing_since or begun
            patience = 0.0 if isinstance(error, UnreachableError) else PATIENCE_SECONDS
            if not self._outage and time.monotonic() - self._failing_since >= patience:
                self._outage = True
                cause = " ".join(str(error).split())[:200] or type(error).__name__
                _say(
                    f"warning: MLflow at {self._store.shown} cannot be used ({cause}). What it misses is recorded "
                    "locally; `python -m pipeline sync-mlflow` delivers it later."
                )
            return False
        if self._outage:
            _say(f"note: MLflow at {self._store.shown} answers again.")
        self._failing_since, self._outage = None, False
        return True


def _limit_flush(store: Store, ended: threading.Event) -> None:
    """End this process where the store holds it for too long after the run's end: MLflow may block for minutes."""
    ended.wait()
    time.sleep(FLUSH_SECONDS)
    _say(
        f"warning: MLflow at {store.shown} had not taken everything {FLUSH_SECONDS:g} s after the run's end. "
        "`python -m pipeline sync-mlflow` delivers the rest."
    )
    os._exit(0)


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal may be gone by now
        print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Feed until the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the stage, which then ends this process's input
    os.nice(5)  # training goes first
    source = _Input()
    first = source.line()
    if not first:
        return
    store = Store.from_json(first)
    threading.Thread(target=_limit_flush, args=(store, source.ended), daemon=True).start()
    feeding = _Feeding(store, Connection(store), source.ended)
    feeding.open()
    second = source.line()
    if second:
        feeding.deliver_until_end(Path(json.loads(second)))


if __name__ == "__main__":
    main()
    # Everything is delivered and committed: nobody should wait half a second for MLflow to be taken down in order.
    os._exit(0)
