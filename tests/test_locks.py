"""Locks that go with their process, also where the disk is full."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pipeline.locks import FileLock


def test_a_lock_keeps_others_out_until_it_is_released(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "new" / "lock"), FileLock(tmp_path / "new" / "lock")
    assert first.acquire()
    assert second.holder() == os.getpid()
    assert not second.acquire()
    first.release()
    first.release()
    assert second.acquire()
    second.release()


def test_a_full_disk_costs_the_owners_name_and_not_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire()
    assert not second.acquire()
    assert second.holder() is None
    first.release()
    assert second.acquire(), "the first one's handle must not hold it any longer"
    second.release()
