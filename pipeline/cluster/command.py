"""`python -m pipeline fan-out`: the head, from its lock to its last line."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, chdir, closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from filelock import FileLock

from pipeline.cluster.dispatch import FanOut, Summary
from pipeline.cluster.here import Here
from pipeline.cluster.ledger import Ledger
from pipeline.cluster.progress import Progress
from pipeline.cluster.repository import Repository
from pipeline.cluster.start import check_packages, default_workers, local_client, remote_client
from pipeline.cluster.workers import Workers, clean
from pipeline.errors import UserError

if TYPE_CHECKING:
    from distributed import Client

    from pipeline.cluster.estimate import Seconds

ATTEMPTS = 3
FOLDER = Path(".cache") / "fan-out"
"""The ledger, bundles and results that are not recorded yet, in the repository."""


class HeadError(UserError):
    """Another head is at work in the repository."""


def fan_out(
    root: Path,
    targets: Sequence[str] = (),
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    shared: bool = True,
    attempts: int = ATTEMPTS,
) -> int:
    """Run all stages of a repository that are out of date on workers, and record their results.

    Args:
        targets: as for `dvc repro`; all stages if there are none.
        workers: so many processes on this machine; by default as `default_workers`.
        scheduler: the address of a running scheduler, instead.
        shared: whether workers may use the repository's own folder, if they see it.
        attempts: how many workers a stage may lose before it counts as failed.

    Returns:
        The exit code: 0 if every stage is recorded, 1 if one failed, 130 or 143 if Ctrl-C or SIGTERM ended it.

    Raises:
        UserError: another head is at work, the scheduler was lost, or DVC cannot read the repository.
    """
    check_packages()
    progress = Progress(sys.stdout)
    connected = remote_client(scheduler) if scheduler else local_client(workers or default_workers())
    with chdir(root), only_head(root / FOLDER), _signals() as received, ExitStack() as stack:
        with ThreadPoolExecutor(1) as pool:  # workers start while DVC reads the repository
            started = pool.submit(stack.enter_context, connected)
            repository = stack.enter_context(closing(Repository(root)))
            plan = repository.plan(targets)
        summary = run(started.result(), repository, plan, progress, received.stopping, shared=shared, attempts=attempts)
    print("\n".join(in_words(summary, remote=scheduler is not None)))
    if summary.stopped:
        return 128 + (received.number or signal.SIGINT)
    return 1 if summary.failed else 0


def forecast(root: Path, targets: Sequence[str], counts: Sequence[int]) -> list[str]:
    """How long all stages of a repository would take on so many workers, as lines of text.

    Raises:
        UserError: DVC cannot read the repository.
    """
    from pipeline.cluster.forecast import in_words

    plan, known = known_plan(root, targets)
    return in_words(plan, known, counts)


def known_plan(root: Path, targets: Sequence[str] = ()) -> tuple[dict[str, frozenset[str]], Seconds]:
    """The stages behind the targets, each with those that it needs, and how long each takes as far as is known.

    Raises:
        UserError: DVC cannot read the repository.
    """
    with chdir(root), closing(Repository(root)) as repository:
        plan = repository.plan(targets)
    seconds = Ledger(root / FOLDER / "ledger.jsonl").seconds()
    _add_estimates(root, seconds)
    found: Callable[[str], float | None] = seconds.get
    return plan, found


def run(
    client: Client,
    repository: Repository,
    plan: Mapping[str, frozenset[str]],
    progress: Progress,
    stopping: threading.Event,
    *,
    shared: bool = True,
    attempts: int = ATTEMPTS,
) -> Summary:
    """Run the stages of a plan on the workers of a client. The caller holds the lock of the head."""
    folder = repository.root / FOLDER
    ledger = Ledger(folder / "ledger.jsonl")
    clean(folder, set(ledger.pending()))
    workers = Workers(client, repository.root, folder, ledger, shared=shared, attempts=attempts, note=progress.note)
    progress.note(f"{len(plan)} stages, {workers.slots()} workers")
    here = Here(repository, folder / "here")
    try:
        return FanOut(repository, plan, workers, here, progress, _known(repository.root, ledger)).run(stopping)
    finally:
        repository.sort_lock(plan)


def in_words(summary: Summary, remote: bool = False) -> list[str]:
    """What became of the stages, as lines of text."""
    parts = [f"{len(summary.ran)} done", f"{len(summary.current)} up to date"]
    if summary.restored:
        parts.append(f"{len(summary.restored)} restored")
    lines = [", ".join(parts) + "."]
    for name, message in summary.failed.items():
        lines.append(f"failed: {message if name in message else f'{name}: {message}'}")
    because: dict[str, list[str]] = {}
    for name, needed in summary.skipped.items():
        because.setdefault(needed, []).append(name)
    lines += [f"not run because of {name}: {', '.join(skipped)}" for name, skipped in because.items()]
    if summary.stopped:
        rest = "Stages that still run on the workers are taken over by the next call." if remote else ""
        lines.append(f"Stopped; what is recorded stays recorded. {rest}".rstrip())
    if summary.failed or summary.stopped:
        lines.append("Call it again for the rest.")
    return lines


class _Received:
    """The signal that asked the head to end."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.number: int | None = None


@contextmanager
def _signals() -> Iterator[_Received]:
    """During the block, SIGINT and SIGTERM ask for an end in order: nothing is left half recorded."""
    received = _Received()

    def note(number: int, frame: FrameType | None) -> None:
        received.number = number
        received.stopping.set()

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def only_head(folder: Path) -> Iterator[None]:
    """Hold the lock of the repository's head.

    Raises:
        HeadError: another one holds it. The message names its process and host.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock, holder = FileLock(folder / "head.lock"), folder / "head.txt"
    try:
        lock.acquire(timeout=0)
    except TimeoutError:
        name = ""
        with suppress(OSError):
            name = holder.read_text(encoding="utf-8").strip()
        raise HeadError(f"fan-out is already running here ({name or 'unknown process'}): this one stops") from None
    try:
        with suppress(OSError):  # on a full disk, the lock works without its owner's name
            holder.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def _known(root: Path, ledger: Ledger) -> Seconds:
    """How long stages take: as in an earlier fan-out, else by what `status` knows, once a thread has read that."""
    seconds = ledger.seconds()
    if (root / "reports").is_dir():
        threading.Thread(target=_add_estimates, args=(root, seconds), name="estimates", daemon=True).start()
    found: Callable[[str], float | None] = seconds.get
    return found


def _add_estimates(root: Path, seconds: dict[str, float]) -> None:
    """Add the seconds of stages as `status` knows them, where there are none yet."""
    from pipeline.publishing.state import profile_state

    with suppress(UserError):
        for item in profile_state(root, root / "params.yaml").items:
            if item.hours is not None:
                seconds.setdefault(item.label.replace("/", "@", 1), item.hours * 3600)
