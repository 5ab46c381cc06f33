"""Locks that let only one process at a time run an item or a command."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from pipeline.errors import UserError

LOCK_SECONDS = 0.2  # longer than `is_running` holds a lock: a stage that starts in this time waits, and does not fail


@contextmanager
def single_instance(root: Path, label: str) -> Iterator[None]:
    """Hold the lock of `label` (see `lock_path`) during a `with` block. It is also released if the process is killed.
    Raises `UserError` if another process has the lock. A file next to the lock has the id of the process that holds the
    lock. The error message names this process.
    """
    path = lock_path(root, label)
    lock, holder = FileLock(path), path.with_suffix(".pid")
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except TimeoutError:
        number = ""
        with suppress(OSError):
            number = holder.read_text(errors="replace")
        raise UserError(f"{label} is already running (process {number or 'unknown'}): wait, or stop it") from None
    with suppress(OSError):  # on a full disk, the lock works, but the file has no id
        holder.write_text(str(os.getpid()))
    try:
        yield
    finally:
        lock.release()


def lock_path(root: Path, label: str) -> Path:
    """The path of a lock in a repository. `label` is an item, such as `train@<run>`, or a command."""
    return root / ".cache" / "locks" / f"{label}.lock"


def is_running(root: Path, label: str) -> bool:
    """Whether a process holds the lock of item `label` (`<stage>/<item>`). False if this user cannot open the lock."""
    path = lock_path(root, label.replace("/", "@", 1))
    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(blocking=False):
            return False
    except TimeoutError:
        return True
    except OSError:  # another user's lock, or a read-only disk; this must not stop the command `status`
        return False
