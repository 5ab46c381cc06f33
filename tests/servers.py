"""Servers that tests start on this machine, as processes of their own."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from commands import wait_for


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def serving(
    command: list[str], port: int, log: Path, ready: Callable[[], bool] | None = None, **settings: Any
) -> Iterator[None]:
    """A server's process, `ready` (by default: it accepts connections) when the block begins, and gone after it."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **settings)
    try:
        wait_for(lambda: process.poll() is not None or (ready or partial(accepts, port))())
        assert process.poll() is None, log.read_text()
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.wait()
