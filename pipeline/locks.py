"""One process at a time for a stage and item."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from pipeline.errors import UserError

LOCK_SECONDS = 0.2  # `is_running` holds a lock for a moment, which must not stop a stage that begins then


@contextmanager
def single_instance(path: Path, label: str) -> Iterator[None]:
    """Hold the lock of a stage and item during the block. It is released when the process ends, however it ends. Raises
    `UserError` if another process holds the lock; the message has the id of that process, from a file next to the lock.
    """
    lock, holder = FileLock(path), path.with_suffix(".pid")
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except TimeoutError:
        number = ""
        with suppress(OSError):
            number = holder.read_text(errors="replace")
        message = f"{label} is already running (process {number or 'unknown'}): this one stops"
        raise UserError(message) from None
    with suppress(OSError):  # on a full disk, the lock works without its owner's id
        holder.write_text(str(os.getpid()))
    try:
        yield
    finally:
        lock.release()


def lock_path(root: Path, label: str) -> Path:
    """The lock of a stage and item in a repository's folder."""
    return root / ".cache" / "locks" / f"{label}.lock"


def is_running(root: Path, stage: str, item: str) -> bool:
    """Whether a process holds the lock of an item of a stage; False if this user cannot open the lock."""
    path = lock_path(root, f"{stage}@{item}")
    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(blocking=False):
            return False
    except TimeoutError:
        return True
    except OSError:  # another user's lock, or a read-only disk: `status` still shows the rest
        return False
