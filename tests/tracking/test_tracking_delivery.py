"""Replaying journals into a real MLflow store: complete, and never twice."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import Delivery, Group, Store, TrackedRun
from pipeline.tracking.journal import Event, Journal
from pipeline.tracking.store import Connection, StoreError, UnreachableError


def sync(folder: Path, store: Store) -> list[tuple[str, int]]:
    """As `sync-mlflow` does: one pass by a process of its own."""
    return list(Delivery(folder, store).run())


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

    assert sync(tmp_path / "runs", store) == [(run.id, 7)]
    assert sync(tmp_path / "runs", store) == [(run.id, 0)]

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
    killed._journal.writer.release()  # as a kill would: no `end` is ever written
    sync(tmp_path / "runs", store)
    assert [run.info.status for run in reader(store).runs()] == ["KILLED"]

    again = make_run(tmp_path / "runs")
    assert again.resume(killed.id)
    again.log_metrics({"bound": 1.0}, 1)
    again.finish()
    sync(tmp_path / "runs", store)
    (found,) = reader(store).runs()
    assert found.info.status == "FINISHED"
    assert reader(store).history(found, "bound") == [(0, 0.0), (1, 1.0)]


def test_two_that_deliver_one_journal_take_turns_and_deliver_nothing_twice(
    tmp_path: Path, store: Store, reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A drainer must not end, out of its own memory, what a continuation has begun anew; nor get in the way of sync."""
    killed = make_run(tmp_path / "runs")
    killed.log_metrics({"bound": 0.0}, 0)
    drainer = Delivery(tmp_path / "runs", store)
    list(drainer.run())
    killed.finish("KILLED")

    again = make_run(tmp_path / "runs")
    assert again.resume(killed.id)
    sync(tmp_path / "runs", store)
    delivered: list[tuple[str, int]] = []
    passing = Delivery(tmp_path / "runs", store).run()
    next(passing)  # in the middle of its pass
    waiting = threading.Thread(target=lambda: delivered.extend(drainer.run()))
    waiting.start()
    waiting.join(1.5)
    assert waiting.is_alive()
    assert "another process delivers to MLflow" in caplog.text
    assert list(passing) == []
    waiting.join(30)
    assert not waiting.is_alive()
    assert delivered == [(killed.id, 0)]
    assert [run.info.status for run in reader(store).runs()] == ["RUNNING"]
    again.finish()
    list(drainer.run())
    sync(tmp_path / "runs", store)
    (found,) = reader(store).runs()
    assert found.info.status == "FINISHED"

    reader(store).client.delete_run(found.info.run_id)
    sync(tmp_path / "runs", store)
    list(drainer.run())
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
        connection.log(run, start, [{"event": "end", "status": status, "time": time}], tmp_path)
    (parent,) = (each for each in reader(store).runs() if each.data.tags.get("group_id"))
    assert (parent.info.status, parent.info.end_time) == ("FAILED", 3000)


def test_runs_of_one_reproduction_share_a_parent(tmp_path: Path, store: Store, reader: Any) -> None:
    for status in ("FINISHED", "FAILED"):
        make_run(tmp_path / "runs", group=Group("host-1-2", "reproduction")).finish(status)  # type: ignore[arg-type]
    make_run(tmp_path / "runs").finish()
    sync(tmp_path / "runs", store)
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
    sync(tmp_path / "runs", store)
    other = Store(store.uri.replace("mlflow.db", "second.db"), store.artifacts)
    Path(other.uri.removeprefix("sqlite:///")).write_bytes(filled_database.read_bytes())
    # The same journal, its note now speaking of a store that knows nothing of it.
    (run.path / f"{other.key}.json").write_bytes((run.path / f"{store.key}.json").read_bytes())
    assert sync(tmp_path / "runs", other) == [(run.id, 4)]
    (found,) = reader(other).runs()
    assert found.data.metrics == {"bound": 0.5}


def test_several_stores_each_get_everything(tmp_path: Path, store: Store, filled_database: Path, reader: Any) -> None:
    other = Store(store.uri.replace("mlflow.db", "second.db"), store.artifacts)
    Path(other.uri.removeprefix("sqlite:///")).write_bytes(filled_database.read_bytes())
    run = make_run(tmp_path / "runs")
    run.log_metrics({"bound": 0.5}, 0)
    sync(tmp_path / "runs", store)
    run.finish()
    assert sync(tmp_path / "runs", other) == [(run.id, 4)]
    assert sync(tmp_path / "runs", store) == [(run.id, 2)]
    for each in (store, other):
        (found,) = reader(each).runs()
        assert (found.data.metrics, found.info.status) == ({"bound": 0.5}, "FINISHED")


def test_a_run_still_being_written_is_delivered_so_far_and_not_ended(tmp_path: Path, store: Store, reader: Any) -> None:
    run = make_run(tmp_path / "runs")
    run.log_metrics({"bound": 0.5}, 0)
    assert sync(tmp_path / "runs", store) == [(run.id, 2)]
    (found,) = reader(store).runs()
    assert (found.info.status, found.data.metrics) == ("RUNNING", {"bound": 0.5})
    run.finish()
    sync(tmp_path / "runs", store)
    assert [each.info.status for each in reader(store).runs()] == ["FINISHED"]


def test_a_run_that_died_is_killed_at_the_time_of_its_last_event(tmp_path: Path, store: Store, reader: Any) -> None:
    run = make_run(tmp_path / "runs")
    run.log_metrics({"bound": 0.5}, 0)
    sync(tmp_path / "runs", store)
    run._journal.writer.release()
    sync(tmp_path / "runs", store)
    *_, (last, _) = Journal(run.path).read()
    (found,) = reader(store).runs()
    assert (found.info.status, found.info.end_time) == ("KILLED", last["time"])


@pytest.mark.parametrize("place", ["first", "middle", "last", "last, half"])
def test_an_odd_line_keeps_back_neither_its_run_nor_the_others(
    tmp_path: Path, store: Store, reader: Any, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    odd, good = make_run(tmp_path / "runs"), make_run(tmp_path / "runs")
    for run in (odd, good):
        run.log_metrics({"bound": 0.5}, 0)
        run.finish()
    path = odd.path / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    where = {"first": 0, "middle": 2}.get(place, len(lines))
    lines.insert(where, '{"event": "met' if place == "last, half" else "[1, 2]\n")
    path.write_text("".join(lines))
    delivery = Delivery(tmp_path / "runs", store)
    assert sorted(delivery.run()) == sorted([(odd.id, 4), (good.id, 4)])
    warnings = caplog.text.count("not an event, skipped")
    assert (warnings > 0) == (place != "last, half")
    assert list(delivery.run()) == []
    assert caplog.text.count("not an event, skipped") == warnings, "once is enough"
    found = reader(store).runs()
    assert [(each.info.status, each.data.metrics) for each in found] == [("FINISHED", {"bound": 0.5})] * 2


def test_sync_with_a_dead_server_says_so_at_once(tmp_path: Path) -> None:
    dead = Store("http://user:secret@127.0.0.1:9")
    with pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9 does not answer: no connection") as caught:
        sync(tmp_path, dead)
    assert "secret" not in str(caught.value)


class FakeConnection:
    """Takes everything, remembers it, and fails once where it is told to."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.failures: dict[str, Exception] = {}

    def open(self) -> None:
        if error := self.failures.pop("open", None):
            raise error

    def probe(self) -> None:
        pass

    def has_run(self, run_id: str) -> bool:
        return True

    def open_run(self, start: Event) -> str:
        self.taken.append("run")
        return "run-1"

    def log(self, run_id: str, start: Event, events: list[Event], folder: Path) -> None:
        kind = events[0]["event"]
        if error := self.failures.pop(kind, None):
            raise error
        self.taken.append([event["step"] for event in events] if kind == "metrics" else kind)


def to_fake(folder: Path, connection: FakeConnection) -> list[tuple[str, int]]:
    delivery = Delivery(folder, Store("http://x"))
    delivery._connection = connection  # type: ignore[assignment]
    return list(delivery.run())


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    run = make_run(tmp_path)
    run.log_metrics({"bound": 0.0}, 0)
    run.log_metrics({"bound": 0.0}, 1)
    run.log_tags({"a": 1})
    run.log_metrics({"bound": 0.0}, 2)
    run.finish()
    return Journal(run.path)


WHOLE = ["run", "start", [0, 1], "tags", [2], "tags", "end"]


@pytest.mark.parametrize("failing", ["open", "start", "metrics", "tags", "end"])
def test_a_failure_anywhere_loses_nothing_and_repeats_nothing(tmp_path: Path, journal: Journal, failing: str) -> None:
    connection = FakeConnection()
    connection.failures[failing] = UnreachableError("gone")
    with pytest.raises(UnreachableError):
        to_fake(tmp_path, connection)
    to_fake(tmp_path, connection)  # as another process would, from the notes alone
    assert connection.taken == WHOLE
    to_fake(tmp_path, connection)
    assert connection.taken == WHOLE


def test_a_run_that_cannot_be_delivered_keeps_back_no_other(tmp_path: Path, journal: Journal) -> None:
    TrackedRun(tmp_path, experiment="capsules/quick", name="z: the later one").finish()
    connection = FakeConnection()
    connection.failures["metrics"] = OverflowError("too large")
    with pytest.raises(StoreError, match=f"did not accept {journal.id}: too large"):
        to_fake(tmp_path, connection)
    assert connection.taken == ["run", "start", "run", "start", "tags", "end"]


class PickyClient:
    """MLflow's client, refusing some metrics as MLflow does."""

    def __init__(self) -> None:
        self.taken: list[Any] = []

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        if any(metric.key == "bad" for metric in metrics):
            error = ValueError("too odd")
            error.error_code = "INVALID_PARAMETER_VALUE"  # type: ignore[attr-defined]
            raise error
        self.taken += [metric.step for metric in metrics] or ["tags"]


def test_what_the_store_refuses_keeps_back_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection(Store("http://x"))
    client = connection._client = PickyClient()
    start: Event = {"event": "start", "id": "a"}
    events: list[Event] = [
        {"event": "metrics", "time": 1, "step": step, "values": {name: 1.0}}
        for step, name in enumerate(["good", "bad", "good"])
    ]
    connection.log("run-1", start, events, tmp_path)
    connection.log("run-1", start, [{"event": "tags", "time": 1, "tags": {"a": 1}}], tmp_path)
    assert client.taken == [0, 2, "tags"]
    assert caplog.text.count("MLflow refused") == 1


def test_a_lost_artifact_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection(Store("http://x"))
    lost = {"event": "artifact", "time": 1, "file": "artifacts/ab/gone.svg", "folder": ""}
    connection.log("run-1", {"id": "a"}, [lost], tmp_path)
    assert "gone.svg of a is gone" in caplog.text


@pytest.mark.parametrize("note", ['{"run_id": ', "[]", '{"run_id": "run-1", "offset": 100}'])
def test_a_damaged_or_older_note_only_means_starting_over(tmp_path: Path, journal: Journal, note: str) -> None:
    connection = FakeConnection()
    to_fake(tmp_path, connection)
    (journal.folder / f"{Store('http://x').key}.json").write_text(note)
    to_fake(tmp_path, connection)
    assert connection.taken == WHOLE * 2


def test_no_message_has_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's messages have the whole address of the request that failed."""
    store = Store("http://grace:secret@127.0.0.1:9/mlflow")
    assert store.shown == "http://127.0.0.1:9/mlflow"

    def fail(connection: Connection) -> None:
        raise RuntimeError(f"API request to {store.uri}/api/2.0/runs and to https://a:secret@b/ failed: a@b")

    monkeypatch.setattr(Connection, "open", fail)
    with pytest.raises(StoreError) as raised:
        sync(tmp_path, store)
    assert "API request to http://127.0.0.1:9/mlflow/api/2.0/runs and to https://b/ failed: a@b" in str(raised.value)
    assert "secret" not in str(raised.value)
