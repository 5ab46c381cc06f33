"""The drainer: the one process of a repository and store that delivers journals while runs are under way.

A process of its own, not a thread: MLflow takes seconds of Python to import and may block for minutes, and none of it
may touch a training. It outlives the stage that started it and ends when nothing has been written for a while. Its
files lie beside the journals: a lock that it holds for its life, and a log of its warnings.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.store import Store, StoreError, UnreachableError

_logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
IDLE_SECONDS = 20.0  # longer than it takes DVC to go from one stage to the next
HANG_SECONDS = 300.0  # for one run's events


def drainer_lock(folder: Path, store: Store) -> FileLock:
    """The lock that a drainer holds for its life."""
    return FileLock(folder / f"drainer-{store.key}.lock", thread_local=False)


def drainer_log(folder: Path, store: Store) -> Path:
    """Where a drainer's warnings go."""
    return folder / f"drainer-{store.key}.log"


class DrainerStarter:
    """A stage's side: sees to it that a drainer runs, and passes on its warnings."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._lock, self._log = drainer_lock(folder, store), drainer_log(folder, store)
        self._runs_until = 0.0  # of `time.monotonic`: until then there is nothing to ensure
        self._passed_on: set[str] = set()

    def ensure(self) -> None:
        """Start a drainer unless one runs. Call it after writing: that one, or the new one, sees what was written."""
        if time.monotonic() < self._runs_until:
            return
        if importlib.util.find_spec("mlflow") is None:
            _logger.info("note: MLflow is not installed; runs are recorded in %s only.", self._folder)
            self._runs_until = math.inf
            return
        try:
            with self._lock.acquire(blocking=False):
                pass
            self._start()
        except TimeoutError:
            return
        except OSError as error:
            _logger.warning("warning: cannot start MLflow's drainer: %s. The run goes on.", error.strerror)
            self._runs_until = math.inf

    def pass_on_warnings(self) -> None:
        """Repeat the drainer's warnings, each once."""
        with suppress(OSError):
            for line in self._log.read_text(errors="replace").splitlines():
                if line.startswith("warning:") and line not in self._passed_on:
                    self._passed_on.add(line)
                    _logger.warning("%s", line)

    def _start(self) -> None:
        artifacts = [] if self._store.artifacts is None else [str(self._store.artifacts)]
        search = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        self._log.write_text("")  # what an earlier one warned of may be mended
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.tracking", str(self._folder), *artifacts],
                cwd=self._folder.parent,  # its code comes first: this stage's may lie in a copy that DVC soon deletes
                env={**os.environ, "PYTHONPATH": search, "MLFLOW_TRACKING_URI": self._store.uri},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # what a terminal sends to the stage is not for it
            )
        process.returncode = 0  # nobody waits for it, so Python need not warn that it still runs
        self._runs_until = time.monotonic() + IDLE_SECONDS


class Drainer:
    """The process's own side."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._delivery = Delivery(folder, store)
        self._lock, self._log = drainer_lock(folder, store), drainer_log(folder, store)
        self._failures = 0
        self._last_progress = time.monotonic()

    def run(self) -> None:
        """Deliver until there has been nothing to do for `IDLE_SECONDS`; return at once where another drainer runs.

        Having released its lock it looks once more: a stage that wrote just before that did not start another.
        """
        while self._delivery.has_news():
            try:
                with self._lock.acquire(timeout=1.0):
                    self._run_until_idle()
            except TimeoutError:
                return

    def _run_until_idle(self) -> None:
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < IDLE_SECONDS:
            if self._delivery.has_news():
                idle_since = time.monotonic()
            self._attempt()
            time.sleep(POLL_SECONDS)

    def _attempt(self) -> None:
        """Deliver what there is. Of failures in a row one is warned of: the second where the first may be by chance."""
        try:
            self._last_progress = time.monotonic()
            for _ in self._delivery.run():
                self._last_progress = time.monotonic()
        except StoreError as error:
            self._failures += 1
            if self._failures == (1 if isinstance(error, UnreachableError) else 2):
                self._warn(str(error))
        else:
            if self._failures:
                self._log.write_text("")
            self._failures = 0

    def watch(self) -> None:
        """End this process where the store holds it for too long: another one then delivers the rest."""
        while time.monotonic() - self._last_progress < HANG_SECONDS:
            time.sleep(1.0)
        self._warn(f"MLflow at {self._delivery.store.shown} kept a delivery for more than {HANG_SECONDS:g} s")
        os._exit(1)

    def _warn(self, problem: str) -> None:
        later = "What it misses is recorded locally; `python -m pipeline sync-mlflow` delivers it later."
        with suppress(OSError):  # a full disk
            print(f"warning: {problem}. {later}", file=sys.stderr, flush=True)
