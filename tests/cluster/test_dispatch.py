"""The loop, with stages that only wait."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pipeline.cluster.dispatch import FanOut, Result, StageError, StoppedError, Summary
from pipeline.cluster.progress import Progress
from pipeline.cluster.repository import ChangedError, State


class Repository:
    """Says which stages are out of date, and keeps in which order it was called."""

    def __init__(self, states: Mapping[str, State], here: frozenset[str], changed: frozenset[str]) -> None:
        self.states, self.here, self.changed = states, here, changed
        self.calls: list[str] = []

    def decide(self, name: str) -> State:
        self.calls.append(f"decide {name}")
        return self.states.get(name, State.STALE)

    def runs_here(self, name: str) -> bool:
        return name in self.here

    def record(self, name: str) -> None:
        if name in self.changed:
            raise ChangedError(f"{name}: code changed")
        self.calls.append(f"record {name}")


class Runner:
    """Waits as long as each stage takes, on a number of slots."""

    def __init__(self, seconds: Mapping[str, float], slots: int, fails: frozenset[str] = frozenset()) -> None:
        self.seconds, self.fails, self.number = seconds, fails, slots
        self.free = threading.Semaphore(slots)
        self.times: dict[str, tuple[float, float]] = {}
        self.stopped = threading.Event()
        self.most, self.now = 0, 0

    def slots(self) -> int:
        return self.number

    def begin(self, name: str) -> None:
        pass

    def run(self, name: str, begun: Callable[[], None]) -> Result:
        with self.free:
            begun()
            self.now += 1
            self.most = max(self.most, self.now)
            start = time.monotonic()
            if self.stopped.wait(self.seconds.get(name, 0.0)):
                raise StoppedError
            self.times[name] = (start, time.monotonic())
            self.now -= 1
            if name in self.fails:
                raise StageError(f"{name} failed")
            return Result(name, None, "worker", self.times[name][1] - start)

    def collect(self, name: str, result: Result, record: Callable[[], None]) -> None:
        record()

    def stop(self) -> None:
        self.stopped.set()


PLAN = {
    "slow": frozenset[str](),
    "quick": frozenset[str](),
    "after-quick": frozenset({"quick"}),
    "last": frozenset({"slow", "after-quick"}),
}


def fan_out(
    plan: Mapping[str, frozenset[str]] = PLAN,
    seconds: Mapping[str, float] | None = None,
    *,
    slots: int = 2,
    states: Mapping[str, State] | None = None,
    fails: frozenset[str] = frozenset(),
    here: frozenset[str] = frozenset(),
    changed: frozenset[str] = frozenset(),
    stopping: threading.Event | None = None,
    **others: Any,
) -> tuple[Summary, Repository, Runner]:
    repository = Repository(states or {}, here, changed)
    runner = Runner(seconds or {}, slots, fails)
    local = Runner(seconds or {}, 1, fails)
    loop = FanOut(repository, plan, runner, local, Progress(io.StringIO()), **others)
    summary = loop.run(stopping or threading.Event())
    runner.times |= local.times
    return summary, repository, runner


def test_a_stage_begins_when_its_own_needs_are_recorded() -> None:
    summary, repository, runner = fan_out(seconds={"slow": 0.6, "quick": 0.05, "after-quick": 0.05})
    assert sorted(summary.ran) == sorted(PLAN)
    assert runner.times["after-quick"][1] < runner.times["slow"][1], "it does not wait for the level above it"
    calls = repository.calls
    for name, needs in PLAN.items():
        assert all(calls.index(f"record {need}") < calls.index(f"decide {name}") for need in needs)


def test_only_what_is_out_of_date_runs() -> None:
    states = {"slow": State.CURRENT, "quick": State.RESTORED, "after-quick": State.CURRENT}
    summary, _, runner = fan_out(states=states)
    assert runner.times.keys() == {"last"}
    assert (summary.current, summary.restored, summary.ran) == (["slow", "after-quick"], ["quick"], ["last"])


def test_a_failure_stops_only_what_needs_it() -> None:
    summary, _, runner = fan_out(PLAN | {"alone": frozenset()}, fails=frozenset({"quick"}))
    assert summary.failed == {"quick": "quick failed"}
    assert summary.skipped == {"after-quick": "quick", "last": "quick"}
    assert sorted(summary.ran) == ["alone", "slow"]
    assert not runner.times.keys() & {"after-quick", "last"}


def test_a_result_of_changed_code_counts_as_a_failure() -> None:
    summary, repository, _ = fan_out(changed=frozenset({"quick"}))
    assert summary.failed == {"quick": "quick: code changed"}
    assert "record quick" not in repository.calls
    assert set(summary.skipped) == {"after-quick", "last"}


def test_no_more_stages_run_than_there_are_workers() -> None:
    names = {f"s{index}": frozenset[str]() for index in range(9)}
    summary, _, runner = fan_out(names, dict.fromkeys(names, 0.03), slots=3)
    assert len(summary.ran) == 9
    assert runner.most == 3


def test_the_longest_chain_begins_first() -> None:
    plan = {"a": frozenset[str](), "b": frozenset[str](), "c": frozenset({"b"})}
    _, _, runner = fan_out(plan, slots=1, known={"a": 1.0, "b": 1.0, "c": 1.0}.get)
    assert runner.times["b"] < runner.times["a"]


def test_stages_of_the_repository_itself_run_one_at_a_time() -> None:
    names = {f"s{index}": frozenset[str]() for index in range(4)}
    _, _, runner = fan_out(names, dict.fromkeys(names, 0.05), here=frozenset(names))
    ordered = sorted(runner.times.values())
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ordered))


def test_stopping_ends_what_runs_and_records_nothing_more() -> None:
    stopping = threading.Event()
    timer = threading.Timer(0.3, stopping.set)
    timer.start()
    begun = time.monotonic()
    summary, repository, _ = fan_out(seconds={"slow": 30.0, "quick": 0.05, "after-quick": 30.0}, stopping=stopping)
    assert time.monotonic() - begun < 5
    assert summary.stopped
    assert summary.ran == ["quick"]
    assert not summary.failed
    assert [call for call in repository.calls if call.startswith("record")] == ["record quick"]


def test_stopping_does_not_wait_until_all_stages_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    decide = Repository.decide

    def stopped_at_the_second(self: Repository, name: str) -> State:
        if self.calls:
            stopping.set()
        return decide(self, name)

    monkeypatch.setattr(Repository, "decide", stopped_at_the_second)
    names = {f"s{index}": frozenset[str]() for index in range(9)}
    summary, repository, _ = fan_out(names, states=dict.fromkeys(names, State.CURRENT), stopping=stopping)
    assert summary.stopped
    assert len(repository.calls) == 2


def test_an_error_of_the_workers_ends_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(self: Runner) -> int:
        raise StageError("no workers")

    monkeypatch.setattr(Runner, "slots", gone)
    with pytest.raises(StageError, match="no workers"):
        fan_out()
