"""Starting and ending the process that feeds a run into MLflow while the run goes on: see `__main__.py`.

A process of its own, not a thread: MLflow takes seconds of Python to import and may block for minutes, and two threads
importing the same libraries at once can fail in either of them. None of it can touch a training this way. Nor does
anybody have to wait for it: once its run has ended it delivers the rest, and ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from pipeline.tracking.store import Store


class Feeder:
    """The feeding process. Started early, so that MLflow is imported by the time it is wanted."""

    def __init__(self, store: Store) -> None:
        source = str(Path(__file__).parents[2])
        search = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))
        # It lives as long as its standard input is open, so it ends even where this process is killed.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.tracking"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # what a terminal sends to the stage, or to the next one, is not for it
            env={**os.environ, "PYTHONPATH": search},
        )
        self._tell(store.to_json())

    def feed(self, folder: Path) -> None:
        """Feed the journal in `folder` from now on."""
        self._tell(json.dumps(str(folder)))

    def close(self, patience: float) -> None:
        """Say that the run has ended, and wait at most `patience` seconds until the rest is delivered."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended: `sync` will deliver
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
