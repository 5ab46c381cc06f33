"""The MLflow store that runs are delivered to: the only module that uses MLflow, which it imports lazily.

MLflow takes seconds to import, and a dead server blocks a call for minutes. So this module is used only by the drainer,
a separate process, or by `sync-mlflow`, with time limits.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from pipeline.errors import UserError
from pipeline.tracking.journal import Event

_logger = logging.getLogger(__name__)

SQLITE = "sqlite:///"

PROBE_SECONDS = 3.0
REQUEST_SECONDS = 60  # for uploads too

# MLflow's own limits on one entry (characters) and on one batch (entries)
KEY_LENGTH, PARAM_LENGTH, TAG_LENGTH, DIGEST_LENGTH = 250, 6000, 5000, 36
PARAM_BATCH, METRIC_BATCH = 100, 1000

# MLflow's error codes for which a retry would not help; servers older than 3 have no models of runs
_REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "ENDPOINT_NOT_FOUND")


class StoreError(UserError):
    """The store cannot be used now, or rejected the data."""


class UnreachableError(StoreError):
    """The tracking server did not answer."""


@dataclass(frozen=True)
class Store:
    """Where MLflow keeps its runs.

    Args:
        uri: as in `MLFLOW_TRACKING_URI`.
        artifacts: folder of new experiments' artifacts; None: the server's default.
    """

    uri: str
    artifacts: Path | None = None

    @property
    def key(self) -> str:
        """A short name of this store without a password, for file names."""
        return sha256(self.uri.encode()).hexdigest()[:12]

    @property
    def shown(self) -> str:
        """The address without user name and password."""
        return without_password(self.uri)

    @property
    def is_server(self) -> bool:
        return self.uri.startswith(("http://", "https://"))


class Connection:
    """One client of one store.

    The caller must hold the lock on deliveries to this store, because looking up a run and creating it are two steps.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._client: Any = None

    def open(self) -> None:
        """Make sure that the store answers; create the default store at its first use.

        Raises:
            StoreError: MLflow is not installed.
            UnreachableError: a server did not answer within `PROBE_SECONDS`.
        """
        if self._client is None:
            self.probe()
            mlflow = _import_mlflow()
            self._create_file(mlflow)
            self._client = mlflow.MlflowClient(tracking_uri=self.store.uri)

    def probe(self) -> None:
        """Check that a server answers with anything but a gateway error. Raises `UnreachableError`."""
        if not self.store.is_server:
            return
        import requests

        try:
            status = requests.get(f"{self.store.uri.rstrip('/')}/health", timeout=PROBE_SECONDS).status_code
            problem = f"HTTP status {status}" if status in (502, 503, 504) else ""
        except requests.Timeout:
            problem = f"no answer within {PROBE_SECONDS:g} s"
        except requests.ConnectionError:
            problem = "no connection"
        except requests.RequestException as error:
            problem = shorten(error)
        if problem:
            raise UnreachableError(f"MLflow at {self.store.shown} does not answer: {problem}")

    def experiments(self) -> dict[str, str]:
        """The ids of all experiments by name."""
        return {each.name: str(each.experiment_id) for each in self._client.search_experiments()}

    def has_run(self, run_id: str) -> bool:
        """Whether the store still holds this run."""
        try:
            return bool(self._client.get_run(run_id).info.lifecycle_stage == "active")
        except Exception as error:
            if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise

    def open_run(self, start: Event) -> str:
        """The id of the MLflow run for a journal's start event: an existing one or a new one."""
        experiment = self._experiment(start["experiment"], start.get("experiment_tags") or {})
        tags = {"tracking_run": start["id"], **start["tags"]}
        if start.get("group"):
            tags["group"] = start["group"]["name"]
            tags["mlflow.parentRunId"] = self._parent(experiment, start)
        return self._find_or_create(experiment, "tracking_run", tags, start["name"], start["time"])

    def log(self, run_id: str, start: Event, events: list[Event], folder: Path) -> None:
        """Deliver events of one kind from the journal in `folder` that begins with `start`.

        Events that the store refuses are skipped with a warning: they would never be accepted, and must not block later
        ones.
        """
        try:
            self._log(run_id, start, events, folder)
        except Exception as error:
            if getattr(error, "error_code", "") not in _REFUSALS:
                raise
            if len(events) == 1:
                kind = events[0]["event"]
                _logger.warning("warning: MLflow refused '%s' of %s: %s", kind, start["id"], shorten(error))
                return
            for event in events:
                self.log(run_id, start, [event], folder)

    def _log(self, run_id: str, start: Event, events: list[Event], folder: Path) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

        event = events[0]
        if event.get("of_group"):
            if not start.get("group"):
                _logger.warning("warning: '%s' of %s belongs to no group: skipped", event["event"], start["id"])
                return
            run_id = self._parent(self._experiment(start["experiment"]), start)
        elif event.get("of_run"):
            earlier = self._find(self._experiment(start["experiment"]), "tracking_run", event["of_run"])
            if earlier is None:
                return
            run_id = earlier
        match event["event"]:
            case "start" | "params":
                params = [Param(_key(key), str(value)[:PARAM_LENGTH]) for key, value in event["params"].items()]
                for begin in range(0, len(params), PARAM_BATCH):
                    self._client.log_batch(run_id, params=params[begin : begin + PARAM_BATCH])
            case "resume":
                self._client.update_run(run_id, status="RUNNING")
            case "metrics":
                metrics = [
                    Metric(_key(key), float(value), each["time"], each["step"])
                    for each in events
                    for key, value in each["values"].items()
                ]
                for begin in range(0, len(metrics), METRIC_BATCH):
                    self._client.log_batch(run_id, metrics=metrics[begin : begin + METRIC_BATCH])
            case "tags":
                self._log_tags(run_id, event["tags"])
            case "dataset":
                data = Dataset(event["name"], event["sha256"][:DIGEST_LENGTH], "local", event["label"])
                context = InputTag("mlflow.data.context", event.get("context", "training"))
                self._client.log_inputs(run_id, [DatasetInput(data, [context])])
                self._log_tags(run_id, {f"data.{event['name']}.sha256": event["sha256"]})
            case "artifact":
                path = folder / event["file"]
                if path.exists():
                    self._client.log_artifact(run_id, str(path), event["folder"] or None)
                else:
                    _logger.warning("warning: artifact %s of %s is gone: not delivered", path.name, start["id"])
            case "model":
                self._log_model(run_id, start, event, folder)
            case "end":
                self._end(run_id, start, event["status"], event["time"])

    def _log_model(self, run_id: str, start: Event, event: Event, folder: Path) -> None:
        """Log a model with its files, its card and its final numbers; a second delivery changes the same model."""
        from mlflow.entities import LoggedModelOutput, Metric

        experiment, name = self._experiment(start["experiment"]), event["name"]
        mine = f"source_run_id = '{run_id}' AND name = '{name}'"
        found = self._client.search_logged_models([experiment], filter_string=mine, max_results=1)
        model = (
            found[0] if found else self._client.create_logged_model(experiment, name, run_id, None, None, event["kind"])
        )
        with TemporaryDirectory() as place:
            for each in event["files"]:
                path = folder / each["file"]
                if path.exists():
                    copyfile(path, Path(place) / path.name)
                else:
                    _logger.warning("warning: file %s of %s is gone: not delivered", path.name, start["id"])
            (Path(place) / "card.json").write_text(json.dumps(event["card"], indent=2) + "\n")
            (Path(place) / "MLmodel").write_text(_mlmodel(model.model_id, run_id, event))
            self._client.log_model_artifacts(model.model_id, place)
        self._client.finalize_logged_model(model.model_id, "READY")
        if found:
            return  # with the numbers of the first delivery
        metrics = [
            Metric(_key(key), float(value), event["time"], 0, model.model_id) for key, value in event["metrics"].items()
        ]
        self._client.log_batch(run_id, metrics=metrics[:METRIC_BATCH])
        self._client.log_outputs(run_id, [LoggedModelOutput(model.model_id, 0)])

    def _log_tags(self, run_id: str, tags: Mapping[str, Any]) -> None:
        from mlflow.entities import RunTag

        self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in _tags(tags).items()])

    def _end(self, run_id: str, start: Event, status: str, time: int) -> None:
        """End the run at `time` (milliseconds), and its group for now: the group has failed if any of its runs has."""
        self._client.set_terminated(run_id, status, time)
        if start.get("group"):
            parent = self._client.get_run(self._parent(self._experiment(start["experiment"]), start)).info
            failed = status != "FINISHED" or parent.status == "FAILED"
            latest = max(time, parent.end_time or 0)
            self._client.set_terminated(parent.run_id, "FAILED" if failed else "FINISHED", latest)

    def _experiment(self, name: str, tags: Mapping[str, str] = MappingProxyType({})) -> str:
        """The id of an experiment, which is created if it does not exist. It gets those tags that it does not have."""
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            location = None if self.store.artifacts is None else self.store.artifacts.as_uri()
            identifier, present = str(self._client.create_experiment(name, artifact_location=location)), {}
        else:
            identifier, present = str(experiment.experiment_id), experiment.tags
        for key in tags.keys() - present.keys():
            self._client.set_experiment_tag(identifier, key, tags[key])
        return identifier

    def _parent(self, experiment: str, start: Event) -> str:
        """The MLflow run that represents a group, created with the group's first run."""
        group = start["group"]
        tags = {"group_id": group["id"], "group": group["name"], "stage": "(all)", **(group.get("tags") or {})}
        return self._find_or_create(experiment, "group_id", tags, group["name"], start["time"])

    def _find_or_create(self, experiment: str, key: str, tags: Mapping[str, Any], name: str, time: int) -> str:
        """The run whose tag `key` equals that in `tags`, or a new run with all the tags."""
        found = self._find(experiment, key, tags[key])
        return found or str(self._client.create_run(experiment, time, _tags(tags), run_name=name).info.run_id)

    def _find(self, experiment: str, key: str, value: str) -> str | None:
        """The run whose tag `key` has this value; None if there is none."""
        runs = self._client.search_runs([experiment], f"tags.{key} = '{value}'", max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def _create_file(self, mlflow: Any) -> None:
        """Create the SQLite store if it does not exist.

        MLflow takes seconds to create it, and a store that is interrupted half-way stays broken. So it is created under
        another name, and renamed when it is complete.
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


def _import_mlflow() -> Any:
    """MLflow without its telemetry, its messages and its minutes of retries. The user's own settings are kept."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(REQUEST_SECONDS),
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    }.items():
        os.environ.setdefault(name, value)
    try:
        import mlflow
    except ImportError:
        raise StoreError("MLflow is not installed here: pip install mlflow") from None

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


def _mlmodel(model_id: str, run_id: str, event: Event) -> str:
    """MLflow's description of a model, which its UI reads. It is YAML, of which JSON is a part.

    MLflow cannot load the model: weights are loaded by the code that they belong to, which the card names.
    """
    signature = event["card"].get("signature") or {}
    described = {
        "flavors": {"safetensors": {key: value for key, value in event["card"].items() if isinstance(value, str)}},
        "model_id": model_id,
        "model_uuid": model_id,
        "run_id": run_id,
        "signature": {key: json.dumps(value) for key, value in signature.items()} or None,
    }
    return json.dumps(described, indent=2) + "\n"


def _key(name: str) -> str:
    """A name with the characters that MLflow allows."""
    return re.sub(r"[^\w\-./: ]", "_", name)[:KEY_LENGTH]


def _tags(tags: Mapping[str, Any]) -> dict[str, str]:
    return {_key(key): str(value)[:TAG_LENGTH] for key, value in tags.items()}


def without_password(text: str) -> str:
    """A text whose addresses have no user name and password any more."""
    return re.sub(r"//[^/\s]*@", "//", text)


def shorten(error: BaseException, length: int = 200) -> str:
    """An error message on one line, cut to `length` characters, without passwords: MLflow's have whole addresses."""
    text = without_password(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= length else text[: length - 1] + "…"
