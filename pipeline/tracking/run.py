"""One tracked run: what a stage or a training loop writes to."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pipeline.files import sha256
from pipeline.locks import FileLock
from pipeline.tracking.feeder import Feeder
from pipeline.tracking.journal import Group, Journal, encode_number, flatten
from pipeline.tracking.store import Store

_logger = logging.getLogger(__name__)

Status = Literal["FINISHED", "FAILED", "KILLED"]


class TrackedRun:
    """A run's journal, and the process that feeds it into MLflow.

    Nothing is written before the first `log_…` call (or `finish`), so that a training which finds a checkpoint can
    continue the run that wrote it: see `resume`. Logging never raises: a disk that is full costs a warning here, and
    is reported by the stage where it loses results.

    Args:
        folder: runs lie in `folder/<run id>`.
        experiment: MLflow's experiment.
        name: of the run, for people.
        params: may be nested.
        tags: anything with a text form.
        group: the runs this one belongs with, such as those of one reproduction.
        store: None records locally only.
    """

    def __init__(
        self,
        folder: Path,
        *,
        experiment: str,
        name: str,
        params: Mapping[str, Any] | None = None,
        tags: Mapping[str, Any] | None = None,
        group: Group | None = None,
        store: Store | None = None,
    ) -> None:
        self._folder = folder
        self._start = {
            "experiment": experiment,
            "name": name,
            "params": flatten(params or {}),
            "tags": {key: str(value) for key, value in (tags or {}).items()},
            "group": None if group is None else {"id": group.id, "name": group.name},
        }
        self._begun = time.monotonic()
        self._started = self._finished = self._broken = False
        self._feeder = self._start_feeder(store)
        self._logged: dict[str, int] = {}  # last step of each metric that an interrupted process had logged
        safe_name = "".join(c if c.isalnum() or c in "-._" else "-" for c in name)
        self.id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{safe_name}-{secrets.token_hex(3)}"
        self._journal = Journal(folder / self.id)
        self._lock = FileLock(folder / self.id / "writer.lock")

    @property
    def path(self) -> Path:
        """The folder of this run's journal."""
        return self._journal.folder

    @property
    def started(self) -> bool:
        """Whether anything has been logged yet, or an earlier run is being continued."""
        return self._started

    def resume(self, run_id: str) -> bool:
        """Continue the earlier run `run_id` instead of opening a new one; call it before anything is logged.

        Metrics of steps that the earlier process had already logged are not logged twice.

        Returns:
            False where there is nothing to continue: that run is finished, is of another name or other parameters, its
            journal is gone, or another process still writes it. Then the new run stays.
        """
        if self._started:
            raise RuntimeError("resume comes before anything is logged")
        journal = Journal(self._folder / run_id)
        if not run_id or Path(run_id).name != run_id or not journal.size():
            return False
        lock = FileLock(journal.folder / "writer.lock")
        if not lock.acquire():
            return False
        logged: dict[str, int] = {}
        for event, _ in journal.read():
            if (event["event"] == "start" and not self._same(event)) or event.get("status") == "FINISHED":
                lock.release()
                return False
            if event["event"] == "metrics":
                for key in event["values"]:
                    logged[key] = max(logged.get(key, -1), event["step"])
        self.id, self._journal, self._lock, self._logged = run_id, journal, lock, logged
        self._open("resume")
        return True

    def log_metrics(self, values: Mapping[str, float], step: int) -> None:
        """Values of one step or epoch, in one line; they need not be finite."""
        fresh = {key: encode_number(value) for key, value in values.items() if step > self._logged.get(key, -1)}
        if fresh:
            self._write("metrics", step=step, values=fresh)

    def log_tags(self, tags: Mapping[str, Any]) -> None:
        """Tags that are only known later; they replace earlier ones of the same name."""
        self._write("tags", tags={key: str(value) for key, value in tags.items()})

    def log_dataset(self, name: str, label: str, digest: str) -> None:
        """A data set the run reads: its name, its label for people and the SHA-256 of its file."""
        self._write("dataset", name=name, label=label, sha256=digest)

    def log_artifact(self, path: Path, folder: str = "") -> None:
        """A finished file, kept as it is now (by a hard link where possible); `folder` is its place in MLflow."""
        self._ensure_started()
        try:
            digest = sha256(path)
            kept = self.path / "artifacts" / digest[:12] / path.name
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(path, kept)
        except OSError as error:
            self._give_up(error)
            return
        self._write("artifact", file=str(kept.relative_to(self.path)), sha256=digest, folder=folder)

    def finish(self, status: Status = "FINISHED", patience: float = 60.0) -> None:
        """End the run, and wait at most `patience` seconds until MLflow has it all. A second call only waits.

        What is missing then goes out while this process does something else, or is gone.
        """
        if not self._finished:
            self.log_tags({"wall_seconds": f"{time.monotonic() - self._begun:.1f}"})
            self._write("end", status=status)
            self._finished = True
        if self._feeder is not None:
            self._feeder.close(patience)
        self._lock.release()

    def _start_feeder(self, store: Store | None) -> Feeder | None:
        if store is None:
            return None
        if importlib.util.find_spec("mlflow") is None:
            _logger.info("note: MLflow is not installed; runs are recorded in %s only.", self._folder)
            return None
        try:
            return Feeder(store)
        except OSError as error:
            _logger.warning("warning: cannot start the process that feeds MLflow: %s. The run goes on.", error.strerror)
            return None

    def _same(self, start: Mapping[str, Any]) -> bool:
        """Whether an earlier run's first event is of the same work as this run."""
        return all(start.get(key) == json.loads(json.dumps(self._start[key])) for key in ("name", "params"))

    def _ensure_started(self) -> None:
        if not self._started:
            try:
                self._lock.acquire()
            except OSError as error:
                self._give_up(error)
            self._open("start", id=self.id, host=socket.gethostname(), process=os.getpid(), **self._start)

    def _open(self, event: str, **fields: Any) -> None:
        self._started = True
        self._write(event, **fields)
        if self._feeder is not None and not self._broken:
            self._feeder.feed(self.path)

    def _write(self, event: str, **fields: Any) -> None:
        if event not in ("start", "resume"):
            self._ensure_started()
        if self._broken:
            return
        try:
            self._journal.append(event, **fields)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        if not self._broken:
            self._broken = True
            _logger.warning("warning: cannot record this run in %s: %s. The run goes on.", self.path, error.strerror)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
