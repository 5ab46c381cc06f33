"""Feeding MLflow from runs that are under way, in processes of their own: outages, deaths, and many at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import Store, sync

ROOT = Path(__file__).parents[2]
WARNING_SECONDS = 10.0

# A training that logs for `seconds`; with `end=no` it is stuck after its last entry, with `now` it waits for no one.
SCRIPT = """
import sys, time
from pathlib import Path
from pipeline.tracking import Group, Store, TrackedRun
folder, uri, home, seconds, end = sys.argv[1:]
store = Store(uri, Path(home) / "mlflow.lock", Path(home) / "mlartifacts")
run = TrackedRun(Path(folder), experiment="capsules/quick", name="train@x", params={"epochs": 5}, store=store,
                 group=Group("host-1-1", "reproduction"))
begun = time.monotonic()
for step in range(5):
    run.log_metrics({"bound": step}, step)
    time.sleep(float(seconds) / 5)
print("trained in", time.monotonic() - begun, flush=True)
while end == "no":
    time.sleep(1)
begun = time.monotonic()
run.finish(patience=0.0 if end == "now" else 60.0)
print("waited for MLflow", time.monotonic() - begun, flush=True)
"""


@dataclass
class Training:
    """A finished process and when it wrote its first warning, in seconds from its start."""

    code: int
    output: str
    warnings: list[str]
    warned_after: float
    trained_in: float


def start(folder: Path, uri: str, seconds: float = 0.5, end: str = "yes") -> subprocess.Popen[str]:
    arguments = [str(folder / "runs"), uri, str(folder), str(seconds), end]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def train(folder: Path, uri: str, seconds: float) -> Training:
    begun = time.monotonic()
    process = start(folder, uri, seconds)
    assert process.stderr is not None
    assert process.stdout is not None
    warnings: list[tuple[float, str]] = []

    def read() -> None:
        assert process.stderr is not None
        warnings.extend((time.monotonic() - begun, line) for line in process.stderr if "warning" in line)

    thread = threading.Thread(target=read)
    thread.start()
    output = process.stdout.read()
    code = process.wait(60)
    thread.join()
    process.stdout.close()
    process.stderr.close()
    first = warnings[0][0] if warnings else float("inf")
    return Training(code, output, [line for _, line in warnings], first, float(output.splitlines()[0].split()[-1]))


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
    assert training.trained_in < 9.0, "training must not wait for the server"

    (synced,) = sync(tmp_path / "runs", store)
    assert synced.events == 8
    look = reader(store)
    (child,) = (run for run in look.runs() if run.info.run_name == "train@x")
    assert look.history(child, "bound") == [(step, float(step)) for step in range(5)]
    assert child.info.status == "FINISHED"
    assert [each.events for each in sync(tmp_path / "runs", store)] == [0]


def test_what_a_run_does_not_wait_for_arrives_after_its_end(tmp_path: Path, store: Store, reader: Any) -> None:
    process = start(tmp_path, store.uri, seconds=0.0, end="now")
    assert process.stdout is not None
    assert "trained" in process.stdout.readline()
    assert float(process.stdout.readline().removeprefix("waited for MLflow")) < 0.5
    assert process.communicate(timeout=90)[1] == ""  # which ends when the feeder does
    (run,) = (run for run in reader(store).runs() if run.info.run_name == "train@x")
    assert (run.data.metrics, run.info.status) == ({"bound": 4.0}, "FINISHED")


def test_a_store_that_holds_on_is_left_though_nobody_can_be_told() -> None:
    """MLflow may block for minutes, and the terminal that its stage was started from may be gone by then."""
    code = """
import threading, time
from pathlib import Path
from pipeline.tracking import Store, __main__ as feeding
feeding.FLUSH_SECONDS = 0.2
ended = threading.Event()
threading.Thread(target=feeding._limit_flush, args=(Store("sqlite:///x", Path("x")), ended), daemon=True).start()
print("feeding", flush=True)
ended.set()
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stderr.close()
        assert process.stdout.readline() == b"feeding\n"
        assert process.wait(30) == 0


@pytest.mark.slow
def test_several_first_users_at_once_make_one_whole_store(tmp_path: Path, reader: Any) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    processes = [start(tmp_path, uri) for _ in range(4)]
    complaints = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    store = Store(uri, tmp_path / "mlflow.lock", tmp_path / "mlartifacts")
    if "had not taken everything" in "".join(complaints):  # four imports of MLflow on a busy machine
        list(sync(tmp_path / "runs", store))
    else:
        assert complaints == [""] * 4
    runs = reader(store).runs()
    parents = [run for run in runs if run.data.tags.get("group_id")]
    children = [run for run in runs if run.info.run_name == "train@x"]
    assert (len(parents), len(children)) == (1, 4)
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parents[0].info.run_id}
    assert all(run.data.metrics == {"bound": 4.0} and run.info.status == "FINISHED" for run in children)
    assert {experiment.name for experiment in reader(store).client.search_experiments()} == {
        "Default",
        "capsules/quick",
    }


def test_a_store_whose_maker_was_killed_half_way_is_made_anew(tmp_path: Path, filled_database: Path) -> None:
    database = tmp_path / "mlflow.db"
    unfinished = tmp_path / "mlflow.db.new"
    unfinished.write_bytes(filled_database.read_bytes()[:4096])
    (tmp_path / "mlflow.db.new-journal").write_bytes(b"half a journal")
    store = Store(f"sqlite:///{database}", tmp_path / "mlflow.lock", tmp_path / "mlartifacts")
    assert list(sync(tmp_path / "runs", store)) == []
    assert database.exists()
    assert not unfinished.exists()


def test_the_feeding_process_goes_with_a_training_that_is_killed(tmp_path: Path, store: Store, reader: Any) -> None:
    process = start(tmp_path, store.uri, seconds=0.0, end="no")
    assert process.stdout is not None
    assert "trained" in process.stdout.readline()
    (child,) = [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 25
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not Path(f"/proc/{child}").exists()
    list(sync(tmp_path / "runs", store))
    (run,) = (run for run in reader(store).runs() if run.info.run_name == "train@x")
    assert (run.data.metrics, run.info.status) == ({"bound": 4.0}, "KILLED")
