"""The process that runs stages for a worker, one after another: `python -m pipeline.cluster.supervise`.

Each line of its standard input names the folder of a bundle, a folder of checkpoints and a log; it answers each with a
line when the bundle was run. It ends its stage and itself when its standard input is closed: that happens when the
worker dies, however it dies. A lock lets only one process at a time run a bundle, and a second one takes the results of
the first.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

from filelock import FileLock

from pipeline.bundles.packing import unpack
from pipeline.bundles.running import read_results
from pipeline.bundles.running import run as run_bundle
from pipeline.cluster.worker import BUNDLE, OUTCOME, RESULTS, finished, write_outcome
from pipeline.errors import UserError
from pipeline.layout import CHECKPOINTS, JOURNALS

LOCK_SECONDS = 0.5
TERMINATED = 128 + signal.SIGTERM


def main() -> None:
    """Run what standard input names until it ends."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end of standard input ends it, with its stage
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    stop, lines = threading.Event(), queue.SimpleQueue[str | None]()
    threading.Thread(target=_read, args=(stop, lines), name="lifeline", daemon=True).start()
    while line := lines.get():
        order = json.loads(line)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        try:
            code = take(Path(order["folder"]), Path(order["resume"]), stop)
        except UserError as error:
            print(error, file=sys.stderr, flush=True)
            code = 1
        sys.stdout.flush()
        with suppress(BrokenPipeError):
            print(json.dumps({"code": code}), file=answers)


def _read(stop: threading.Event, lines: queue.SimpleQueue[str | None]) -> None:
    """Pass lines on; tell the stage to end when standard input ends."""
    for line in sys.stdin:
        lines.put(line)
    stop.set()
    lines.put(None)


def take(folder: Path, resume: Path, stop: threading.Event) -> int:
    """Run the bundle in `folder`, or take the results of an earlier run; the exit code of its command."""
    lock = FileLock(folder / "lock")
    while not lock.is_locked:
        if stop.is_set():
            return TERMINATED
        with suppress(TimeoutError):
            lock.acquire(timeout=LOCK_SECONDS)
    with lock:
        return run(folder, resume, stop) if finished(folder) is None else 0


def run(folder: Path, resume: Path, stop: threading.Event) -> int:
    """Unpack, run, and put the results where the worker looks for them."""
    inside, kept = folder / "run", folder / "journals"
    # Of a run that was killed: its record goes on where its training goes on from the checkpoint.
    move_missing(inside / JOURNALS, kept)
    shutil.rmtree(inside, ignore_errors=True)
    for name in (RESULTS, OUTCOME):
        (folder / name).unlink(missing_ok=True)
    unpack(folder / BUNDLE, inside)
    move_missing(kept, inside / JOURNALS)
    link_checkpoints(inside, resume)
    made = run_bundle(inside, stop)
    results = read_results(made)
    # The results first: an outcome without results is no outcome.
    made.replace(folder / RESULTS)
    write_outcome(folder, results.exit_code, results.seconds)
    if not results.exit_code:
        shutil.rmtree(inside, ignore_errors=True)
    return results.exit_code


def link_checkpoints(inside: Path, resume: Path) -> None:
    """Let the stage keep its checkpoints in `resume`, which outlives its folder. Those of the bundle go there."""
    own = inside / CHECKPOINTS
    move_missing(own, resume)
    resume.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(own, ignore_errors=True)
    own.parent.mkdir(parents=True, exist_ok=True)
    own.symlink_to(resume.resolve())


def move_missing(source: Path, target: Path) -> None:
    """Move what a folder holds, if it exists, but for what `target` has."""
    if not source.is_dir():
        return
    target.mkdir(parents=True, exist_ok=True)
    for each in source.iterdir():
        if not (target / each.name).exists():
            shutil.move(each, target / each.name)


if __name__ == "__main__":
    main()
