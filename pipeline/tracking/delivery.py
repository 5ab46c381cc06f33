"""Delivers new events of tracked runs from their journals (`run.py`) to an MLflow store.

A file beside each journal has the byte offset from which delivery continues. The file's name has the id and the
creation time of MLflow's experiment. A new or another store has no such file yet, so it gets all events. An
interruption may cause events to be delivered twice. This does no harm: existing runs are found by the tag
`tracking_run`, and MLflow recognises values that it already has by their times, which are those of the journal.

While stages run, a separate process delivers events, because MLflow takes seconds to import and may block for minutes.
This process continues after the stage that started it. It ends when no run has been in progress for a while.
"""

import logging
import os
import re
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipeline.errors import UserError
from pipeline.files import write_text
from pipeline.tracking.run import Journal, Store, background_lock, background_log, without_passwords

_logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
IDLE_SECONDS = 20.0  # longer than it takes DVC to go from one stage to the next
HANG_SECONDS = 600  # maximum time that MLflow may take for the events of one run
LOCK_SECONDS = 60.0
SETTINGS = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",  # seconds; for uploads, too
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
}
BATCH, DIGEST_LENGTH = 100, 36  # MLflow's limits
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
ODD = (KeyError, TypeError, ValueError, AttributeError, OverflowError, FileNotFoundError)
"""Errors caused by malformed events, and by artifacts whose file is gone."""


def deliver_until_idle(folder: Path, store: Store, idle_seconds: float = IDLE_SECONDS) -> None:
    """Deliver events until no run has been in progress for `idle_seconds`, unless another process delivers already.

    Only the first of consecutive failures is reported. If the store blocks this process for `HANG_SECONDS`, an alarm
    kills this process. The next process that a stage starts delivers the remaining events.
    """
    try:
        lock = background_lock(folder).acquire(timeout=1.0)
    except TimeoutError:
        return
    with lock:
        delivery, failed, idle_since = Delivery(folder, store, measure=True), False, time.monotonic()
        while time.monotonic() - idle_since < idle_seconds:
            signal.alarm(HANG_SECONDS)
            try:
                for _ in delivery.run():
                    signal.alarm(HANG_SECONDS)
                if failed:
                    background_log(folder).write_text("")
                failed = False
            except TimeoutError:
                pass  # the command `sync-mlflow` is delivering: the next round delivers what remains
            except UserError as error:
                if not failed:
                    later = "Runs are recorded locally; `python -m pipeline sync-mlflow` delivers them later."
                    print(f"warning: {error}. {later}", file=sys.stderr, flush=True)
                failed = True
            if any(journal.is_written() for journal in delivery.unfinished()):
                idle_since = time.monotonic()
            time.sleep(POLL_SECONDS)
        signal.alarm(0)


class Delivery:
    """Delivers journals to a store, one process at a time. With `measure`, MLflow also records the machine's load."""

    def __init__(self, folder: Path, store: Store, measure: bool = False) -> None:
        self.folder, self.store, self._measure = folder, store, measure
        self._complete = set[str]()  # ids of runs that have ended, and whose events have all been delivered
        self._measured = set[str]()  # ids of runs during which the load is recorded, if they are on this machine

    def run(self) -> Iterator[str]:
        """Deliver all new events, oldest run first. Yield the ids of runs that had new events.

        A run whose process has ended without an `end` event is marked as killed. If the delivery of one run fails, the
        other runs are still delivered. Raises `UserError` if `Store.probe` does or if the store rejected a run, and
        `TimeoutError` if another process holds the lock of deliveries for more than `LOCK_SECONDS`.
        """
        failures = []
        with FileLock(self.folder / "delivery.lock", timeout=LOCK_SECONDS, thread_local=False):
            self.store.probe()
            for journal in self.unfinished():
                try:
                    if self._deliver(journal):
                        yield journal.id
                except Exception as error:  # MLflow and its dependencies raise errors of many kinds
                    self.store.probe()
                    failures.append(f"{journal.id}: {without_passwords(str(error)):.300}")
        if failures:
            raise UserError(f"MLflow at {self.store.shown} did not accept {failures[0]}")

    def unfinished(self) -> list[Journal]:
        """The journals of all runs, except those that this object has delivered up to their end."""
        folders = (path.parent for path in sorted(self.folder.glob("*/events.jsonl")))
        return [Journal(folder) for folder in folders if folder.name not in self._complete]

    @cached_property
    def client(self) -> Any:
        """MLflow's client. An SQLite store is created if it does not exist."""
        os.environ.update({**SETTINGS, **os.environ})
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.ERROR)
        database = self.store.database
        if database and not database.exists():
            # A new database gets its name only when complete. MLflow cannot repair it if its creation is interrupted.
            unfinished = database.with_name(f"{database.name}.new")
            for leftover in database.parent.glob(f"{unfinished.name}*"):
                leftover.unlink()
            MlflowClient(f"sqlite:///{unfinished}").search_experiments(max_results=1)
            unfinished.replace(database)
        return MlflowClient(self.store.uri)

    def _deliver(self, journal: Journal) -> bool:
        """Deliver the events of one journal that are not yet in the store. Returns whether the store took any."""
        is_written = journal.is_written()  # before reading: the run may write its last events while we read
        start = next((event for event, _ in journal.read()), {})
        run = self._deliver_news(journal, start) if start.get("event") == "start" else None
        if run and is_written and self._measure and journal.id not in self._measured:
            self._measured.add(journal.id)
            if start["host"] == socket.gethostname():
                from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

                SystemMetricsMonitor(run, resume_logging=True, tracking_uri=self.store.uri).start()
        if not is_written:
            self._complete.add(journal.id)
        return bool(run)

    def _deliver_news(self, journal: Journal, start: Mapping[str, Any]) -> str | None:
        """Deliver new events. Returns MLflow's id of the run, or None if nothing is new or the run was deleted."""
        name = start["experiment"]
        experiment = self.client.get_experiment_by_name(name)
        if experiment is None:
            location, tags = self.store.artifacts and self.store.artifacts.as_uri(), start.get("experiment_tags")
            self.client.create_experiment(name, artifact_location=location, tags=tags)
            experiment = self.client.get_experiment_by_name(name)
        position = journal.folder / f"delivered-{experiment.experiment_id}-{experiment.creation_time}"
        news = list(journal.read(int(position.read_text()) if position.exists() else 0))
        if not news:
            return None
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
            _logger.warning("note: restored MLflow's experiment %s, which had been deleted: it has new runs", name)
        run = _Run(self.client, experiment.experiment_id, start, journal.folder)
        if run.id is not None:
            run.log([event for event, _ in news])
            write_text(position, str(news[-1][1]))
        return run.id


class _Run:
    """The run of a journal in MLflow and, if it belongs to a group, the MLflow run that represents the group. Missing
    runs are created. `id` is MLflow's id of the journal's run, or None if somebody has deleted this run in MLflow.
    """

    def __init__(self, client: Any, experiment: str, start: Mapping[str, Any], folder: Path) -> None:
        self._client, self._experiment, self._name, self._folder = client, experiment, start["id"], folder
        self._group, tags, group = None, {"tracking_run": start["id"], **start["tags"]}, start.get("group")
        if group:
            of_group = {"group_id": group["id"], "group": group["name"], "stage": "(all)", **(group.get("tags") or {})}
            self._group = self._find("group_id", of_group, group["name"], start["time"])
            tags |= {"group": group["name"], "mlflow.parentRunId": self._group or ""}
        self.id = self._find("tracking_run", tags, start["name"], start["time"])

    def log(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Log events. Metrics, parameters and tags are sent in batches."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

        batches: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for event in events:
            with self._unless_refused(event["event"]):
                run = self._group if event.get("of_group") else self.id
                if event.get("of_run"):
                    run = self._find("tracking_run", {"tracking_run": event["of_run"]})
                if run is None:  # MLflow never had this run, or somebody has deleted it there
                    continue
                for key, value in event.get("values", {}).items():
                    batches[run, "metrics"].append(Metric(_key(key), float(value), event["time"], event["step"]))
                for kind, entity in (("params", Param), ("tags", RunTag)):
                    batches[run, kind] += [entity(_key(key), str(value)) for key, value in event.get(kind, {}).items()]
                match event["event"]:
                    case "dataset":
                        data = Dataset(event["name"], event["sha256"][:DIGEST_LENGTH], "local", event["label"])
                        context = InputTag("mlflow.data.context", event.get("context", "training"))
                        self._client.log_inputs(run, [DatasetInput(data, [context])])
                        self._client.set_tag(run, f"data.{event['name']}.sha256", event["sha256"])
                    case "artifact":
                        self._client.log_artifact(run, str(self._folder / event["file"]), event["folder"] or None)
                    case "end":
                        self._client.set_terminated(run, event["status"], event["time"])
                        if self._group:  # the group ends with its latest run, and fails if any run fails
                            group = self._client.get_run(self._group).info
                            failed = event["status"] != "FINISHED" or group.status == "FAILED"
                            until = max(event["time"], group.end_time or 0)
                            self._client.set_terminated(self._group, "FAILED" if failed else "FINISHED", until)
        for (run, kind), batch in batches.items():
            for begin in range(0, len(batch), BATCH):
                with self._unless_refused(kind):
                    self._client.log_batch(run, **{kind: batch[begin : begin + BATCH]})

    def _find(self, key: str, tags: Mapping[str, Any], name: str = "", time: int | None = None) -> str | None:
        """MLflow's id of the run whose tag `key` is `tags[key]`; None if the run is missing or was deleted in MLflow.
        If `time` (the start of the run, in ms since 1970) is given, a missing run is created with `tags` and `name`.
        """
        from mlflow.entities import ViewType

        query = f"tags.{key} = '{tags[key]}'"
        [*runs] = self._client.search_runs([self._experiment], query, ViewType.ALL, max_results=1)
        if not runs and time is not None:
            texts = {_key(tag): str(value) for tag, value in tags.items()}
            runs = [self._client.create_run(self._experiment, time, texts, run_name=name)]
        return runs[0].info.run_id if runs and runs[0].info.lifecycle_stage == "active" else None

    @contextmanager
    def _unless_refused(self, what: str) -> Iterator[None]:
        """Skip, with a warning, malformed data and data that the store would never accept. Raise all other errors."""
        try:
            yield
        except Exception as error:
            if not isinstance(error, ODD) and getattr(error, "error_code", "") not in REFUSALS:
                raise
            told = without_passwords(str(error))
            _logger.warning("warning: MLflow cannot take '%s' of %s: %.200s", what, self._name, told)


def _key(name: str) -> str:
    """The name, with characters that MLflow does not allow replaced by `_`."""
    return re.sub(r"[^\w\-./: ]", "_", name)


if __name__ == "__main__":
    os.nice(5)  # training has priority
    place, artifacts = sys.argv[1:]
    uri = os.environ["MLFLOW_TRACKING_URI"]
    deliver_until_idle(Path(place), Store(uri, Path(artifacts) if artifacts else None))
