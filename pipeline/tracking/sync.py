"""Replaying into MLflow whatever an outage, or a machine without MLflow, left in the journals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError
from pipeline.locks import FileLock
from pipeline.tracking.journal import Journal
from pipeline.tracking.replay import Replayer
from pipeline.tracking.store import Connection, Store, UnreachableError


class StoreError(UserError):
    """The tracking store could not be reached or did not take what it was given."""


@dataclass(frozen=True)
class Synced:
    """One run that was looked at: how many events went out; -1 where its process is still running."""

    run: str
    events: int


def sync(folder: Path, store: Store) -> Iterator[Synced]:
    """Bring `store` up to date with every run under `folder`, oldest first, and yield what was done for each.

    Runs whose process is gone without a word are marked as killed. Doing it twice changes nothing.

    Raises:
        StoreError: the store does not answer, or MLflow is not installed. What was delivered until then stays noted.
    """
    connection = Connection(store)
    with _explained(store, "the connection"):
        connection.open()
    for path in sorted(folder.glob("*/events.jsonl")):
        journal = Journal(path.parent)
        lock = FileLock(path.parent / "writer.lock")
        if not lock.acquire():
            yield Synced(path.parent.name, -1)
            continue
        replayer = Replayer(journal, connection)
        try:
            with _explained(store, path.parent.name):
                replayer.catch_up()
                replayer.end_as_killed()
        finally:
            lock.release()
        yield Synced(path.parent.name, replayer.delivered)


@contextmanager
def _explained(store: Store, what: str) -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise StoreError("MLflow is not installed here: pip install mlflow") from None
    except UnreachableError as error:
        raise StoreError(f"MLflow at {store.shown} does not answer: {error}") from None
    except Exception as error:  # whatever MLflow, and what lies under it, may raise
        message = " ".join(str(error).split())[:300]
        raise StoreError(f"MLflow at {store.shown} did not take {what}: {message}") from error
