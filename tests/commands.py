"""The command line in this process, commands of documents, waiting for something, and a disk that is full."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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


def commands_of(document: str, title: str) -> list[str]:
    """The blocks of commands of a document's section, one text each, without indentation."""
    text = (Path(__file__).parents[1] / "docs" / document).read_text(encoding="utf-8")
    _, begun, section = text.partition(f"# {title}\n")
    assert begun, f"{document} has no section '{title}'"
    blocks: list[list[str]] = [[]]
    for line in section.partition("\n#")[0].splitlines():
        if line.startswith("    "):
            blocks[-1].append(line[4:])
        elif line.strip():
            blocks.append([])
    return ["\n".join(block) for block in blocks if block]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file may grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
