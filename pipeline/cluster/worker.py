"""What happens on a worker: small functions that the head sends there by name, so a worker must be able to import
`pipeline`. Their arguments and values are small, but for the pieces of files.

A stage runs in a process of its own (`supervise`), in a folder named by the key of its bundle. The folder lies on the
shared file system, or else in the worker's own temporary folder, where it outlives the worker.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.files import sha256

if TYPE_CHECKING:
    from distributed import Worker

POLL_SECONDS = 0.1
BUNDLE, RESULTS, OUTCOME, LOG = "bundle.tar", "results.tar", "outcome.json", "output.log"
"""Files in the folder of a stage."""
PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
"""Where `pipeline` lies."""


@dataclass(frozen=True)
class Order:
    """A stage to run.

    Attributes:
        folder: of the bundle, on a shared file system; None if the bundle was sent to the worker's own folder.
        resume: folder of checkpoints on a shared file system; None if there is none.
    """

    stage: str
    key: str
    folder: str | None
    resume: str | None


@dataclass(frozen=True)
class Outcome:
    """What became of it.

    Attributes:
        code: exit code of the stage's command; 0 if there are results.
        seconds: that the command took.
        size, sha256: of the file of results, also of a failed stage if there is one (its checkpoint and its record).
        output: the last lines of its output.
    """

    code: int
    seconds: float
    size: int
    sha256: str
    output: str


@dataclass(frozen=True)
class Described:
    """A worker.

    Attributes:
        shared: whether it sees the head's files.
        keys: of stages in its own folder.
        versions: of packages that numbers depend on.
    """

    host: str
    shared: bool
    keys: tuple[str, ...]
    versions: dict[str, str]


def dask_setup(worker: Worker) -> None:
    """Dask calls this in local workers: Ctrl-C, which a terminal sends to all processes, is for the head."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def describe(token: str, secret: str, packages: Sequence[str], dask_worker: Worker | None = None) -> Described:
    """Describe the worker.

    Args:
        token: path of a file that the head has written, and what it should hold.
        packages: whose versions are asked for.
    """
    shared = False
    with suppress(OSError):
        shared = Path(token).read_text(encoding="utf-8") == secret
    keys = tuple(path.name for path in own_folder(dask_worker).iterdir())
    supervisor()  # so that the first stage does not wait for it
    return Described(socket.gethostname(), shared, keys, versions(packages))


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Versions of Python and of packages; "missing" for one that is not installed."""
    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "missing"
    return found


def own_folder(worker: Worker | None) -> Path:
    """The folder of stages of a worker without a shared file system. It is beside Dask's own folder of the worker,
    which is deleted with the worker.

    Raises:
        UserError: the folder belongs to another user.
    """
    assert worker is not None
    folder = Path(worker.local_directory).parent / "fan-out"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise UserError(f"{folder} belongs to another user: start the worker with another --local-directory")
    return folder


def receive(key: str, offset: int, piece: bytes) -> None:
    """Write a piece of a bundle. The first one makes the folder."""
    path = _this_folder() / key / BUNDLE
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(piece)


def piece_of(key: str, offset: int, size: int) -> bytes:
    """A piece of the file of results."""
    with (_this_folder() / key / RESULTS).open("rb") as file:
        file.seek(offset)
        return file.read(size)


def forget(key: str) -> None:
    """Delete the folder of a stage whose results are recorded."""
    shutil.rmtree(_this_folder() / key, ignore_errors=True)


def work(order: Order) -> Outcome:
    """Run a stage, or wait for an earlier run of the same bundle; results that are there already are taken.

    If the worker is closed meanwhile, or dies, the stage is ended in order.
    """
    from distributed import get_worker

    worker = get_worker()
    folder = Path(order.folder) if order.folder else own_folder(worker) / order.key
    resume = order.resume or str(own_folder(worker) / "resume")
    process = supervisor()
    assert process.stdin is not None
    assert process.stdout is not None
    line = json.dumps({"folder": str(folder), "resume": resume, "log": str(folder / LOG)})
    process.stdin.write(line + "\n")
    process.stdin.flush()
    while not select.select([process.stdout], [], [], POLL_SECONDS)[0]:
        if worker.status.name not in ("running", "paused"):
            process.stdin.close()
    answer = process.stdout.readline()  # nothing if it has ended
    return outcome(folder, int(json.loads(answer)["code"]) if answer else process.wait())


_supervisors: list[subprocess.Popen[str]] = []


def supervisor() -> subprocess.Popen[str]:
    """The process that runs this worker's stages; it is started if there is none."""
    if not _supervisors or _supervisors[0].poll() is not None or _supervisors[0].stdin.closed:  # type: ignore[union-attr]
        _supervisors[:] = [
            subprocess.Popen(
                [sys.executable, "-m", "pipeline.cluster.supervise"],
                cwd=PACKAGE_FOLDER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                text=True,
            )
        ]
    return _supervisors[0]


def outcome(folder: Path, code: int) -> Outcome:
    """What a run left in its folder; `code` is the exit code of its process."""
    from pipeline.cluster.here import tail

    results = folder / RESULTS
    seconds = 0.0
    with suppress(OSError, ValueError):
        stated = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
        code, seconds = int(stated["code"]), float(stated["seconds"])
    if not results.exists():
        return Outcome(code or 1, seconds, 0, "", tail(folder / LOG))
    return Outcome(code, seconds, results.stat().st_size, sha256(results), tail(folder / LOG) if code else "")


def write_outcome(folder: Path, code: int, seconds: float) -> None:
    """Say that a run has ended; its results lie in the folder already."""
    (folder / OUTCOME).write_text(json.dumps({"code": code, "seconds": seconds}), encoding="utf-8")


def finished(folder: Path) -> float | None:
    """The seconds of an earlier run whose results are in the folder; None if there are none, or it failed."""
    with suppress(OSError, ValueError, KeyError):
        stated = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
        if stated["code"] == 0 and (folder / RESULTS).exists():
            return float(stated["seconds"])
    return None


def _this_folder() -> Path:
    from distributed import get_worker

    return own_folder(get_worker())
