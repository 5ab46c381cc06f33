"""The MLflow store that runs are fed into: the only module that talks to MLflow, which it imports late.

MLflow takes seconds to import and a dead server blocks a plain call for minutes, so this is used from a process of its
own (`__main__.py`) or from `sync`, with short time limits.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pipeline.locks import locked
from pipeline.tracking.journal import Event

SQLITE = "sqlite:///"

PROBE_SECONDS = 3.0
REQUEST_SECONDS = 5
UPLOAD_SECONDS = 60

# MLflow's own limits on one entry (characters) and on one batch (entries)
KEY_LENGTH, PARAM_LENGTH, TAG_LENGTH, DIGEST_LENGTH = 250, 6000, 5000, 36
PARAM_BATCH, METRIC_BATCH = 100, 1000


class UnreachableError(RuntimeError):
    """The tracking server did not answer."""


class RefusedError(RuntimeError):
    """The store answered, and refused what it was given: trying again would not help."""


@dataclass(frozen=True)
class Store:
    """Where MLflow keeps its runs.

    Args:
        uri: as in `MLFLOW_TRACKING_URI`.
        lock: file locked while the store is created, and while a group's parent run is looked up or ended.
        artifacts: folder of new experiments' artifacts; None leaves the choice to the server.
    """

    uri: str
    lock: Path
    artifacts: Path | None = None

    def to_json(self) -> str:
        """This store on one line, for another process."""
        return json.dumps({**asdict(self), "lock": str(self.lock), "artifacts": self.artifacts and str(self.artifacts)})

    @classmethod
    def from_json(cls, line: str) -> Store:
        """The reverse of `to_json`."""
        values = json.loads(line)
        return cls(values["uri"], Path(values["lock"]), values["artifacts"] and Path(values["artifacts"]))

    @property
    def key(self) -> str:
        """A short name of this store that holds no password, for file names."""
        return sha256(self.uri.encode()).hexdigest()[:12]

    @property
    def shown(self) -> str:
        """The address without user name and password."""
        return re.sub(r"//[^/@]*@", "//", self.uri)

    @property
    def is_server(self) -> bool:
        return self.uri.startswith(("http://", "https://"))


class Connection:
    """One client of one store. Experiments and parent runs are looked up once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._client: Any = None
        self._experiments: dict[str, str] = {}
        self._parents: dict[str, str] = {}

    def open(self) -> None:
        """Make sure that the store answers, creating the default one at its first use.

        Raises:
            UnreachableError: a server did not answer within `PROBE_SECONDS`.
            ImportError: MLflow is not installed.
        """
        if self._client is not None:
            return
        if self.store.is_server:
            self.probe()
        mlflow = _import_mlflow()
        with locked(self.store.lock):
            self._create_file(mlflow)
            self._client = mlflow.MlflowClient(tracking_uri=self.store.uri)

    def _create_file(self, mlflow: Any) -> None:
        """Make a SQLite store that is not there yet.

        MLflow takes seconds to fill it, and one that several first users write at once, or whose creator is killed
        half-way, is broken for good. So it is filled by one process under another name, and renamed when it is whole.
        """
        path = Path(self.store.uri.removeprefix(SQLITE))
        if not self.store.uri.startswith(SQLITE) or path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.new")
        for leftover in (unfinished, path.with_name(f"{path.name}.new-journal")):
            leftover.unlink(missing_ok=True)
        mlflow.MlflowClient(tracking_uri=f"{SQLITE}{unfinished}").search_experiments(max_results=1)
        unfinished.replace(path)

    def probe(self) -> None:
        """Ask the server for a sign of life; any answer but a gateway's error will do. Raises `UnreachableError`."""
        import requests

        try:
            status = requests.get(f"{self.store.uri.rstrip('/')}/health", timeout=PROBE_SECONDS).status_code
        except requests.Timeout:
            raise UnreachableError(f"no answer within {PROBE_SECONDS:g} s") from None
        except requests.ConnectionError:
            raise UnreachableError("no connection") from None
        except requests.RequestException as error:
            raise UnreachableError(_shorten(error)) from None
        if status in (502, 503, 504):
            raise UnreachableError(f"HTTP status {status}")

    def has_run(self, run_id: str) -> bool:
        """Whether the store still holds this run."""
        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except Exception as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def open_run(self, start: Event) -> str:
        """The id of the MLflow run for a journal's start event: the one that is there, or a new one."""
        experiment = self._experiment(start["experiment"])
        tags = {"tracking_run": start["id"], **start["tags"]}
        if start.get("group"):
            tags["group"] = start["group"]["name"]
            tags["mlflow.parentRunId"] = self._parent(experiment, start["group"], start["time"])
        with locked(self.store.lock):
            return self._search(experiment, "tracking_run", start["id"]) or str(
                self._client.create_run(experiment, start["time"], _tags(tags), run_name=start["name"]).info.run_id
            )

    def log_params(self, run_id: str, params: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        entries = [Param(_key(key), str(value)[:PARAM_LENGTH]) for key, value in params.items()]
        for begin in range(0, len(entries), PARAM_BATCH):
            with _refusals():
                self._client.log_batch(run_id, params=entries[begin : begin + PARAM_BATCH])

    def log_metrics(self, run_id: str, events: list[Event]) -> None:
        """All values of several `metrics` events, in as few requests as the store allows."""
        from mlflow.entities import Metric

        entries = [
            Metric(_key(key), float(value), event["time"], event["step"])
            for event in events
            for key, value in event["values"].items()
        ]
        for begin in range(0, len(entries), METRIC_BATCH):
            with _refusals():
                self._client.log_batch(run_id, metrics=entries[begin : begin + METRIC_BATCH])

    def log_tags(self, run_id: str, tags: Mapping[str, Any]) -> None:
        from mlflow.entities import RunTag

        with _refusals():
            self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in _tags(tags).items()])

    def log_dataset(self, run_id: str, event: Event) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        data = Dataset(event["name"], event["sha256"][:DIGEST_LENGTH], "local", event["label"])
        with _refusals():
            self._client.log_inputs(run_id, [DatasetInput(data, [InputTag("mlflow.data.context", "training")])])
        self.log_tags(run_id, {f"data.{event['name']}.sha256": event["sha256"]})

    def log_artifact(self, run_id: str, path: Path, folder: str) -> None:
        with _time_limit(UPLOAD_SECONDS), _refusals():
            self._client.log_artifact(run_id, str(path), folder or None)

    def set_running(self, run_id: str) -> None:
        self._client.update_run(run_id, status="RUNNING")

    def set_ended(self, run_id: str, start: Event, status: str, time: int) -> None:
        """End the run at `time` (milliseconds), and with it, so far, its group: failed if any run of it did."""
        self._client.set_terminated(run_id, status, time)
        if start.get("group"):
            parent = self._parent(self._experiment(start["experiment"]), start["group"], start["time"])
            with locked(self.store.lock):
                so_far = self._client.get_run(parent).info
                failed = status != "FINISHED" or so_far.status == "FAILED"
                latest = max(time, so_far.end_time or 0)
                self._client.set_terminated(parent, "FAILED" if failed else "FINISHED", latest)

    def _experiment(self, name: str) -> str:
        if name not in self._experiments:
            with locked(self.store.lock):
                found = self._client.get_experiment_by_name(name)
                if found is not None:
                    self._experiments[name] = found.experiment_id
                else:
                    artifacts = self.store.artifacts
                    location = None if artifacts is None else artifacts.as_uri()
                    self._experiments[name] = self._client.create_experiment(name, artifact_location=location)
        return self._experiments[name]

    def _parent(self, experiment: str, group: Mapping[str, str], time: int) -> str:
        """The MLflow run that stands for a group, created by whichever of its runs comes first."""
        key = f"{experiment}/{group['id']}"
        if key not in self._parents:
            with locked(self.store.lock):
                found = self._search(experiment, "group_id", group["id"])
                if found is None:
                    tags = {"group_id": group["id"], "group": group["name"], "stage": "(all)"}
                    found = self._client.create_run(experiment, time, tags, run_name=group["name"]).info.run_id
                self._parents[key] = found
        return self._parents[key]

    def _search(self, experiment: str, tag: str, value: str) -> str | None:
        runs = self._client.search_runs([experiment], f"tags.{tag} = '{value}'", max_results=1)
        return str(runs[0].info.run_id) if runs else None


def _import_mlflow() -> Any:
    """MLflow without its telemetry, its chatter and its minutes of retries. What the user has set stays."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(REQUEST_SECONDS),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }.items():
        os.environ.setdefault(name, value)
    import mlflow

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


@contextmanager
def _time_limit(seconds: int) -> Iterator[None]:
    """Give MLflow's requests longer for the block, unless the user has set a limit."""
    name = "MLFLOW_HTTP_REQUEST_TIMEOUT"
    before = os.environ.get(name)
    if before != str(REQUEST_SECONDS):
        yield
        return
    os.environ[name] = str(seconds)
    try:
        yield
    finally:
        os.environ[name] = before


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn MLflow's "this input is bad" into `RefusedError`; everything else may pass with time."""
    try:
        yield
    except Exception as error:
        if getattr(error, "error_code", "") in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST"):
            raise RefusedError(_shorten(error)) from error
        raise


def _key(name: str) -> str:
    """A name with the characters that MLflow allows."""
    return re.sub(r"[^\w\-./: ]", "_", name)[:KEY_LENGTH]


def _tags(tags: Mapping[str, Any]) -> dict[str, str]:
    return {_key(key): str(value)[:TAG_LENGTH] for key, value in tags.items()}


def _shorten(error: BaseException, length: int = 200) -> str:
    """The gist of an error message, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= length else text[: length - 1] + "…"
