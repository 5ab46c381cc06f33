"""Replaying journals into a real MLflow store: complete, and never twice."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.locks import locked
from pipeline.tracking import Group, Store, TrackedRun, sync
from pipeline.tracking.journal import Journal
from pipeline.tracking.replay import Replayer
from pipeline.tracking.store import Connection, RefusedError, UnreachableError
from pipeline.tracking.sync import StoreError


def make_run(folder: Path, **settings: Any) -> TrackedRun:
    return TrackedRun(folder, experiment="capsules/quick", name="train@x", **settings)


def test_everything_arrives_and_a_second_replay_changes_nothing(tmp_path: Path, store: Store, reader: Any) -> None:
    figure = tmp_path / "curve.svg"
    figure.write_text("<svg/>")
    many = {f"setting-{number}": number for number in range(250)}
    run = make_run(tmp_path / "runs", params={"training": {"epochs": 2}, **many}, tags={"commit": "abc"})
    run.log_metrics({"bound": -3.0, "odd name!": math.nan, "up": math.inf}, 0)
    run.log_metrics({"bound": -2.0}, 1)
    run.log_dataset("digits", "digits (scikit-learn)", "cd" * 32)
    run.log_artifact(figure, "figures")
    run.finish()

    (first,) = sync(tmp_path / "runs", store)
    assert (first.run, first.events) == (run.id, 7)
    (second,) = sync(tmp_path / "runs", store)
    assert second.events == 0

    look = reader(store)
    (found,) = look.runs()
    assert (found.info.status, found.info.run_name) == ("FINISHED", "train@x")
    assert found.data.params == {"training.epochs": "2", **{key: str(value) for key, value in many.items()}}
    assert found.data.tags["commit"] == "abc"
    assert found.data.tags["tracking_run"] == run.id
    assert look.history(found, "bound") == [(0, -3.0), (1, -2.0)]
    assert math.isnan(found.data.metrics["odd name_"])
    assert found.inputs.dataset_inputs[0].dataset.name == "digits"
    assert found.data.tags["data.digits.sha256"] == "cd" * 32
    assert [file.path for file in look.client.list_artifacts(found.info.run_id, "figures")] == ["figures/curve.svg"]
    assert (tmp_path / "with a space" / "mlartifacts").is_dir()


def test_a_resumed_training_appends_to_the_same_mlflow_run(tmp_path: Path, store: Store, reader: Any) -> None:
    killed = make_run(tmp_path / "runs")
    killed.log_metrics({"bound": 0.0}, 0)
    killed._lock.release()  # as a kill would: no `end` is ever written
    list(sync(tmp_path / "runs", store))
    assert [run.info.status for run in reader(store).runs()] == ["KILLED"]

    again = make_run(tmp_path / "runs")
    assert again.resume(killed.id)
    again.log_metrics({"bound": 1.0}, 1)
    again.finish()
    list(sync(tmp_path / "runs", store))
    (found,) = reader(store).runs()
    assert found.info.status == "FINISHED"
    assert reader(store).history(found, "bound") == [(0, 0.0), (1, 1.0)]


def test_two_that_feed_one_journal_take_turns_and_deliver_nothing_twice(
    tmp_path: Path, store: Store, reader: Any
) -> None:
    """A feeder that outlives its run must not end, out of its own memory, what a continuation has begun anew."""
    killed = make_run(tmp_path / "runs")
    killed.log_metrics({"bound": 0.0}, 0)
    lingering = Replayer(Journal(killed.path), Connection(store))
    lingering.catch_up()
    killed.finish("KILLED")

    again = make_run(tmp_path / "runs")
    assert again.resume(killed.id)
    follower = Replayer(Journal(killed.path), Connection(store))
    follower.catch_up()
    before = lingering.delivered
    with locked(killed.path / "delivery.lock"):
        waiting = threading.Thread(target=lingering.catch_up)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
    waiting.join(30)
    assert not waiting.is_alive()
    assert lingering.delivered == before
    assert [run.info.status for run in reader(store).runs()] == ["RUNNING"]
    again.finish()
    lingering.catch_up()
    follower.catch_up()
    (found,) = reader(store).runs()
    assert found.info.status == "FINISHED"

    reader(store).client.delete_run(found.info.run_id)
    Replayer(Journal(killed.path), Connection(store)).catch_up()
    lingering.catch_up()
    (anew,) = reader(store).runs()
    assert (anew.info.status, anew.data.metrics) == ("FINISHED", {"bound": 0.0})


def test_a_reproduction_ends_with_its_last_run_and_stays_failed_in_whatever_order_they_arrive(
    tmp_path: Path, store: Store, reader: Any
) -> None:
    connection = Connection(store)
    connection.open()
    start = {"id": "a", "experiment": "capsules/quick", "name": "train@x", "time": 1000, "tags": {}}
    start["group"] = {"id": "host-1-2", "name": "reproduction"}
    run = connection.open_run(start)
    for status, time in (("FAILED", 3000), ("FINISHED", 2000)):
        connection.set_ended(run, start, status, time)
    (parent,) = (each for each in reader(store).runs() if each.data.tags.get("group_id"))
    assert (parent.info.status, parent.info.end_time) == ("FAILED", 3000)


def test_runs_of_one_reproduction_share_a_parent(tmp_path: Path, store: Store, reader: Any) -> None:
    for status in ("FINISHED", "FAILED"):
        make_run(tmp_path / "runs", group=Group("host-1-2", "reproduction")).finish(status)  # type: ignore[arg-type]
    make_run(tmp_path / "runs").finish()
    list(sync(tmp_path / "runs", store))
    runs = reader(store).runs()
    (parent,) = (run for run in runs if run.data.tags.get("group_id"))
    children = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert len(runs) == 4
    assert [child.data.tags["group"] for child in children] == ["reproduction"] * 2
    assert parent.info.status == "FAILED"


def test_a_deleted_store_is_filled_again(tmp_path: Path, store: Store, filled_database: Path, reader: Any) -> None:
    run = make_run(tmp_path / "runs")
    run.log_metrics({"bound": 0.5}, 0)
    run.finish()
    list(sync(tmp_path / "runs", store))
    other = Store(store.uri.replace("mlflow.db", "second.db"), store.lock, store.artifacts)
    Path(other.uri.removeprefix("sqlite:///")).write_bytes(filled_database.read_bytes())
    # The same journal, its note now speaking of a store that knows nothing of it.
    (run.path / f"{other.key}.json").write_bytes((run.path / f"{store.key}.json").read_bytes())
    (synced,) = sync(tmp_path / "runs", other)
    assert synced.events == 4
    (found,) = reader(other).runs()
    assert found.data.metrics == {"bound": 0.5}


def test_a_run_still_being_written_is_left_alone(tmp_path: Path, store: Store) -> None:
    run = make_run(tmp_path / "runs")
    run.log_metrics({"bound": 0.5}, 0)
    assert [each.events for each in sync(tmp_path / "runs", store)] == [-1]


def test_sync_with_a_dead_server_says_so_at_once(tmp_path: Path) -> None:
    dead = Store("http://user:secret@127.0.0.1:9", tmp_path / "lock")
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9 does not answer: no connection") as caught:
        list(sync(tmp_path, dead))
    assert "secret" not in str(caught.value)


class FakeConnection:
    """Takes everything, remembers it, and fails where it is told to."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.taken: list[Any] = []
        self.failures: dict[str, Exception] = {}

    def open(self) -> None:
        if error := self.failures.pop("open", None):
            raise error

    def has_run(self, run_id: str) -> bool:
        return True

    def open_run(self, start: dict[str, Any]) -> str:
        self.taken.append("run")
        return "run-1"

    def __getattr__(self, name: str) -> Any:
        def take(run_id: str, what: Any, *more: Any) -> None:
            if error := self.failures.pop(name, None):
                raise error
            self.taken.append([event["step"] for event in what] if name == "log_metrics" else name)

        return take


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    run = make_run(tmp_path)
    run.log_metrics({"bound": 0.0}, 0)
    run.log_metrics({"bound": 0.0}, 1)
    run.log_tags({"a": 1})
    run.log_metrics({"bound": 0.0}, 2)
    run.finish()
    return Journal(run.path)


WHOLE = ["run", "log_params", [0, 1], "log_tags", [2], "log_tags", "set_ended"]


@pytest.mark.parametrize("failing", ["open", "log_params", "log_metrics", "log_tags", "set_ended"])
def test_a_failure_anywhere_loses_nothing_and_repeats_nothing(tmp_path: Path, journal: Journal, failing: str) -> None:
    connection: Any = FakeConnection(Store("http://x", tmp_path / "lock"))
    connection.failures[failing] = UnreachableError("gone")
    with pytest.raises(UnreachableError):
        Replayer(journal, connection).catch_up()
    Replayer(journal, connection).catch_up()  # as another process would, from the notes alone
    assert connection.taken == WHOLE
    Replayer(journal, connection).catch_up()
    assert connection.taken == WHOLE


def test_what_the_store_refuses_holds_up_nothing_else(
    tmp_path: Path, journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    connection: Any = FakeConnection(Store("http://x", tmp_path / "lock"))
    connection.failures |= {"log_params": RefusedError("too odd"), "log_metrics": RefusedError("too odd")}
    Replayer(journal, connection).catch_up()
    assert connection.taken == [each for each in WHOLE if each not in ("log_params", [0, 1])]
    assert caplog.text.count("MLflow refused") == 2


def test_a_damaged_note_only_means_starting_over(tmp_path: Path, journal: Journal) -> None:
    connection: Any = FakeConnection(Store("http://x", tmp_path / "lock"))
    Replayer(journal, connection).catch_up()
    (journal.folder / f"{connection.store.key}.json").write_text('{"run_id": ')
    Replayer(journal, connection).catch_up()
    assert connection.taken == WHOLE * 2
