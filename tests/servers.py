"""Servers that tests start on this machine, as processes of their own."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from commands import wait_for

BUCKET = "team"
S3_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


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


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """The address of an S3-like store (moto's) that has the bucket `BUCKET`; skips the test where there is no moto."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("moto[s3] is not installed: pip install '.[dev]'")
    import boto3

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with serving(command, port, folder / "moto.log"):
        address = f"http://127.0.0.1:{port}"
        keys = {name.lower(): value for name, value in S3_CREDENTIALS.items() if "KEY" in name}
        client = boto3.client("s3", endpoint_url=address, region_name=S3_CREDENTIALS["AWS_DEFAULT_REGION"], **keys)
        client.create_bucket(Bucket=BUCKET)
        yield address
