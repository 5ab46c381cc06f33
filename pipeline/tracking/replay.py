"""Feeding a journal into MLflow, from where the last replay stopped, as often as wanted.

How far a store has got lies beside the journal, in `<store key>.json`, written after each delivery. What was delivered
but not yet noted is delivered again, which MLflow takes without duplicates: values carry the journal's own time.
Several processes may feed one journal: the feeder of a run that has just ended, `sync`, the feeder of its continuation.
They take turns, and each goes on from the common note.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from pipeline.files import write_json
from pipeline.locks import locked
from pipeline.tracking.journal import Event, Journal
from pipeline.tracking.store import Connection, RefusedError

_logger = logging.getLogger(__name__)

EVENTS_PER_DELIVERY = 500


class Replayer:
    """Brings one store up to date with one journal."""

    def __init__(self, journal: Journal, connection: Connection) -> None:
        self._journal = journal
        self._connection = connection
        self._note = journal.folder / f"{connection.store.key}.json"
        self._start: Event = {}
        self._run_id = ""
        self._offset = 0
        self.delivered = 0

    def catch_up(self) -> None:
        """Deliver every complete event that is not yet in the store.

        Raises:
            UnreachableError, ImportError, OSError, MLflow's own errors: the store could not take them now.
        """
        self._connection.open()
        if not self._journal.size():
            return
        with locked(self._journal.folder / "delivery.lock"):
            self._catch_up()

    def _catch_up(self) -> None:
        note = self._read_note()
        if self._run_id and note["run_id"] == self._run_id:
            self._offset = max(self._offset, note["offset"])
        elif not self._find_run(note):
            return
        metrics: list[Event] = []
        reached = self._offset
        for event, offset in self._journal.read(self._offset):
            is_metrics = event["event"] == "metrics"
            if not is_metrics or len(metrics) == EVENTS_PER_DELIVERY:
                self._deliver_metrics(metrics, reached)
                metrics = []
            if is_metrics:
                metrics.append(event)
            else:
                self._deliver(event)
                self._advance(offset)
            reached = offset
        self._deliver_metrics(metrics, reached)

    def end_as_killed(self) -> None:
        """Mark a run whose process is gone, and which never said how it ended."""
        last = None
        for event, _ in self._journal.read():
            last = event
        if self._run_id and last is not None and last["event"] != "end":
            self._connection.set_ended(self._run_id, self._start, "KILLED", last["time"])

    def _find_run(self, note: dict[str, Any]) -> bool:
        """Learn the run's id in the store, creating the run if need be; False while the journal is empty."""
        self._start = next((event for event, _ in self._journal.read() if event["event"] == "start"), {})
        if not self._start:
            return False
        if note["run_id"] and self._connection.has_run(note["run_id"]):
            self._run_id, self._offset = note["run_id"], note["offset"]
        else:  # the first time, or the store was deleted since: everything goes in (again)
            self._run_id, self._offset = self._connection.open_run(self._start), 0
            self._advance(0, events=0)
        return True

    def _deliver_metrics(self, events: list[Event], reached: int) -> None:
        if not events:
            return
        try:
            self._connection.log_metrics(self._run_id, events)
        except RefusedError as error:
            _logger.warning("MLflow refused metrics of %s: %s", self._start["id"], error)
        self._advance(reached, len(events))

    def _deliver(self, event: Event) -> None:
        run_id, connection = self._run_id, self._connection
        try:
            match event["event"]:
                case "start":
                    connection.log_params(run_id, event["params"])
                case "resume":
                    connection.set_running(run_id)
                case "tags":
                    connection.log_tags(run_id, event["tags"])
                case "dataset":
                    connection.log_dataset(run_id, event)
                case "artifact":
                    path = self._journal.folder / event["file"]
                    if path.exists():
                        connection.log_artifact(run_id, path, event["folder"])
                    else:
                        _logger.warning("artifact %s of %s is gone: not sent to MLflow", path.name, self._start["id"])
                case "end":
                    connection.set_ended(run_id, self._start, event["status"], event["time"])
        except RefusedError as error:
            # Nothing that comes after must wait for an entry that will never be taken.
            _logger.warning("MLflow refused '%s' of %s: %s", event["event"], self._start["id"], error)

    def _advance(self, offset: int, events: int = 1) -> None:
        self._offset = offset
        self.delivered += events
        write_json(self._note, {"run_id": self._run_id, "offset": offset})

    def _read_note(self) -> dict[str, Any]:
        try:
            note = json.loads(self._note.read_text())
            return {"run_id": str(note["run_id"]), "offset": int(note["offset"])}
        except (OSError, ValueError, KeyError, TypeError):
            return {"run_id": "", "offset": 0}
