"""The head's side of Dask: which workers there are, one stage at a time on each, and what to do if one is lost.

Dask carries calls and pieces of files; it does not plan. The head sends a stage only to a worker that is free, and only
to that one: if a worker dies, Dask counts that against all tasks that wait there and gives a task up after a few
deaths, and it would run a finished task again if the worker that holds its value dies.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cluster import worker
from pipeline.cluster.dispatch import Result, StageError, StoppedError
from pipeline.cluster.here import failure
from pipeline.cluster.ledger import Ledger
from pipeline.cluster.worker import BUNDLE, RESULTS, Described, Order, Outcome
from pipeline.errors import UserError
from pipeline.layout import CHECKPOINTS

if TYPE_CHECKING:
    from distributed import Client, Future

    from pipeline.bundles.contents import Contents

PIECE = 4 << 20
"""Bytes of a file in one message. They pass through the scheduler, which complains of more than ten megabytes."""
LOOK_SECONDS = 0.3
SCHEDULER_SECONDS = 10.0  # how long the scheduler may be out of reach
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "pyro-ppl", "distributed")
"""Packages that must be the same on all workers, because results depend on them."""


class SchedulerLostError(UserError):
    """The connection to the scheduler broke."""


class WorkerError(UserError):
    """A worker cannot be used. The message says why."""


class LostError(Exception):
    """The worker is gone."""


@dataclass
class Member:
    """A worker of the cluster.

    Attributes:
        name: for people: the host, and a number if it has several workers.
        gpu: whether it has a resource `GPU`, of which a stage takes one.
    """

    address: str
    name: str
    gpu: bool
    described: Described
    busy: bool = False


class Workers:
    """Runs stages on the workers of a Dask cluster.

    Args:
        root: the repository.
        folder: of this machine's files of the fan-out; workers that see it read and write there.
        shared: False: no worker is to use `folder`, even if it could.
        attempts: how many workers a stage may lose before it counts as failed: it may itself be what kills them.
        note: prints a line.
    """

    def __init__(
        self,
        client: Client,
        root: Path,
        folder: Path,
        ledger: Ledger,
        *,
        shared: bool,
        attempts: int,
        note: Callable[[str], None],
    ) -> None:
        self._client, self._root, self._ledger, self._note = client, root, ledger, note
        self._work, self._shared, self._attempts = folder / "work", shared, attempts
        self._token, self._secret = folder / "token", secrets.token_hex(16)
        self._work.mkdir(parents=True, exist_ok=True)
        if shared:
            self._token.write_text(self._secret, encoding="utf-8")
        self._versions = worker.versions(PACKAGES)
        self._members: dict[str, Member] = {}
        self._refused: dict[str, str] = {}
        self._changed = threading.Condition()
        self._packing = (
            threading.Lock()
        )  # Python 3.11's `ast.parse`, which packing uses, fails in several threads at once
        self._stopped = threading.Event()
        self._error: UserError | None = None
        self._look()
        threading.Thread(target=self._watch, name="workers", daemon=True).start()

    # ---- what the loop calls

    def slots(self) -> int:
        """How many workers there are.

        Raises:
            SchedulerLostError: the scheduler is gone.
            WorkerError: there are workers, and none of them can be used.
        """
        with self._changed:
            if self._error is not None:
                raise self._error
            if self._refused and not self._members:
                raise WorkerError("no worker can be used: " + "; ".join(self._refused.values()))
            return len(self._members)

    def begin(self, name: str) -> None:
        """There is nothing to do."""

    def run(self, name: str, begun: Callable[[], None]) -> Result:
        contents = self._pack(name)
        for attempt in range(1, self._attempts + 1):
            key, folder = contents.key, self._work / contents.key
            if (seconds := worker.finished(folder)) is not None:  # by a worker that an earlier head sent it to
                self._note(f"{name}: taking the results of an earlier run")
                return Result(key, folder / RESULTS, "", seconds)
            with self._member(key) as member:
                self._ledger.write("dispatched", name, key, member.address)
                begun()
                try:
                    outcome = self._execute(name, contents, member)
                except LostError as error:
                    self._ledger.write("lost", name, key, member.address)
                    left = self._attempts - attempt
                    again = f"; trying again, {left} left" if left else ""
                    self._note(f"{name}: {member.name} was lost ({error}){again}")
                    if worker.finished(folder) is None:
                        self._take_checkpoint(folder)
                        contents = self._pack(name)  # with the checkpoint; its key may be another one
                    continue
            if outcome.code:
                self._take_checkpoint(folder)
                message = failure(name, outcome.code, member.name, outcome.output)
                self._ledger.write("failed", name, key, member.address, outcome.seconds, message.splitlines()[0])
                raise StageError(message)
            self._ledger.write("done", name, key, member.address, outcome.seconds)
            return Result(key, folder / RESULTS, member.name, outcome.seconds)
        message = f"{name}: workers lost while they ran it: {self._attempts}"
        self._ledger.write("failed", name, key, message=message)
        raise StageError(message)

    def collect(self, name: str, result: Result, record: Callable[[], None]) -> None:
        from pipeline.bundles.collecting import collect

        assert result.archive is not None
        try:
            collect(self._root, result.archive, lambda root, stages: record())
        except UserError as error:
            self._ledger.write("failed", name, result.key, result.worker, result.seconds, str(error).splitlines()[0])
            raise
        self._ledger.write("recorded", name, result.key, result.worker, result.seconds)
        shutil.rmtree(self._work / result.key, ignore_errors=True)

    def stop(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    # ---- workers

    def _watch(self) -> None:
        """Keep the list of workers up to date, for `run` to see when one is lost."""
        seen = time.monotonic()
        while not self._stopped.wait(LOOK_SECONDS):
            try:
                if self._client.status == "running":
                    self._look()
                    seen = time.monotonic()
            except UserError as error:
                self._error = error
            except Exception:  # all exceptions: of a connection that breaks, tornado and Dask raise many kinds
                pass
            if self._client.status == "closed" or time.monotonic() - seen > SCHEDULER_SECONDS:
                self._error = SchedulerLostError(
                    "the connection to the scheduler broke. What is recorded stays recorded; call this again, with "
                    "a new scheduler, for the rest"
                )
            if self._error is not None:
                with self._changed:
                    self._changed.notify_all()
                return

    def _look(self) -> None:
        # Not `client.scheduler_info`: a refresh in the background may put an answer without workers in its place.
        answer = self._client.sync(self._client.scheduler.identity, n_workers=-1)
        found: dict[str, dict[str, Any]] = answer["workers"]
        new = [address for address in found if address not in self._members and address not in self._refused]
        described = self._describe(new)
        with self._changed:
            for address in [*self._members, *self._refused]:
                if address not in found:
                    self._members.pop(address, None)
                    self._refused.pop(address, None)
            for address, each in described.items():
                if isinstance(each, str):
                    self._refused[address] = each
                    self._note(each)
                    continue
                gpu = found[address].get("resources", {}).get("GPU", 0) >= 1
                self._members[address] = Member(address, self._name(address, each.host), gpu, each)
            self._changed.notify_all()

    def _describe(self, addresses: list[str]) -> dict[str, Described | str]:
        """What new workers are; a message for one that cannot be used."""
        if not addresses:
            return {}
        answers: dict[str, Any] = self._client.run(
            worker.describe, str(self._token), self._secret, PACKAGES, workers=addresses, on_error="return"
        )
        described: dict[str, Described | str] = {}
        for address, answer in answers.items():
            if isinstance(answer, ModuleNotFoundError):
                described[address] = (
                    f"worker {address} cannot import {answer.name}: start it in a clone of the repository"
                )
            elif isinstance(answer, UserError):
                described[address] = f"worker {address}: {answer}"
            elif isinstance(answer, Described):
                wrong = [
                    f"{package} {answer.versions.get(package)}, here {version}"
                    for package, version in self._versions.items()
                    if answer.versions.get(package) != version
                ]
                described[address] = f"worker {address} has {'; '.join(wrong)}" if wrong else answer
        return described  # a worker that was lost meanwhile is not described

    def _name(self, address: str, host: str) -> str:
        taken = {member.name for member in self._members.values()}
        return next(name for number in range(1, len(taken) + 2) if (name := f"{host}:{number}") not in taken)

    @contextmanager
    def _member(self, key: str) -> Iterator[Member]:
        """A free worker, once there is one; the one that has run this bundle before if it is free.

        Raises:
            StoppedError: the head ends.
        """
        with self._changed:
            while True:
                if self._stopped.is_set() or self._error is not None:
                    raise StoppedError
                free = [member for member in self._members.values() if not member.busy]
                if free:
                    break
                self._changed.wait()
            member = min(free, key=lambda each: key not in each.described.keys)
            member.busy = True
        try:
            yield member
        finally:
            with self._changed:
                member.busy = False
                self._changed.notify_all()

    # ---- one stage

    def _pack(self, name: str) -> Contents:
        """Write the bundle of a stage into the folder of its key."""
        from pipeline.bundles.packing import pack

        path = self._work / f"{uuid.uuid4().hex}.tar"
        try:
            with self._packing:
                contents = pack(self._root, name, path)
            folder = self._work / contents.key
            folder.mkdir(exist_ok=True)
            path.rename(folder / BUNDLE)
        finally:
            path.unlink(missing_ok=True)
        return contents

    def _execute(self, name: str, contents: Contents, member: Member) -> Outcome:
        """Run a stage on a worker; its results lie in the folder of its key then."""
        key, folder = contents.key, self._work / contents.key
        if self._shared and member.described.shared:
            resume = self._root / CHECKPOINTS
            outcome: Outcome = self._call(member, worker.work, Order(name, key, str(folder), str(resume)))
            return outcome
        self._send(member, key, folder / BUNDLE)
        outcome = self._call(member, worker.work, Order(name, key, None, None))
        if outcome.size:
            self._fetch(member, key, outcome, folder / RESULTS)
        self._call(member, worker.forget, key)
        return outcome

    def _send(self, member: Member, key: str, path: Path) -> None:
        with path.open("rb") as file:
            offset = 0
            while piece := file.read(PIECE):
                self._call(member, worker.receive, key, offset, piece)
                offset += len(piece)

    def _fetch(self, member: Member, key: str, outcome: Outcome, path: Path) -> None:
        """Write the file of results piece by piece, and check its hash."""
        temporary = path.with_suffix(".part")
        content = hashlib.sha256()
        with temporary.open("wb") as file:
            for offset in range(0, outcome.size, PIECE):
                piece = self._call(member, worker.piece_of, key, offset, PIECE)
                content.update(piece)
                file.write(piece)
        if content.hexdigest() != outcome.sha256:
            raise LostError("its results were damaged on the way")
        temporary.replace(path)
        worker.write_outcome(path.parent, outcome.code, outcome.seconds)

    def _take_checkpoint(self, folder: Path) -> None:
        """Take the checkpoint and the record of a stage that failed or was stopped, if they came back."""
        from pipeline.bundles.collecting import collect

        if (folder / RESULTS).exists():
            with suppress(UserError):  # it says that the stage failed
                collect(self._root, folder / RESULTS)
            (folder / RESULTS).unlink()

    def _call(self, member: Member, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function on a worker.

        Raises:
            LostError: the worker was lost before it answered.
            StageError: the function failed there.
            StoppedError: the head ends.
        """
        from distributed.scheduler import KilledWorker

        resources = {"GPU": 1} if member.gpu else None
        future: Future = self._client.submit(
            function,
            *arguments,
            key=f"{function.__name__}-{uuid.uuid4().hex}",
            workers=[member.address],
            allow_other_workers=False,
            resources=resources,
            pure=False,
            retries=0,
        )
        ended = threading.Event()
        future.add_done_callback(lambda _: ended.set())
        try:
            while not ended.wait(LOOK_SECONDS):
                if self._stopped.is_set() or self._error is not None:
                    raise StoppedError
                if self._members.get(member.address) is not member:
                    raise LostError("it ended or cannot be reached")
            if future.status == "finished":
                return future.result()
            if future.status != "error":  # cancelled, as if the scheduler has started anew
                raise LostError("the scheduler forgot the stage")
            error = future.exception()
            if isinstance(error, KilledWorker):
                raise LostError("it ended")
            raise StageError(f"{member.name}: {type(error).__name__}: {error}") from error
        finally:
            with suppress(Exception):  # of a scheduler that is gone
                future.release()


def clean(folder: Path, keep: set[str]) -> None:
    """Delete what earlier fan-outs left, but for the folders of some keys."""
    if not (folder / "work").is_dir():
        return
    for path in (folder / "work").iterdir():
        if path.name not in keep:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()
