"""Fan-out on real workers: the same as `dvc repro`, whatever happens to workers and items."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Timer
from types import SimpleNamespace

import psutil
import pytest
import yaml
from clones import Clone, executed, restored
from commands import wait_for
from dvc.repo import Repo
from servers import free_port, serving
from short_stages import make

from pipeline.errors import UserError
from pipeline.operations.fan_out import HERE, _client, record
from pipeline.operations.reproduce import PlannedItem, read_plan

pytest.importorskip("distributed", reason="Dask is not installed: pip install .[cluster]")

GRAPH = {"download": [], "a": ["download"], "slow": [], "b": ["a"], "last": ["slow", "b"], "tables": ["last"]}


def results(clone: Clone) -> dict[str, object]:
    """What items wrote, by path, and the entries of dvc.lock, in any order."""
    files = [path for name in ("out", "reports") for path in (clone.folder / name).rglob("*") if path.is_file()]
    written: dict[str, object] = {str(path.relative_to(clone.folder)): path.read_bytes() for path in files}
    return written | {"dvc.lock": yaml.safe_load((clone.folder / "dvc.lock").read_text())}


def runs_nothing(clone: Clone) -> bool:
    """Whether `dvc repro` finds everything up to date."""
    output = clone.run("dvc", "repro")
    return executed(output) == restored(output) == [] and "Data and pipelines are up to date." in output


@pytest.mark.slow
def test_two_workers_leave_what_dvc_leaves_alone(tmp_path: Path) -> None:
    made = make(tmp_path, GRAPH, seconds=1.0)
    alone = Clone(tmp_path / "alone")
    shutil.copytree(made.folder, alone.folder)
    alone.run("dvc", "repro")
    made.forget()
    output = made.fan_out("--workers", "2")
    assert "4 items for workers, 1 to run here, 6 in all" in output
    assert made.runs() == dict.fromkeys(sorted(GRAPH), 1)
    assert results(made) == results(alone)
    assert runs_nothing(made)
    for name in GRAPH:
        here = made.begun(name)[0][2] == str(made.folder)
        assert here == (name in HERE), "in a clone, but for what needs the network or redraws"
        assert (made.folder / ".tracking" / name).exists(), "journals come back"
    assert len({Path(made.begun(name)[0][2]).parent for name in ("a", "slow")}) == 2, "two workers, each its own clone"
    assert "0 items for workers" in made.fan_out()
    assert made.runs() == dict.fromkeys(sorted(GRAPH), 1)


@pytest.mark.slow
def test_an_item_of_a_killed_worker_runs_again_from_its_checkpoint(tmp_path: Path) -> None:
    made = make(tmp_path, {"slow": [], "after": ["slow"], "other": []}, seconds=3.0)
    with ThreadPoolExecutor() as pool:
        output = pool.submit(made.fan_out, "--workers", "2")
        wait_for(lambda: made.begun("slow"))
        above = psutil.Process(int(made.begun("slow")[0][0])).parents()
        dvc = next(process for process in above if "dvc" in process.cmdline())
        worker = next(process for process in above if "multiprocessing" in " ".join(process.cmdline()))
        worker.kill()
        assert shutil.which("setpriv") is None or not psutil.wait_procs([dvc], timeout=10)[1]
        assert "[3/3]" in output.result()
    (first, second) = made.begun("slow")
    assert first[1:] != second[1:]
    assert (first[1], second[1]) == ("anew", "again")
    assert made.runs() == {"after": 1, "other": 1, "slow": 2}
    assert runs_nothing(made)


@pytest.mark.slow
def test_a_remote_carries_what_workers_do_not_share(tmp_path: Path) -> None:
    made = make(tmp_path, {"done": [], "a": ["done"], "slow": [], "last": ["slow", "a"]})
    made.run("dvc", "remote", "add", "--local", "team", str(tmp_path / "remote"))
    made.run("dvc", "repro", "done")
    shutil.move(made.folder / ".dvc/cache", tmp_path / "cache")  # under a path that no worker is told
    made.run("dvc", "cache", "dir", "--local", "../cache")
    made.fan_out("--workers", "2", "--remote", "team")
    assert (made.folder / "out/last").read_text() == "last1slow1a1done1done1"
    assert runs_nothing(made)
    assert made.runs() == {"a": 1, "done": 1, "last": 1, "slow": 1}
    assert len(list((tmp_path / "remote").rglob("*"))) > 4


def test_a_failure_stops_only_what_depends_on_it(tmp_path: Path) -> None:
    made = make(tmp_path, {"bad": [], "after": ["bad"], "good": [], "tables": ["after", "good"]})
    made.fail("bad")
    output = made.fan_out("--workers", "1", code=1)
    assert "bad failed: `dvc repro --single-item bad` on " in output
    assert "    bad cannot work\n" in output
    assert "bad failed; not run because of it: after, tables" in output
    assert made.runs() == {"bad": 1, "good": 1}


def test_items_are_recorded_when_no_other_process_uses_dvc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a push by hand, which takes longer than DVC waits."""
    monkeypatch.setattr("dvc.lock.DEFAULT_TIMEOUT", 0.1)
    made, entry = make(tmp_path, {"a": []}), {"cmd": "a"}
    with Repo(str(made.folder)) as repo:
        repo.lock.lock()
        Timer(1.0, repo.lock.unlock).start()
        record(made.folder, [{"name": "a", "entry": entry, "files": {"reports/a.json": b"{}"}}])
    assert results(made) == {"reports/a.json": b"{}", "dvc.lock": {"schema": "2.0", "stages": {"a": entry}}}


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, started as the documentation says."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    with ExitStack() as stack:
        command = [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
        stack.enter_context(serving(command, port, tmp_path / "scheduler.log"))
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            own = free_port()
            place = ["--local-directory", str(tmp_path / name), "--host", "127.0.0.1", "--worker-port", str(own)]
            command = [*dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", *place]
            stack.enter_context(serving(command, own, tmp_path / f"{name}.log", cwd=tmp_path))
        yield address


def test_workers_with_another_version_of_a_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [{"dvc": "3", "numpy": "2", "torch": torch} for torch in ("2.9+cpu", "2.9", "2.8")]
    here, same, other = ({"packages": each} for each in packages)
    found = {"client": here, "workers": {"tcp://one": same, "tcp://two": other}}
    monkeypatch.setattr("distributed.Client", lambda *_, **__: SimpleNamespace(get_versions=lambda **_: found))
    with pytest.raises(UserError, match=r"tcp://two has torch 2\.8, but this machine has 2\.9"):
        _client(Path(), 1, "tcp://head")


@pytest.mark.slow
def test_workers_follow_the_commit(tmp_path: Path, scheduler: str) -> None:
    made = make(tmp_path, {"a": [], "b": ["a"], "train": []})
    places = ("--scheduler", scheduler)
    made.fan_out(*places)
    (made.folder / "rate.txt").write_text("2")
    output = made.fan_out(*places, code=1)
    assert "there are uncommitted changes: commit them (`git status` lists them)" in output
    made.commit()
    made.fan_out(*places)
    assert (made.folder / "out" / "b").read_text() == "b2a2"
    assert made.runs() == {"a": 2, "b": 2, "train": 2}
    assert runs_nothing(made)


@pytest.mark.filterwarnings("ignore:_NoneStep.value will soon:DeprecationWarning")  # DVC's use of pygtrie
def test_what_cannot_be_sent_is_said_and_an_item_needs_all_items_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    made = make(tmp_path, GRAPH)
    plan = read_plan(made.folder, ["last"])
    needs, names = {"download", "a", "b", "slow"}, list(plan)
    assert plan["last"] == PlannedItem(frozenset(needs), frozenset(needs), True, ("reports/last.json",))
    assert {*names} == {*needs, "last"}
    assert all(names.index(need) < names.index(name) for name, item in plan.items() for need in item.needs)
    with pytest.raises(UserError, match="Stage 'nobody' not found"):
        read_plan(made.folder, ["nobody"])
    assert "there are no workers" in made.fan_out("--scheduler", "tcp://127.0.0.1:9", "slow", code=1)
    assert "there is no DVC remote 'nobody'" in made.fan_out("--remote", "nobody", "slow", code=1)
    made.run("dvc", "repro", "slow")
    (made.folder / ".dvc/config.local").write_text(f"['remote \"team\"']\nurl = {made.folder / 'rate.txt'}\n")
    assert "could not push what workers need to the remote 'team'" in made.fan_out("--remote", "team", "last", code=1)
    assert made.runs() == {"download": 1, "slow": 1}
