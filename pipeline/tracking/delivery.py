"""Updates a store from all journals of a folder, each from where the last delivery stopped.

The position in a journal is stored next to it, in `<store key>.json`, written after each delivery. Events that were
delivered after the last stored position are delivered again. This makes no duplicates in MLflow, because values have
the journal's own time: delivery is idempotent.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from filelock import FileLock

from pipeline.files import write_json
from pipeline.tracking.journal import Event, Journal
from pipeline.tracking.sampling import Sampler
from pipeline.tracking.store import Connection, Store, StoreError, UnreachableError, shorten

_logger = logging.getLogger(__name__)


@dataclass
class _Note:
    """What a store has already: the run's id there, the journal's bytes, the last event and its time (milliseconds)."""

    run_id: str
    offset: int
    last: str
    time: int

    @classmethod
    def read(cls, path: Path) -> _Note:
        """The note in a file; an empty one if it is missing or damaged: delivery then starts from the beginning."""
        try:
            note = cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return _NOTHING
        kinds = (note.run_id, str), (note.offset, int), (note.last, str), (note.time, int)
        return note if all(isinstance(value, kind) for value, kind in kinds) and note.offset >= 0 else _NOTHING

    def write(self, path: Path) -> _Note:
        """Write this note to a file, atomically."""
        write_json(path, asdict(self))
        return self


_NOTHING = _Note("", 0, "", 0)


def _batch(pair: tuple[Event, int]) -> object:
    """A key by which consecutive metrics of one run are delivered in one batch, and every other event separately."""
    event, end = pair
    return ("metrics", bool(event.get("of_group"))) if event["event"] == "metrics" else end


class Delivery:
    """Delivers the journals under `folder` to `store`, one process at a time.

    Args:
        sampler: measures the processes of runs that are being written, which is not in their journals.
    """

    def __init__(self, folder: Path, store: Store, sampler: Sampler | None = None) -> None:
        self.folder, self.store, self._sampler = folder, store, sampler
        self._connection = Connection(store)
        self._lock = FileLock(folder / f"delivery-{store.key}.lock", thread_local=False)
        self._known: set[str] = set()  # runs that the store is known to have
        self._complete: dict[str, int] = {}  # sizes of journals that have ended and are fully delivered
        self._sizes: dict[str, int] = {}
        self._writers: dict[str, Event] = {}  # the events by which later processes continued runs

    def run(self) -> Iterator[tuple[str, int]]:
        """Deliver all new events, oldest run first; yield each run's id and its number of new events.

        A run whose process is gone without an end event is marked as killed. A run that fails does not stop the others.

        Raises:
            StoreError: the store does not answer or rejected a run, or MLflow is not installed.
        """
        failure: StoreError | None = None
        with self._exclusive():
            with self._explained("the connection"):
                self._connection.open()
            for journal in self._journals():
                if self._is_complete(journal):
                    continue
                try:
                    with self._explained(journal.id):
                        events = self._deliver(journal)
                    yield journal.id, events
                except UnreachableError:
                    raise
                except StoreError as error:
                    self._connection.probe()
                    failure = failure or error
        if failure is not None:
            raise failure

    def has_news(self) -> bool:
        """Whether anything was written since the last call, or a run is still being written."""
        journals = self._journals()
        before, self._sizes = self._sizes, {journal.id: journal.size() for journal in journals}
        return self._sizes != before or any(each.is_written() for each in journals if not self._is_complete(each))

    def _journals(self) -> list[Journal]:
        return [Journal(path.parent) for path in sorted(self.folder.glob("*/events.jsonl")) if path.is_file()]

    def _is_complete(self, journal: Journal) -> bool:
        return self._complete.get(journal.id) == journal.size()

    def _deliver(self, journal: Journal) -> int:
        """Deliver the events of one journal that are not yet in the store; return their number."""
        is_written, size = journal.is_written(), journal.size()  # before reading, so that no event is missed
        start = next((event for event, _ in journal.read() if event["event"] == "start"), None)
        if start is None:
            return 0
        path = journal.folder / f"{self.store.key}.json"
        note = _Note.read(path)
        if note.run_id not in self._known and not (note.run_id and self._connection.has_run(note.run_id)):
            # first delivery, or the store was deleted since
            note = _Note(self._connection.open_run(start), 0, "start", start["time"]).write(path)
        if note.offset > size:  # the journal was replaced by a shorter one
            note = _Note(note.run_id, 0, "start", start["time"])
        self._known.add(note.run_id)
        delivered = 0
        for _, pairs in groupby(journal.read(note.offset), _batch):
            events, offsets = zip(*pairs, strict=True)
            self._connection.log(note.run_id, start, list(events), journal.folder)
            if events[0]["event"] == "resume":
                self._writers[journal.id] = events[0]
            note = _Note(note.run_id, offsets[-1], events[-1]["event"], events[-1]["time"]).write(path)
            delivered += len(events)
        if is_written and (values := self._sample(journal, start)):
            now = int(time.time() * 1000)
            sampled = {"event": "metrics", "time": now, "step": (now - start["time"]) // 1000, "values": values}
            self._connection.log(note.run_id, start, [sampled], journal.folder)
        if not is_written:
            if note.last != "end":
                killed = {"event": "end", "status": "KILLED", "time": note.time}
                self._connection.log(note.run_id, start, [killed], journal.folder)
                _Note(note.run_id, note.offset, "end", note.time).write(path)
            self._complete[journal.id] = size
        return delivered

    def _sample(self, journal: Journal, start: Event) -> dict[str, float]:
        return {} if self._sampler is None else self._sampler.sample(journal.id, self._writers.get(journal.id, start))

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock on deliveries to this store; warn if another process has it."""
        try:
            self._lock.acquire(timeout=1.0)
        except TimeoutError:
            _logger.warning("note: another process delivers to MLflow at %s: waiting for it", self.store.shown)
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Turn any exception of MLflow and its dependencies into `StoreError`."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(f"MLflow at {self.store.shown} did not accept {what}: {shorten(error, 300)}") from error
