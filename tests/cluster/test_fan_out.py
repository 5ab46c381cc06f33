"""Fan-out on real workers, of repositories made up for it."""

from __future__ import annotations

import io
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from short_stages import MadeUp, executed, make

from pipeline.cluster import workers as workers_module
from pipeline.cluster.command import FOLDER, run
from pipeline.cluster.dispatch import Summary
from pipeline.cluster.ledger import Ledger
from pipeline.cluster.progress import Progress
from pipeline.cluster.repository import Repository
from pipeline.cluster.workers import Workers

if TYPE_CHECKING:
    from distributed import Client


pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep.value will soon:DeprecationWarning")  # DVC's use of pygtrie


def fan_out(
    client: Client, made: MadeUp, *targets: str, stopping: threading.Event | None = None, **options: Any
) -> tuple[Summary, str]:
    """What became of the stages, and what was printed."""
    printed = io.StringIO()
    with chdir(made.folder), closing(Repository(made.folder)) as repository:
        plan = repository.plan(targets)
        summary = run(client, repository, plan, Progress(printed), stopping or threading.Event(), **options)
    return summary, printed.getvalue()


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Do something in another thread during the block; its error is raised at the end."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()
    if errors:
        raise errors[0]


def events(made: MadeUp) -> list[tuple[str, str]]:
    return [(entry.event, entry.stage) for entry in Ledger(made.folder / FOLDER / "ledger.jsonl").entries()]


DIAMOND = {
    "quick": (0.0, ()),
    "slow": (1.5, ()),
    "after": (0.0, ("quick",)),
    "last": (0.0, ("slow", "after")),
}


@pytest.mark.slow
def test_a_reproduction_afterwards_runs_nothing_and_has_the_same_lock(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, DIAMOND)
    copy = MadeUp(tmp_path / "copy", made.notes)
    shutil.copytree(made.folder, copy.folder)
    summary, _ = fan_out(client, made)
    assert sorted(summary.ran) == sorted(DIAMOND)
    assert made.runs() == dict.fromkeys(sorted(DIAMOND), 1)
    assert made.times("after")[0][1] < made.times("slow")[0][1], "as soon as what it needs is recorded"
    assert not any(place == made.folder for name in DIAMOND for place in made.places(name)), "in folders of their own"

    assert executed(made.run("dvc", "repro")) == []
    assert made.stale() == set()
    copy.run("dvc", "repro")
    assert made.lock() == copy.lock()
    assert (made.folder / "out/last").read_text() == (copy.folder / "out/last").read_text()
    assert not list((made.folder / FOLDER / "work").glob("*/*"))


def test_only_what_is_out_of_date_runs_and_the_run_cache_is_used(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, {"a": (0.0, ()), "b": (0.0, ("a",)), "other": (0.0, ())})
    fan_out(client, made)
    first = made.lock()
    made.edit(a=2)
    summary, _ = fan_out(client, made)
    assert summary.ran == ["a"]
    assert sorted(summary.current) == ["b", "other"], "a writes the same again"
    made.edit(a=1)
    summary, printed = fan_out(client, made)
    assert (summary.ran, summary.restored) == ([], ["a"])
    assert "a restored from the run cache" in printed
    assert made.lock() == first
    made.edit(b=2)
    made.edit(other=2)
    summary, _ = fan_out(client, made, "b")
    assert summary.ran == ["b"], "only the target"
    assert made.stale() == {"other"}


def test_a_failure_is_shown_and_a_second_call_does_the_rest(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, {"bad": (0.0, ()), "after": (0.0, ("bad",)), "good": (0.0, ())})
    made.fail("bad")
    summary, printed = fan_out(client, made)
    assert summary.ran == ["good"]
    assert summary.skipped == {"after": "bad"}
    assert "bad failed with exit code 1 on " in printed
    assert "    this is bad\n    bad cannot work" in printed
    made.fail("bad", fails=False)
    summary, _ = fan_out(client, made)
    assert sorted(summary.ran) == ["after", "bad"]
    assert made.runs() == {"after": 1, "bad": 1, "good": 1}
    assert made.stale() == set()


def test_a_stage_of_a_killed_worker_runs_again_on_another(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, {"long": (2.0, ()), "other": (0.0, ())})

    def kill() -> None:
        made.wait_for("long")
        address = next(
            entry.worker
            for entry in Ledger(made.folder / FOLDER / "ledger.jsonl").entries()
            if entry.stage == "long" and entry.event == "dispatched"
        )
        os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)

    with meanwhile(kill):
        summary, printed = fan_out(client, made)
    assert sorted(summary.ran) == ["long", "other"]
    assert made.runs() == {"long": 1, "other": 1}, "the first run of `long` was ended with its worker"
    assert events(made).count(("dispatched", "long")) == 2
    assert ("lost", "long") in events(made)
    assert "was lost" in printed
    assert made.stale() == set()


def test_a_stage_of_a_killed_worker_is_packed_anew(client: Client, tmp_path: Path) -> None:
    """The second bundle has another key, and so another folder, if anything else has changed in the meantime."""
    made = make(tmp_path, {"long": (2.0, ())})

    def kill() -> None:
        made.wait_for("long")
        (made.folder / "untracked.txt").touch()  # uncommitted changes are stated by every bundle
        (entry,) = Ledger(made.folder / FOLDER / "ledger.jsonl").entries()
        os.kill(client.run(os.getpid, workers=[entry.worker])[entry.worker], signal.SIGKILL)

    with meanwhile(kill):
        summary, _ = fan_out(client, made)
    assert summary.ran == ["long"], summary.failed
    entries = [each for each in Ledger(made.folder / FOLDER / "ledger.jsonl").entries() if each.event == "dispatched"]
    assert len({entry.key for entry in entries}) == len(entries) == 2
    assert made.stale() == set()


def test_a_result_of_code_that_has_changed_is_refused_by_name(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, {"long": (1.5, ()), "after": (0.0, ("long",))})

    def change() -> None:
        made.wait_for("long")
        with (made.folder / "stages/step.py").open("a") as file:
            file.write("# changed\n")

    with meanwhile(change):
        summary, _ = fan_out(client, made)
    assert summary.ran == []
    assert "stages/step.py" in summary.failed["long"]
    assert "changed" in summary.failed["long"]
    assert summary.skipped == {"after": "long"}
    assert not (made.folder / "dvc.lock").exists()
    assert not (made.folder / "out").exists()
    summary, _ = fan_out(client, made)
    assert sorted(summary.ran) == ["after", "long"]


def test_without_a_shared_file_system_files_travel_in_pieces(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "PIECE", 1000)
    made = make(tmp_path, {"a": (0.0, ()), "b": (0.0, ("a",)), "bad": (0.0, ())})
    made.fail("bad")
    summary, _ = fan_out(client, made, shared=False)
    assert (sorted(summary.ran), [*summary.failed]) == (["a", "b"], ["bad"])
    assert "bad cannot work" in summary.failed["bad"]
    assert not any(place.is_relative_to(tmp_path) for place in (*made.places("a"), *made.places("b")))
    made.fail("bad", fails=False)
    assert made.stale() == {"bad"}


def test_a_result_that_an_earlier_head_did_not_record_is_taken(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, {"a": (0.0, ()), "b": (0.0, ("a",))})

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt  # as if the head died before it recorded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repository, "record", killed)
        with pytest.raises(KeyboardInterrupt):
            fan_out(client, made)
    summary, printed = fan_out(client, made)
    assert sorted(summary.ran) == ["a", "b"]
    assert "a: taking the results of an earlier run" in printed
    assert made.runs() == {"a": 1, "b": 1}
    assert made.stale() == set()


def test_dasks_own_refresh_of_the_list_of_workers_loses_none(client: Client, tmp_path: Path) -> None:
    """It asks for no workers by default, and puts the answer where `scheduler_info` reads."""
    made = make(tmp_path, {"a": (0.0, ())})
    ended = threading.Event()

    def refresh() -> None:
        while not ended.is_set():
            client.sync(client._update_scheduler_info)

    with chdir(made.folder), meanwhile(refresh):
        ledger = Ledger(made.folder / FOLDER / "ledger.jsonl")
        workers = Workers(
            client, made.folder, made.folder / FOLDER, ledger, shared=True, attempts=1, note=lambda _: None
        )
        counts = []
        for _ in range(200):
            workers._look()
            counts.append(workers.slots())
        workers.stop()
        ended.set()
    assert set(counts) == {2}


def test_a_stage_that_kills_its_workers_fails(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, {"long": (30.0, ())})

    def kill() -> None:
        made.wait_for("long")
        for pid in client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)

    with meanwhile(kill):
        begun = time.monotonic()
        summary, _ = fan_out(client, made, attempts=1)
    assert time.monotonic() - begun < 25
    assert "workers lost while they ran it: 1" in summary.failed["long"]


def test_stages_that_belong_here_run_in_the_repository(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, {"a": (0.0, ()), "tables": (0.0, ("a",)), "after": (0.0, ("tables",))})
    made.fail("tables")
    summary, _ = fan_out(client, made)
    assert "tables cannot work" in summary.failed["tables"]
    made.fail("tables", fails=False)
    summary, _ = fan_out(client, made)
    assert summary.ran == ["tables", "after"]
    assert made.places("tables") == [made.folder]
    assert made.stale() == set()


@pytest.mark.parametrize("shared", [True, False])
def test_a_stage_that_a_former_head_left_running_is_taken_over(client: Client, tmp_path: Path, shared: bool) -> None:
    made = make(tmp_path, {"long": (2.0, ())})
    stopping = threading.Event()

    def stop() -> None:
        made.wait_for("long")
        stopping.set()

    with meanwhile(stop):
        summary, _ = fan_out(client, made, shared=shared, stopping=stopping)
    assert summary.stopped
    assert made.runs() == {}
    summary, _ = fan_out(client, made, shared=shared)
    assert summary.ran == ["long"]
    assert made.runs() == {"long": 1}
    assert made.stale() == set()
