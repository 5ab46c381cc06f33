"""What becomes of a fan-out if its head or its scheduler ends, and what a head refuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from short_stages import ROOT, MadeUp, make

from pipeline.cluster import start, worker, workers
from pipeline.cluster.command import FOLDER, HeadError, fan_out, in_words, only_head, run
from pipeline.cluster.dispatch import Summary
from pipeline.cluster.ledger import Ledger
from pipeline.cluster.progress import Counts, Progress
from pipeline.cluster.repository import Repository
from pipeline.cluster.start import ConnectError, MissingPackagesError, remote_client

if TYPE_CHECKING:
    from distributed import Client

pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value will soon:DeprecationWarning")  # DVC's use of pygtrie
CHAIN = {"first": (0.0, ()), "long": (3.0, ("first",)), "last": (0.0, ("long",))}


def wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def run_here(client: Client, made: MadeUp, *, shared: bool = True) -> Summary:
    """A head in this process."""
    with chdir(made.folder), closing(Repository(made.folder)) as repository:
        stopping = threading.Event()
        return run(client, repository, repository.plan(), Progress(sys.stdout), stopping, shared=shared)


@pytest.mark.slow
def test_a_head_that_was_stopped_or_killed_leaves_no_process_and_the_next_goes_on(
    client: Client, tmp_path: Path
) -> None:
    made = make(tmp_path, CHAIN)
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        head = made.start("pipeline", "fan-out", "--workers", "1")
        made.wait_for("long")
        started = psutil.Process(head.pid).children(recursive=True)
        assert any("step.py" in word for process in started for word in process.cmdline())
        if number == signal.SIGINT:
            os.killpg(head.pid, number)  # Ctrl-C is sent to all processes of a terminal
        else:
            head.send_signal(number)
        output, _ = head.communicate(timeout=60)
        assert head.returncode == code, output
        assert "Traceback" not in output
        assert ("Call it again for the rest." in output) is (number == signal.SIGINT)
        psutil.wait_procs(started, timeout=30)
        assert not [process for process in started if process.is_running()]
        assert made.runs() == {"first": 1}
        assert made.stale() == {"long", "last"}
        (tmp_path / "begun" / "long").unlink()
    summary = run_here(client, made)
    assert (sorted(summary.ran), summary.current) == (["last", "long"], ["first"])
    assert made.runs() == {"first": 1, "last": 1, "long": 1}
    assert made.stale() == set()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes], str]]:
    """A scheduler and a worker as a user starts them, in a folder of their own: their processes, and the address."""
    folder.mkdir()
    file = folder / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    def begin(what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", str(file), *options]
        with (folder / f"{what}.log").open("wb") as log:
            return subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)

    scheduler = begin("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--dashboard-address", ":0")
    member = begin(
        "worker", "--no-nanny", "--nthreads", "1", "--no-dashboard", "--death-timeout", "60",
        "--local-directory", str(folder / "local"),
    )  # fmt: skip
    try:
        from distributed import Client

        wait(file.exists, 60)
        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(1, timeout=60)
            address = client.scheduler.address
        yield scheduler, member, address
    finally:
        for process in (scheduler, member):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_scheduler_that_is_lost_ends_the_head_and_its_workers(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SCHEDULER_SECONDS", 1.0)
    made = make(tmp_path, CHAIN)

    with cluster(tmp_path / "elsewhere") as (scheduler, member, address):
        killer = threading.Thread(target=lambda: (made.wait_for("long"), scheduler.kill()))
        killer.start()
        with pytest.raises(workers.SchedulerLostError, match="call this again"), remote_client(address) as lent:
            run_here(lent, made, shared=False)
        killer.join()
        member.wait(30)
    assert made.places("first")[0].is_relative_to(tmp_path / "elsewhere")
    assert made.runs() == {"first": 1}, "the stage was ended with its worker"
    assert made.stale() == {"long", "last"}
    summary = run_here(client, made)
    assert (sorted(summary.ran), summary.current) == (["last", "long"], ["first"])
    assert made.stale() == set()


def test_two_heads_are_refused_by_name_of_the_first(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install .[cluster]")
    with (
        only_head(tmp_path / FOLDER),
        pytest.raises(HeadError, match=rf"already running here \(process {os.getpid()} on"),
    ):
        fan_out(tmp_path, workers=1)


def test_without_dask_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPackagesError, match=r"pip install .\[cluster\]") as caught:
        fan_out(tmp_path, workers=1)
    assert caught.value.exit_code == 2


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install .[cluster]")
    monkeypatch.setattr(start, "CONNECT_SECONDS", "1s")
    with pytest.raises(ConnectError, match=r"tcp://127\.0\.0\.1:9: "), remote_client("tcp://127.0.0.1:9"):
        pass


def test_local_workers_listen_on_the_loopback_interface_only(client: Client) -> None:
    processes = [psutil.Process(), *(psutil.Process(pid) for pid in client.run(os.getpid).values())]
    heard = [each for process in processes for each in process.net_connections() if each.status == psutil.CONN_LISTEN]
    assert heard
    assert {each.laddr.ip for each in heard} == {start.LOOPBACK}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ModuleNotFoundError("No module named 'pipeline'", name="pipeline"), "cannot import pipeline"),
        (
            worker.Described("host", True, (), worker.versions(workers.PACKAGES) | {"torch": "0.1"}),
            r"has torch 0\.1, here [^;]+$",
        ),
    ],
)
def test_a_worker_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, answer: Any, message: str) -> None:
    client: Any = SimpleNamespace(
        status="running",
        scheduler=SimpleNamespace(identity=lambda n_workers: {"workers": {"tcp://worker:1": {}}}),
        sync=lambda function, **arguments: function(**arguments),
        run=lambda *_, **__: {"tcp://worker:1": answer},
    )
    ledger = Ledger(tmp_path / "ledger.jsonl")
    refusing = workers.Workers(client, tmp_path, tmp_path / "fan-out", ledger, shared=True, attempts=1, note=print)
    with pytest.raises(workers.WorkerError, match=message):
        refusing.slots()
    refusing.stop()


def test_each_local_worker_gets_a_gpu_and_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(start, "cores", lambda: 8)
    environments = [start.worker_options(index, 3, ["4", "GPU-b"])["env"] for index in range(3)]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in environments] == ["4", "GPU-b", "4"]
    assert {each["OMP_NUM_THREADS"] for each in environments} == {"2"}
    assert start.worker_options(0, 3, ["4"])["resources"] == {"GPU": 1}
    assert start.worker_options(0, 1, []) == {"env": {"OMP_NUM_THREADS": "8"}, "resources": {}}
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert start.worker_options(0, 1, [])["env"] == {"OMP_NUM_THREADS": "1"}


def test_gpus_are_those_that_cuda_is_to_see(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, expected in {"": [], "-1": [], "2,3": ["2", "3"]}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert start.visible_gpus() == expected


def test_what_was_not_run_is_listed_with_what_it_needs() -> None:
    summary = Summary(ran=["a"], failed={"b": "b failed with exit code 1"}, skipped={"c": "b", "d": "b"})
    assert in_words(summary) == [
        "1 done, 0 up to date.",
        "failed: b failed with exit code 1",
        "not run because of b: c, d",
        "Call it again for the rest.",
    ]


def test_progress_says_how_far_it_is() -> None:
    from datetime import datetime

    progress = Progress(sys.stdout, now=lambda: datetime(2026, 1, 5, 12, 0))
    told = progress.describe(Counts(3, {"train@a": 62.0, "train@b": 5.0}, 1, 7, 5400.0))
    assert told == (
        "3 done, 2 running (train@a 1:02, train@b 0:05), 1 failed, 7 to come, expected end Mon 13:30 (in 1 h 30 min)"
    )
    assert "expected" not in progress.describe(Counts(0, {}, 0, 7, None))
