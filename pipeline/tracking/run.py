"""Tracked runs, their journals, and the start of the process that delivers journals. Does not import MLflow.

A journal is a file to which events are appended, one line of JSON each. Every event has a `time` (milliseconds since
1970). Events and their other fields: `start` (id, experiment, experiment_tags, name, params, tags, group, host),
`params` (params), `metrics` (step, values), `tags` (tags), `dataset` (name, label, sha256, context), `artifact` (file,
folder, of_run), `end` (status). An artifact with `of_run` is for the earlier run with this id. Events with `of_group`
are for the run that represents the whole group of runs in MLflow.
"""

import json
import logging
import os
import re
import secrets
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from pipeline.errors import UserError
from pipeline.files import sha256, write_bytes
from pipeline.settings import flatten

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Store:
    """MLflow's store: its `uri` (as in `MLFLOW_TRACKING_URI`), and its artifact folder (None: the server's)."""

    uri: str
    artifacts: Path | None = None

    @property
    def shown(self) -> str:
        """The store's address without user name and password, for messages."""
        return without_passwords(self.uri)

    @property
    def database(self) -> Path | None:
        """The file of an SQLite store; None for other stores."""
        return Path(self.uri.removeprefix("sqlite:///")) if self.uri.startswith("sqlite:///") else None

    def probe(self) -> None:
        """Check that the store can be used. Raises `UserError` if the store is a folder, a damaged SQLite file, or a
        server that does not answer within a few seconds.
        """
        if "://" not in self.uri or self.uri.startswith("file:"):
            advice = "Set it to a server (http://...) or a database (sqlite:///...)."
            raise UserError(f"MLFLOW_TRACKING_URI is {self.uri}: MLflow 3 cannot keep runs in a folder. {advice}")
        if self.database and self.database.exists():
            try:
                with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.database)) as opened:
                    opened.execute("PRAGMA schema_version")  # OperationalError: the file is locked, but not damaged
            except sqlite3.DatabaseError as error:
                advice = "move it away, and all runs are delivered to a new one"
                raise UserError(f"{self.database} cannot be read ({error}): {advice}") from error
        if self.uri.startswith("http"):
            import requests

            try:
                requests.get(f"{self.uri.rstrip('/')}/health", timeout=3)
            except requests.RequestException as error:
                why, advice = type(error).__name__, "start the server, or correct MLFLOW_TRACKING_URI"
                raise UserError(f"MLflow at {self.shown} does not answer ({why}): {advice}") from error

    def start_delivery(self, folder: Path) -> None:
        """Start the process that delivers the journals in `folder`, unless one is running already."""
        try:
            with background_lock(folder).acquire(blocking=False):
                background_log(folder).write_text("")  # an earlier process's warnings may no longer apply
        except TimeoutError:
            return
        search = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        with background_log(folder).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pipeline.tracking.delivery", str(folder), str(self.artifacts or "")],
                cwd=folder.parent,  # the clone, whose code is imported: the stage may run in a copy that DVC deletes
                # Other users can see arguments. The address may have a password, so it is not passed as an argument.
                env={**os.environ, "PYTHONPATH": search, "MLFLOW_TRACKING_URI": self.uri},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # signals from the stage's terminal must not end the process
            )
        process.returncode = 0  # keeps Python from warning that the process still runs


def background_lock(folder: Path) -> FileLock:
    """The lock that the delivering process holds while it runs."""
    return FileLock(folder / "background.lock", thread_local=False)


def background_log(folder: Path) -> Path:
    """The file for output of the delivering process. Lines that begin with `warning:` or `note:` are for the user."""
    return folder / "background.log"


def without_passwords(text: str) -> str:
    """The text on one line, without the user names and passwords in addresses. MLflow's errors may contain these."""
    return re.sub(r"//[^/\s]*@", "//", " ".join(text.split()))


class Journal:
    """The events of one run, in `<folder>/events.jsonl`. The folder's name is the run's id. The process of the run
    holds the lock `writer` until the run ends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.id = folder, folder.name
        self.path = folder / "events.jsonl"
        self.writer = FileLock(folder / "writer.lock", thread_local=False)

    def append(self, event: str, **fields: Any) -> None:
        """Append an event on a new line, even if the file ends with an incomplete line. Raises `OSError` on failure."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"event": event, "time": int(time.time() * 1000), **fields}) + "\n")

    def read(self, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the events after byte `offset`, each with the byte offset of its end. Damaged lines are skipped."""
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                with suppress(ValueError):
                    event = json.loads(line)
                    if line.endswith(b"\n") and isinstance(event, dict) and "event" in event:
                        yield event, offset

    def is_written(self) -> bool:
        """Whether the run's process holds `writer`. If not, append an `end` event (KILLED), unless there is one."""
        try:
            with self.writer.acquire(blocking=False):
                last = self.path.read_bytes().rstrip().rpartition(b"\n")[2]
                if b'"event": "end"' not in last:
                    at = int(self.path.stat().st_mtime * 1000)
                    self.append("end", status="KILLED", time=at)
                return False
        except TimeoutError:
            return True


@dataclass
class TrackedRun:
    """A tracked run. It writes a journal, which a separate process delivers to MLflow. `id` is the run's id.

    Logging warns in place of raising `OSError`. If the disk is full, the stage fails only when it writes its results.

    Args:
        folder: parent folder. The run's own folder is `folder/<run id>`.
        params, tags: parameters, which may be nested, and tags, which are converted to text.
        group: `id` (unique), `name` and `tags` of the group to which the run belongs, such as a reproduction. MLflow
            shows the run below a run that represents the group. Without a group, events `of_group` are dropped.
        context: what the run uses data sets for: "training" or "evaluation".
        store: the MLflow store, or None to record the run only locally.
    """

    folder: Path
    experiment: str
    name: str
    params: Mapping[str, Any] = field(default_factory=dict)
    tags: Mapping[str, Any] = field(default_factory=dict)
    group: Mapping[str, Any] | None = None
    context: str = "training"
    experiment_tags: Mapping[str, str] = field(default_factory=dict)
    store: Store | None = None

    def __post_init__(self) -> None:
        self._warned: set[str] = set()
        safe_name = "".join(c if c.isalnum() or c in "-._" else "-" for c in self.name)
        self.id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{safe_name}-{secrets.token_hex(3)}"
        self.journal = Journal(self.folder / self.id)
        with suppress(OSError):  # if this fails, logging the first event also fails, and warns
            self.journal.writer.acquire(blocking=False)
        start = {key: getattr(self, key) for key in ("id", "experiment", "experiment_tags", "name", "group")}
        tags = {key: str(value) for key, value in self.tags.items()}
        self.log("start", host=socket.gethostname(), **start, params=flatten(self.params), tags=tags)

    def log(self, event: str, *, of_group: bool = False, **fields: Any) -> None:
        """Log an event. The module's docstring lists the fields of each kind of event."""
        if of_group and self.group is None:
            return
        try:
            self.journal.append(event, **({"of_group": True} if of_group else {}), **fields)
            if self.store is not None:
                if event in ("start", "end"):
                    self.store.start_delivery(self.folder)
                for line in background_log(self.folder).read_text(errors="replace").splitlines():
                    if line.startswith(("warning:", "note:")):
                        self._warn(line)
        except OSError as error:
            self._warn(f"warning: cannot track this run in {self.folder}: {error.strerror}. The run goes on.")

    def log_metrics(self, values: Mapping[str, float], step: int, *, of_group: bool = False) -> None:
        """Log the values of one step or epoch as a single event. Values may be infinite or NaN."""
        self.log("metrics", of_group=of_group, step=step, values={key: float(value) for key, value in values.items()})

    def log_tags(self, tags: Mapping[str, Any], *, of_group: bool = False) -> None:
        """Log tags that become known during the run. They replace earlier tags with the same names."""
        self.log("tags", of_group=of_group, tags={key: str(value) for key, value in tags.items()})

    def log_dataset(self, name: str, label: str, digest: str) -> None:
        """Log a data set that the run reads: its name, its display name and the SHA-256 of its file."""
        self.log("dataset", name=name, label=label, sha256=digest, context=self.context)

    def log_artifact(self, path: Path, folder: str = "", **target: Any) -> None:
        """Log a file. The journal's folder gets a copy, so the file may change later. `folder` is its folder in MLflow.
        With `of_group=True`, the file is logged for the group in place of this run. With `of_run`, it is logged for the
        earlier run with this id in the same experiment. If MLflow does not have the earlier run, nothing is logged.
        """
        try:
            place = self.journal.folder / "artifacts" / sha256(path)[:12] / path.name
            if not place.exists():
                write_bytes(place, path.read_bytes())
        except (OSError, UserError) as error:
            self._warn(f"warning: cannot track {path}: {error}. The run goes on.")
        else:
            self.log("artifact", folder=folder, file=str(place.relative_to(self.journal.folder)), **target)

    def finish(self, status: Literal["FINISHED", "FAILED", "KILLED"] = "FINISHED") -> None:
        """End the run. Its events may reach MLflow later."""
        self.log("end", status=status)
        self.journal.writer.release()

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _logger.warning("%s", message)
