"""Delivering runs that are under way, by the drainer: outages, deaths, and many at once."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.tracking import Delivery, Store, TrackedRun
from pipeline.tracking import drainer as drainer_module
from pipeline.tracking.drainer import IDLE_SECONDS, Drainer, DrainerStarter, drainer_lock, drainer_log
from pipeline.tracking.store import UnreachableError

ROOT = Path(__file__).parents[2]
WARNING_SECONDS = 10.0

# A training that logs for `seconds`; with `end=no` it is stuck after its last entry.
SCRIPT = """
import logging, sys, time
from pathlib import Path
from pipeline.tracking import Group, Store, TrackedRun
folder, uri, seconds, end = sys.argv[1:]
store = Store(uri, Path(folder).parent / "mlartifacts")
begun = time.monotonic()
run = TrackedRun(Path(folder), experiment="capsules/quick", name="train@x", params={"epochs": 5}, store=store,
                 group=Group("host-1-1", "reproduction"))
for step in range(5):
    run.log_metrics({"bound": step}, step)
    time.sleep(float(seconds) / 5)
while end == "no":
    print("trained", flush=True)
    time.sleep(60)
run.finish()
print("seconds", time.monotonic() - begun, "mlflow" in sys.modules, flush=True)
"""


@dataclass
class Training:
    """A finished process and when it wrote its first warning, in seconds from its start."""

    code: int
    warnings: list[str]
    warned_after: float
    seconds: float
    imported_mlflow: bool


def start(folder: Path, uri: str, seconds: float = 0.5, end: str = "yes", source: Path = ROOT) -> subprocess.Popen[str]:
    arguments = [str(folder / "runs"), uri, str(seconds), end]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        cwd=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )


def train(folder: Path, uri: str, seconds: float = 0.5, source: Path = ROOT) -> Training:
    begun = time.monotonic()
    with start(folder, uri, seconds, source=source) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        errors = process.stderr
        warnings: list[tuple[float, str]] = []
        thread = threading.Thread(
            target=lambda: warnings.extend((time.monotonic() - begun, line) for line in errors if "warning" in line)
        )
        thread.start()
        _, taken, imported = process.stdout.read().split()
        thread.join()
    first = warnings[0][0] if warnings else float("inf")
    return Training(process.returncode, [line for _, line in warnings], first, float(taken), imported == "True")


def drainers(folder: Path) -> list[psutil.Process]:
    """Those that are at work on the runs of `folder`."""
    wanted = ["-m", "pipeline.tracking", str(folder / "runs")]
    found = psutil.process_iter(["cmdline", "status"])
    return [each for each in found if (each.info["cmdline"] or [])[1:4] == wanted]


@pytest.fixture(autouse=True)
def _no_drainer_stays(tmp_path: Path) -> Iterator[None]:
    yield
    for drainer in drainers(tmp_path):
        drainer.kill()


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def trainings(look: Any) -> list[Any]:
    return [run for run in look.runs() if run.info.run_name == "train@x"]


def statuses(look: Any) -> list[str]:
    return [run.info.status for run in trainings(look)]


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    held.append(server.accept()[0])
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        for each in held:
            each.close()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize("outage", ["closed port", "silent server"])
def test_an_outage_costs_one_warning_and_is_made_up_for_later(
    tmp_path: Path, store: Store, reader: Any, silent_server: str, outage: str
) -> None:
    uri = closed_port() if outage == "closed port" else silent_server
    training = train(tmp_path, uri, seconds=8.0)
    assert training.code == 0
    assert len(training.warnings) == 1, training.warnings
    assert "sync-mlflow" in training.warnings[0]
    assert training.warned_after < WARNING_SECONDS
    assert training.seconds < 9.0, "training must not wait for the server"

    assert [events for _, events in Delivery(tmp_path / "runs", store).run()] == [8]
    look = reader(store)
    (child,) = trainings(look)
    assert look.history(child, "bound") == [(step, float(step)) for step in range(5)]
    assert child.info.status == "FINISHED"
    assert [events for _, events in Delivery(tmp_path / "runs", store).run()] == [0]


def test_an_outage_that_ends_leaves_no_warning_for_later_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drainer = Drainer(tmp_path, Store("http://x"))
    outcomes = iter([UnreachableError("MLflow does not answer"), UnreachableError("MLflow does not answer"), None])

    def deliver(delivery: Delivery) -> Iterator[tuple[str, int]]:
        if error := next(outcomes):
            raise error
        yield "a run", 1

    monkeypatch.setattr(Delivery, "run", deliver)
    for expected in ("warning: MLflow does not answer.", "", ""):
        drainer._attempt()
        said = capsys.readouterr().err
        drainer_log(tmp_path, Store("http://x")).write_text(said)
        assert said.startswith(expected)
        assert bool(said) == bool(expected)


def test_what_is_written_arrives_while_the_run_goes_on_and_after_its_end(
    tmp_path: Path, store: Store, reader: Any
) -> None:
    process = start(tmp_path, store.uri, seconds=0.0, end="no")
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "trained\n"
        look = reader(store)
        wait_for(lambda: [run.data.metrics for run in trainings(look)] == [{"bound": 4.0}])
        assert statuses(look) == ["RUNNING"]
        process.kill()
    wait_for(lambda: statuses(look) == ["KILLED"])
    training = train(tmp_path, store.uri, seconds=0.0)
    assert training.seconds < 0.5, "no stage waits for MLflow"
    assert not training.imported_mlflow
    assert training.warnings == []
    wait_for(lambda: statuses(look) == ["KILLED", "FINISHED"])
    assert len(drainers(tmp_path)) == 1, "one for all runs"


def test_a_drainer_outlives_the_copy_of_the_code_that_started_it(tmp_path: Path, store: Store, reader: Any) -> None:
    """As DVC deletes the copy in which it ran an experiment: the code of the journals' home is what counts."""
    shutil.copytree(ROOT / "pipeline", tmp_path / "copy" / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "copy" / "pipeline" / "tracking" / "__main__.py").write_text("raise SystemExit('the copy is used')")
    (tmp_path / "pipeline").symlink_to(ROOT / "pipeline")
    train(tmp_path, store.uri, seconds=0.0, source=tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy")
    wait_for(lambda: statuses(reader(store)) == ["FINISHED"])


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, Any]]]:
    """Drainers that would have been started: their commands and settings."""
    calls: list[tuple[list[str], dict[str, Any]]] = []

    class FakeProcess:
        def __init__(self, command: list[str], **settings: Any) -> None:
            calls.append((command, settings))

    monkeypatch.setattr(subprocess, "Popen", FakeProcess)
    return calls


def test_the_address_which_may_hold_a_password_is_no_argument(tmp_path: Path, started: list[Any]) -> None:
    DrainerStarter(tmp_path, Store("http://user:secret@127.0.0.1:9")).ensure()
    ((command, settings),) = started
    assert "secret" not in " ".join(command)
    assert "secret" in settings["env"]["MLFLOW_TRACKING_URI"]


def test_a_drainer_is_started_where_none_runs_for_the_store(tmp_path: Path, started: list[Any]) -> None:
    store = Store("sqlite:///x")
    starter = DrainerStarter(tmp_path, store)
    with drainer_lock(tmp_path, store):
        starter.ensure()
        assert started == []
        DrainerStarter(tmp_path, Store("sqlite:///another")).ensure()
        assert len(started) == 1
    starter.ensure()
    assert len(started) == 2


def test_a_drainer_that_takes_time_to_start_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    starter = DrainerStarter(tmp_path, Store("sqlite:///x"))
    starter.ensure()
    now += IDLE_SECONDS - 1
    starter.ensure()
    assert len(started) == 1
    now += 2
    starter.ensure()
    assert len(started) == 2


def test_a_drainer_that_cannot_be_started_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(command: list[str], **settings: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", fail)
    run = TrackedRun(tmp_path, experiment="e", name="n", store=Store("sqlite:///x"))
    run.log_metrics({"bound": 0.0}, 0)
    run.finish()
    assert [record.getMessage() for record in caplog.records] == [
        "warning: cannot start MLflow's drainer: Cannot allocate memory. The run goes on."
    ]


def test_a_stage_passes_on_each_warning_once_and_nothing_else(
    tmp_path: Path, started: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    store = Store("sqlite:///x")
    log = drainer_log(tmp_path, store)
    log.write_text("warning: of an earlier drainer\n")
    run = TrackedRun(tmp_path, experiment="e", name="n", store=store)
    run.log_metrics({"bound": 0.0}, 0)
    log.write_text("Traceback\nwarning: MLflow refused 'tags'\n")
    for step in (1, 2):
        run.log_metrics({"bound": 0.0}, step)
    run.finish()
    assert [record.getMessage() for record in caplog.records] == ["warning: MLflow refused 'tags'"]
    assert len(started) == 1


def test_what_is_written_as_the_drainer_ends_is_still_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage found the lock held and started nothing: the drainer looks once more after releasing it."""
    monkeypatch.setattr(drainer_module, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(drainer_module, "POLL_SECONDS", 0.01)
    delivered: list[str] = []

    def deliver(delivery: Delivery) -> Iterator[tuple[str, int]]:
        delivered[:] = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir())
        yield from ()

    monkeypatch.setattr(Delivery, "run", deliver)
    TrackedRun(tmp_path / "runs", experiment="e", name="first").finish()
    drainer = Drainer(tmp_path / "runs", Store("sqlite:///x"))
    until_idle = drainer._run_until_idle
    late: list[str] = []

    def until_idle_then_written() -> None:
        until_idle()
        if not late:
            run = TrackedRun(tmp_path / "runs", experiment="e", name="second")
            run.finish()
            late.append(run.id)

    monkeypatch.setattr(drainer, "_run_until_idle", until_idle_then_written)
    drainer.run()
    assert late[0] in delivered


def test_a_second_drainer_ends_at_once(tmp_path: Path) -> None:
    store = Store("sqlite:///x")
    TrackedRun(tmp_path, experiment="e", name="n").finish()
    with drainer_lock(tmp_path, store):
        begun = time.monotonic()
        Drainer(tmp_path, store).run()
        assert time.monotonic() - begun < 5.0


def test_a_store_that_holds_on_is_given_up_though_nobody_can_be_told(tmp_path: Path) -> None:
    """MLflow may block for minutes, and the disk or terminal that takes the warning may be gone by then."""
    code = """
import runpy, sys, time
from pathlib import Path
from pipeline.tracking import Delivery, TrackedRun, drainer
drainer.HANG_SECONDS = 0.2
Delivery.run = lambda delivery: time.sleep(60)
TrackedRun(Path(sys.argv[1]), experiment="e", name="n").finish()
print("draining", flush=True)
runpy.run_module("pipeline.tracking", run_name="__main__")
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_TRACKING_URI": "sqlite:///x"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.close()
        assert process.stdout.readline() == b"draining\n"
        assert process.wait(30) == 1
    with drainer_lock(tmp_path, Store("sqlite:///x")).acquire(blocking=False):
        pass  # its lock went with it


@pytest.mark.slow
def test_several_first_users_at_once_make_one_whole_store(tmp_path: Path, reader: Any) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    processes = [start(tmp_path, uri) for _ in range(4)]
    complaints = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert complaints == [""] * 4
    wait_for((tmp_path / "mlflow.db").exists)
    look = reader(Store(uri))
    wait_for(lambda: statuses(look) == ["FINISHED"] * 4)
    (parent,) = (run for run in look.runs() if run.data.tags.get("group_id"))
    assert {run.data.tags["mlflow.parentRunId"] for run in trainings(look)} == {parent.info.run_id}
    assert all(run.data.metrics == {"bound": 4.0} for run in trainings(look))
    assert {experiment.name for experiment in look.client.search_experiments()} == {"Default", "capsules/quick"}


def test_a_store_whose_maker_was_killed_half_way_is_made_anew(tmp_path: Path, filled_database: Path) -> None:
    database = tmp_path / "mlflow.db"
    unfinished = tmp_path / "mlflow.db.new"
    unfinished.write_bytes(filled_database.read_bytes()[:4096])
    (tmp_path / "mlflow.db.new-journal").write_bytes(b"half a journal")
    store = Store(f"sqlite:///{database}", tmp_path / "mlartifacts")
    assert list(Delivery(tmp_path / "runs", store).run()) == []
    assert database.exists()
    assert not unfinished.exists()
