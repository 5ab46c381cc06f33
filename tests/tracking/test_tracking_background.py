"""The process that delivers during trainings: live, through outages, and at an end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import psutil
import pytest
from commands import wait_for
from filelock import FileLock

from pipeline.tracking import Store, TrackedRun, delivery
from pipeline.tracking.delivery import Delivery, deliver_until_idle

ROOT = Path(__file__).parents[2]

# A training that logs for `seconds`; with `end=no` it is stuck after its last entry.
SCRIPT = """
import logging, sys, time
from pathlib import Path
from pipeline.tracking import Store, TrackedRun
folder, uri, seconds, end = sys.argv[1:]
store = Store(uri, Path(folder).parent / "mlartifacts")
begun = time.monotonic()
run = TrackedRun(Path(folder), experiment="capsules/quick", name="train@x", params={"epochs": 5}, store=store,
                 group={"id": "host-1-1", "name": "reproduction"})
for step in range(5):
    run.log_metrics({"bound": step}, step)
    time.sleep(float(seconds) / 5)
while end == "no":
    time.sleep(60)
run.finish()
print("seconds", time.monotonic() - begun, "mlflow" in sys.modules, flush=True)
"""


def start(folder: Path, uri: str, seconds: float = 0.5, end: str = "yes", source: Path = ROOT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder / "runs"), uri, str(seconds), end],
        cwd=source,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )


def train(folder: Path, uri: str, seconds: float = 0.5, source: Path = ROOT) -> tuple[float, str]:
    """How long a training took, and what it wrote to stderr. It must not fail or import MLflow."""
    process = start(folder, uri, seconds, source=source)
    told, warned = process.communicate(timeout=120)
    assert process.returncode == 0
    _, taken, imported_mlflow = told.split()
    assert imported_mlflow == "False"
    return float(taken), warned


def deliverers(folder: Path) -> list[psutil.Process]:
    """The processes that deliver the runs of `folder`."""
    wanted = ["-m", "pipeline.tracking.delivery", str(folder / "runs")]
    return [each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [])[1:4] == wanted]


@pytest.fixture(autouse=True)
def _no_process_stays(tmp_path: Path) -> Iterator[None]:
    yield
    for process in deliverers(tmp_path):
        process.kill()


@pytest.mark.slow
def test_an_outage_costs_one_warning_and_is_made_up_for_later(tmp_path: Path, store: Store, reader: Any) -> None:
    """Of a server that hangs: it takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        seconds, warned = train(tmp_path, f"http://127.0.0.1:{hanging.getsockname()[1]}", seconds=12.0)
    assert warned.count("warning") == 1
    assert "sync-mlflow" in warned
    assert seconds < 13.0, "training must not wait for the server"

    for process in deliverers(tmp_path):
        process.kill()
    for news in (1, 0):
        assert len(list(Delivery(tmp_path / "runs", store).run())) == news
    child = reader.runs()["train@x"]
    assert reader.history(child, "bound") == [(step, float(step)) for step in range(5)]
    assert child.info.status == "FINISHED"


@pytest.mark.slow
def test_what_is_written_arrives_while_the_run_goes_on(
    tmp_path: Path, store: Store, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "1")

    def status() -> str:
        run = reader.runs().get("train@x")
        return run.info.status if run and run.data.metrics.get("bound") == 4.0 else ""

    with start(tmp_path, store.uri, seconds=0.0, end="no") as process:
        wait_for(lambda: status() == "RUNNING")
        wait_for(lambda: "system/cpu_utilization_percentage" in reader.runs()["train@x"].data.metrics)
        process.kill()
    wait_for(lambda: status() == "KILLED")
    seconds, warned = train(tmp_path, store.uri, seconds=0.0)
    assert seconds < 0.5, "no stage waits for MLflow"
    assert warned == ""
    wait_for(lambda: status() == "FINISHED")
    assert len(deliverers(tmp_path)) == 1, "one process for both"


def test_delivery_in_the_background_outlasts_one_by_hand_and_ends_after_a_while_without_a_run(
    tmp_path: Path, store: Store, reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(delivery, "POLL_SECONDS", 0.5)
    TrackedRun(tmp_path / "runs", experiment="capsules/quick", name="train@x").finish()
    by_hand = FileLock(tmp_path / "runs" / "delivery.lock", thread_local=False)
    by_hand.acquire()
    Timer(1.0, by_hand.release).start()
    deliver_until_idle(tmp_path / "runs", store, idle_seconds=3.0)
    assert reader.runs()["train@x"].info.status == "FINISHED"


def test_the_process_outlives_the_copy_of_the_code_that_started_it(tmp_path: Path, store: Store, reader: Any) -> None:
    """As DVC deletes the copy in which it ran an experiment: the code of the journals' home is what counts."""
    shutil.copytree(ROOT / "pipeline", tmp_path / "copy" / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pipeline").symlink_to(ROOT / "pipeline")
    train(tmp_path, store.uri, seconds=0.0, source=tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy")
    wait_for(lambda: "train@x" in reader.runs() and reader.runs()["train@x"].info.status == "FINISHED")


@pytest.mark.slow
def test_several_first_users_at_once_make_one_whole_store(tmp_path: Path, reader: Any) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    processes = [start(tmp_path, uri) for _ in range(4)]
    complaints = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert complaints == [""] * 4
    wait_for((tmp_path / "mlflow.db").exists)
    client = type(reader)(Store(uri)).client

    def runs() -> list[Any]:
        experiment = client.get_experiment_by_name("capsules/quick")
        return list(client.search_runs([experiment.experiment_id])) if experiment else []

    wait_for(lambda: [run.info.status for run in runs()] == ["FINISHED"] * 5)
    wait_for(lambda: sum(run.data.metrics == {"bound": 4.0} for run in runs()) == 4)  # logged after the status
    (parent,) = (run for run in runs() if run.data.tags.get("group_id"))
    children = [run for run in runs() if run is not parent and "tracking_run" in run.data.tags]
    assert {run.data.tags["mlflow.parentRunId"] for run in children} == {parent.info.run_id}
    assert len(deliverers(tmp_path)) == 1
