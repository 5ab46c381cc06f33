"""The head's loop: every stage that is out of date is dispatched as soon as all that it needs is recorded.

The loop's thread alone decides and records (DVC is for one thread); every running stage has a thread that waits for it.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from pipeline.cluster.estimate import Seconds, durations, remaining, tails
from pipeline.cluster.progress import Counts, Progress
from pipeline.cluster.repository import State
from pipeline.errors import UserError

POLL_SECONDS = 0.1
AHEAD = 2
"""Stages whose bundles are packed while all workers are busy."""
MOST_THREADS = 1024


class StageError(UserError):
    """A stage's command failed, or its workers were lost too often. The message ends with its last lines of output."""


class StoppedError(Exception):
    """The head is to end; the stage was not waited for."""


@dataclass(frozen=True)
class Result:
    """What a stage has made.

    Attributes:
        key: the hash of its bundle; "" for one that ran in the repository itself.
        archive: the outputs; None if they are in place already.
        worker: that ran it.
        seconds: that it took there.
    """

    key: str
    archive: Path | None
    worker: str
    seconds: float


class Runner(Protocol):
    """What runs stages: the workers, or the repository itself."""

    def slots(self) -> int:
        """How many stages it can run at once, at the moment."""

    def begin(self, name: str) -> None:
        """What the loop's thread has to do before `run`."""

    def run(self, name: str, begun: Callable[[], None]) -> Result:
        """Run a stage to its end, from a thread of its own; call `begun` when it has a worker.

        Raises:
            StageError: it failed.
            StoppedError: `stop` was called.
        """

    def collect(self, name: str, result: Result, record: Callable[[], None]) -> None:
        """Put the outputs in place and call `record`, from the loop's thread.

        Raises:
            UserError: they are damaged, or what the stage depends on has changed.
        """

    def stop(self) -> None:
        """End what runs."""


class Recorder(Protocol):
    """What the loop needs of the repository."""

    def decide(self, name: str) -> State:
        """Whether a stage has to run, once all that it needs is recorded."""

    def runs_here(self, name: str) -> bool:
        """Whether it must run in the repository itself."""

    def record(self, name: str) -> None:
        """Record the outputs of a stage, which are in place."""


@dataclass
class Summary:
    """What became of every stage.

    Attributes:
        failed: messages by stage.
        skipped: stages that were not run, with the one that failed before them.
        stopped: whether the loop ended early.
    """

    current: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


class FanOut:
    """One fan-out.

    Args:
        plan: the stages in DVC's order, each with those that it needs.
        workers, here: what runs stages elsewhere, and in the repository itself.
        known: how long a stage takes.
    """

    def __init__(
        self,
        repository: Recorder,
        plan: Mapping[str, frozenset[str]],
        workers: Runner,
        here: Runner,
        progress: Progress,
        known: Seconds = lambda name: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._repository, self._plan = repository, plan
        self._workers, self._here = workers, here
        self._progress, self._known, self._clock = progress, known, clock
        self._local = {name: repository.runs_here(name) for name in plan}
        self._took: dict[str, float] = {}
        self._waiting = {name: set(needs & plan.keys()) for name, needs in plan.items()}
        self._ready: list[str] = []
        self._running: dict[Future[Result], str] = {}
        self._begun: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="stage")
        self.summary = Summary()

    def run(self, stopping: threading.Event) -> Summary:
        """Run until every stage is recorded, failed or skipped, or `stopping` is set.

        Raises:
            UserError: of `slots`, if there can be no more workers. Stages that were recorded stay recorded.
        """
        try:
            self._unblock(stopping)
            while self._waiting or self._ready or self._running:
                if stopping.is_set():
                    self.summary.stopped = True
                    break
                self._workers.slots()  # an error if there can be no more workers
                self._dispatch()
                self._report()
                if not self._running:
                    time.sleep(POLL_SECONDS)
                    continue
                done, _ = concurrent.futures.wait(
                    self._running, POLL_SECONDS, return_when=concurrent.futures.FIRST_COMPLETED
                )
                ended = [(self._running.pop(future), future) for future in done]
                self._dispatch()  # before the results are hashed and recorded, so that no worker waits for that
                for name, future in ended:
                    self._end(name, future)
                    self._unblock(stopping)
        finally:
            self._workers.stop()
            self._here.stop()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._progress.status("")
        return self.summary

    def _unblock(self, stopping: threading.Event) -> None:
        """Decide on all stages whose needs are recorded; those up to date unblock others. `stopping` ends it."""
        while found := [name for name, needs in self._waiting.items() if not needs]:
            for name in self._longest_first(found):
                if stopping.is_set():  # hashing what all stages read can take minutes
                    return
                del self._waiting[name]
                try:
                    state = self._repository.decide(name)
                except UserError as error:
                    self._fail(name, str(error))
                    continue
                if state is State.STALE:
                    self._ready.append(name)
                    self._dispatch()  # before the next is decided: hashing large inputs takes a while
                    continue
                if state is State.RESTORED:
                    self.summary.restored.append(name)
                    self._progress.note(f"{name} {state.value}")
                else:
                    self.summary.current.append(name)
                self._release(name)

    def _dispatch(self) -> None:
        """Start ready stages, the one with the longest chain of others behind it first."""
        if not self._ready:
            return
        self._ready = self._longest_first(self._ready)
        for runner, here, ahead in ((self._here, True, 0), (self._workers, False, AHEAD)):
            chosen = [name for name in self._ready if self._local[name] is here]
            running = sum(self._local[name] is here for name in self._running.values())
            slots = runner.slots() if chosen else 0
            for name in chosen[: max(0, slots + (ahead if slots else 0) - running)]:
                self._ready.remove(name)
                try:
                    runner.begin(name)
                except UserError as error:
                    self._fail(name, str(error))
                    continue
                self._running[self._pool.submit(runner.run, name, partial(self._begin, name))] = name

    def _begin(self, name: str) -> None:
        self._begun[name] = self._clock()

    def _end(self, name: str, future: Future[Result]) -> None:
        runner = self._here if self._local[name] else self._workers
        try:
            result = future.result()
            runner.collect(name, result, lambda: self._repository.record(name))
        except StoppedError:
            return
        except UserError as error:
            self._fail(name, str(error))
            return
        except Exception as error:  # all exceptions: what goes wrong with one stage must not end the others
            self._fail(name, f"{name}: {type(error).__name__}: {error}")
            return
        self._took[name] = result.seconds
        self.summary.ran.append(name)
        where = f" on {result.worker}" if result.worker else ""
        self._progress.note(f"{name} done in {result.seconds:.1f} s{where}")
        self._release(name)

    def _release(self, name: str) -> None:
        for needs in self._waiting.values():
            needs.discard(name)

    def _fail(self, name: str, message: str) -> None:
        """Skip all that needs a failed stage."""
        self.summary.failed[name] = message
        self._progress.note(message)
        lost = {name}
        for other, needs in self._plan.items():  # in DVC's order, so needs come first
            if needs & lost and other in self._waiting:
                lost.add(other)
                del self._waiting[other]
                self.summary.skipped[other] = name

    def _longest_first(self, names: list[str]) -> list[str]:
        chains = tails(self._plan, self._durations())
        return sorted(names, key=lambda name: -chains[name])

    def _durations(self) -> dict[str, float]:
        return durations(self._plan, lambda name: self._took.get(name) or self._known(name))

    def _report(self) -> None:
        if not self._progress.due():
            return
        now = self._clock()
        dispatched = self._running.values()
        running = {name: now - self._begun[name] for name in dispatched if name in self._begun}
        left = [*self._waiting, *self._ready, *dispatched]
        needs = {name: self._plan[name] for name in self._plan if name in left}
        known = any(self._took.get(name) or self._known(name) for name in left)
        seconds = remaining(needs, self._durations(), running, self._workers.slots()) if known else None
        done = len(self.summary.ran) + len(self.summary.restored)
        self._progress.counts(Counts(done, running, len(self.summary.failed), len(left) - len(running), seconds))
