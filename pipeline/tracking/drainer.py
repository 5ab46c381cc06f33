"""The drainer: a single process per repository and store that delivers journals during runs.

It is a separate process, not a thread, because MLflow takes seconds to import and may block for minutes, which must not
slow down training. It outlives the stage that started it and ends when nothing has been written for a while. Its files
are next to the journals: a lock that it holds while it runs, and a log of its warnings.
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
from pipeline.tracking.sampling import Sampler
from pipeline.tracking.store import Store, StoreError, UnreachableError

_logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
IDLE_SECONDS = 20.0  # longer than it takes DVC to go from one stage to the next
HANG_SECONDS = 300.0  # for one run's events


def drainer_lock(folder: Path, store: Store) -> FileLock:
    """The lock that a drainer holds while it runs."""
    return FileLock(folder / f"drainer-{store.key}.lock", thread_local=False)


def drainer_log(folder: Path, store: Store) -> Path:
    """The file with a drainer's warnings."""
    return folder / f"drainer-{store.key}.log"


class DrainerStarter:
    """Used by a stage: makes sure that a drainer runs, and repeats its warnings."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._lock, self._log = drainer_lock(folder, store), drainer_log(folder, store)
        self._runs_until = 0.0  # time (`time.monotonic`) until which a drainer surely runs
        self._passed_on: set[str] = set()

    def ensure(self) -> None:
        """Start a drainer unless one runs. Call it after writing, so that the running or the new one reads it."""
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
        """Log each of the drainer's warnings once."""
        with suppress(OSError):
            for line in self._log.read_text(errors="replace").splitlines():
                if line.startswith("warning:") and line not in self._passed_on:
                    self._passed_on.add(line)
                    _logger.warning("%s", line)

    def _start(self) -> None:
        artifacts = [] if self._store.artifacts is None else [str(self._store.artifacts)]
        search = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        self._log.write_text("")  # warnings of an earlier drainer may be out of date
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.tracking", str(self._folder), *artifacts],
                cwd=self._folder.parent,  # import its code: this stage's may be in a copy that DVC soon deletes
                env={**os.environ, "PYTHONPATH": search, "MLFLOW_TRACKING_URI": self._store.uri},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # signals from the stage's terminal must not reach it
            )
        process.returncode = 0  # nobody waits for it: no warning by Python that it still runs
        self._runs_until = time.monotonic() + IDLE_SECONDS


class Drainer:
    """Runs in the drainer's process."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._delivery = Delivery(folder, store, Sampler())
        self._lock, self._log = drainer_lock(folder, store), drainer_log(folder, store)
        self._failures = 0
        self._last_progress = time.monotonic()

    def run(self) -> None:
        """Deliver until there has been nothing to do for `IDLE_SECONDS`; return at once if another drainer runs.

        It checks again after releasing its lock, because a stage that wrote just before did not start another drainer.
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
        """Deliver all new events. Of consecutive failures one is reported: the first if the store is unreachable, else
        the second, because the first may be by chance.
        """
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
        """End this process if the store blocks it for too long: another one then delivers the rest."""
        while time.monotonic() - self._last_progress < HANG_SECONDS:
            time.sleep(1.0)
        self._warn(f"MLflow at {self._delivery.store.shown} kept a delivery for more than {HANG_SECONDS:g} s")
        os._exit(1)

    def _warn(self, problem: str) -> None:
        later = "What it misses is recorded locally; `python -m pipeline sync-mlflow` delivers it later."
        with suppress(OSError):  # a full disk
            print(f"warning: {problem}. {later}", file=sys.stderr, flush=True)
