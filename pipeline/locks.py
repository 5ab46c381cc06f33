"""Locks between processes that go with the process: a crash or a kill never leaves one behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class FileLock:
    """An exclusive lock on a small file, which holds the process id of its owner.

    The kernel drops it when the process ends, however it ends (`flock`; the file itself stays, and means nothing).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def acquire(self, wait: bool = False) -> bool:
        """Take the lock and say whether it was had. With `wait`, block until it is free.

        Raises:
            OSError: the file cannot be created.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(handle)
            return False
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        with suppress(OSError):  # a full disk: the lock holds without its owner's name
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
        return True

    def release(self) -> None:
        """Give the lock back; nothing happens where it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def holder(self) -> int | None:
        """The process id that the last owner wrote, or None."""
        try:
            return int(self.path.read_text())
        except (OSError, ValueError):
            return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock on `path` for the block, waiting for it as long as it takes."""
    lock = FileLock(path)
    lock.acquire(wait=True)
    try:
        yield
    finally:
        lock.release()
