"""Faults of servers: a tracking server that is dead, silent or broken, and a mirror that misbehaves."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from benchmarks.faults.repository import MNIST, Repository

MIRROR_LIMIT = 90.0  # seconds after which a user gives up on a mirror
PIECE = 1 << 16

TRACKING = ("dead", "silent", "error 500")
MIRROR = ("truncates", "stalls", "lies", "never ends", "error 404")


def tracking(repository: Repository, chance: random.Random) -> str:
    """A reproduction with an MLflow server that cannot be used."""
    how = chance.choice(TRACKING)
    with _tracking_server(how) as port:
        repository.environment = {"CAPSULES_MLFLOW": "on", "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}"}
        code, _ = repository.reproduce()
    repository.environment = {}
    return f"{how}; exit code {code}"


def mirror(repository: Repository, chance: random.Random) -> str:
    """A download of MNIST from a mirror that misbehaves at a random place, then from one that does not."""
    assert repository.mirror
    repository.targets = MNIST
    how, share = chance.choice(MIRROR), chance.random()
    with _serve(_mirror(repository.mirror, how, share)) as port:
        repository.environment = {"CAPSULES_MIRROR": f"http://127.0.0.1:{port}"}
        code, _ = repository.call("dvc", "repro", *MNIST, limit=MIRROR_LIMIT)
    repository.environment = {"CAPSULES_MIRROR": str(repository.mirror)}
    return f"{how} at {share:.0%}; exit code {code}"


@contextmanager
def _tracking_server(how: str) -> Iterator[int]:
    if how == "dead":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        yield port
    elif how == "silent":
        with socket.create_server(("127.0.0.1", 0)) as listening:
            yield listening.getsockname()[1]
    else:
        with _serve(_Broken) as port:
            yield port


class _Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


class _Broken(_Quiet):
    def _fail(self) -> None:
        self.send_error(500)

    do_GET = do_POST = do_PUT = do_PATCH = do_HEAD = do_DELETE = _fail  # noqa: N815 (the library's names)


def _mirror(files: Path, how: str, share: float) -> type[_Quiet]:
    class Mirror(_Quiet):
        def do_GET(self) -> None:
            path = files / unquote(self.path).lstrip("/")
            if how == "error 404" or not path.is_file():
                self.send_error(404)
                return
            content = path.read_bytes()
            place = int(share * len(content))
            self.send_response(200)
            if how != "never ends":
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            try:
                self._send(content, place)
            except OSError:
                return  # the client has gone

        def _send(self, content: bytes, place: int) -> None:
            if how == "lies":
                place = min(place, len(content) - 1)
                self.wfile.write(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
                return
            self.wfile.write(content[:place])
            if how == "stalls":
                time.sleep(2 * MIRROR_LIMIT)
            elif how == "never ends":
                while True:
                    self.wfile.write(bytes(PIECE))

    return Mirror


@contextmanager
def _serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
