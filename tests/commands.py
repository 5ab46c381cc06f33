"""This project's command line in this process, and waiting for another one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest

from pipeline.cli import main


def pipeline(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `python -m pipeline`."""
    monkeypatch.setattr(sys, "argv", ["pipeline", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def wait_for(condition: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait until something holds, which must be within some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
