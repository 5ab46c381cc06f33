"""Running the stages of an unpacked bundle, and writing the file of their results.

Stages run in processes of their own with the bundle's code, without MLflow: their tracked runs are in `.tracking` and
come back with the results, as do the checkpoints of a training that failed or was stopped.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from pipeline.bundles.archive import MANIFEST, BundleError, digest, parse_manifest, write
from pipeline.bundles.contents import Contents
from pipeline.bundles.packing import BUNDLE, KERNELS, WHEELS, contents_of, records, unfinished
from pipeline.commits import COMMIT, named
from pipeline.errors import UserError, show_error
from pipeline.layout import JOURNALS

RESULTS = "results"
RESULTS_FILE = "results.tar"
PACKAGES = "packages"
LOG = "log.txt"

GRACE_SECONDS = 30.0
"""How long a stage that is told to end may take, before it is killed."""

_POLL_SECONDS = 0.2
_LOG_BYTES = 1 << 20  # kept of the log, from its end


@dataclass(frozen=True)
class Results:
    """What a file of results says of its run.

    Attributes:
        contents: of the bundle.
        exit_code: of the last command that ran; 128 and the signal's number if a signal ended it.
        failed: the stage that did not end well; None if all did.
        stopped: whether it was told to end.
        made: "file" or "folder" for each output of the stages that ended well.
        host, python, torch, system: where it ran.
        seconds: that it took.
    """

    contents: Contents
    exit_code: int
    failed: str | None
    stopped: bool
    made: Mapping[str, str]
    host: str
    python: str
    torch: str | None
    system: str
    seconds: float

    @property
    def done(self) -> tuple[str, ...]:
        """The stages that ended well."""
        stages = self.contents.stages
        return stages[: stages.index(self.failed)] if self.failed in stages else stages

    def to_json(self) -> dict[str, Any]:
        """As JSON, which `from_manifest` reads."""
        about = {key: value for key, value in asdict(self).items() if key != "contents"}
        return {"contents": self.contents.to_json(), "key": self.contents.key, **about}

    @classmethod
    def from_manifest(cls, manifest: dict[str, Any], name: str) -> Results:
        """What a manifest says; `name` is for messages. Raises `BundleError`."""
        contents = contents_of(manifest, name)
        try:
            return cls(
                contents=contents,
                exit_code=int(manifest["exit_code"]),
                failed=None if manifest["failed"] is None else str(manifest["failed"]),
                stopped=manifest["stopped"] is True,
                made={str(path): str(kind) for path, kind in manifest["made"].items()},
                host=str(manifest["host"]),
                python=str(manifest["python"]),
                torch=None if manifest["torch"] is None else str(manifest["torch"]),
                system=str(manifest["system"]),
                seconds=float(manifest["seconds"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BundleError(f"{name} is damaged: its manifest does not say what happened") from None


def main(folder: str) -> int:
    """Run the bundle in `folder`; the exit code of the stages."""
    try:
        path = run(Path(folder))
    except (UserError, OSError) as error:
        return show_error(error)
    code = read_results(path).exit_code
    print(f"{path}: take it back with `python -m pipeline collect {path.name}`")
    return code


def read_results(path: Path) -> Results:
    """What a file of results says, without its files. Raises `BundleError`."""
    from pipeline.bundles.archive import read_manifest

    return Results.from_manifest(read_manifest(path, RESULTS), str(path))


def run(folder: Path, stop: threading.Event | None = None) -> Path:
    """Run the stages of an unpacked bundle, and write `results.tar` into its folder, whether or not they succeed.

    SIGTERM and SIGINT (where this is the main thread), or setting `stop`, end them. A training that was stopped goes on
    from its checkpoint if the bundle is run again, here or after `collect`.

    Returns:
        The path of the results.

    Raises:
        BundleError: the bundle is damaged, or the machine lacks a package that its stages import.
        FileWriteError: the results cannot be written.
    """
    folder = folder.resolve()
    contents, packages = _check(folder)
    env = _environment(folder, contents)
    torch = _prepare(folder, env, packages)
    stop = stop or threading.Event()
    begun, code, failed = time.monotonic(), 0, None
    made: dict[str, str] = {}
    (folder / RESULTS_FILE).unlink(missing_ok=True)
    with (folder / LOG).open("wb") as log, _signals(stop):
        for step in contents.steps:
            for output in step.outputs:
                remove(folder / output)
                (folder / output).parent.mkdir(parents=True, exist_ok=True)
            print(f"$ {step.command}", flush=True)
            code = _execute(step.command, folder, env, log, stop)
            if not code:
                missing = [output for output in step.outputs if not (folder / output).exists()]
                if missing:
                    _say(log, f"error: {step.stage} did not make {', '.join(missing)}")
                    code = 1
            if code:
                failed = step.stage
                break
            made |= {output: "folder" if (folder / output).is_dir() else "file" for output in step.outputs}
    seconds = round(time.monotonic() - begun, 2)
    about = Results(
        contents, code, failed, stop.is_set() and failed is not None, made,
        platform.node(), platform.python_version(), torch, platform.platform(), seconds,
    )  # fmt: skip
    _shorten(folder / LOG)
    path = folder / RESULTS_FILE
    write(path, RESULTS, about.to_json(), _produced(folder, made, failed), once=True)
    return path


def remove(path: Path) -> None:
    """Delete a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _check(folder: Path) -> tuple[Contents, dict[str, str]]:
    """The contents of an unpacked bundle and the packages that it needs; all files are compared with its manifest."""
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError:
        raise BundleError(f"{folder} is not an unpacked bundle: it has no {MANIFEST}") from None
    manifest = parse_manifest(text, BUNDLE, str(folder))
    contents = contents_of(manifest, str(folder))
    for name, sha256 in contents.files.items():
        path = folder / name
        if not path.is_file() or digest(path)[1] != sha256:
            raise BundleError(f"{path} is {'not what was packed' if path.is_file() else 'missing'}: unpack it again")
    for each in contents.folders:
        (folder / each).mkdir(parents=True, exist_ok=True)
    packages = manifest.get("packages")
    return contents, {str(key): str(value) for key, value in packages.items()} if isinstance(packages, dict) else {}


def _environment(folder: Path, contents: Contents) -> dict[str, str]:
    """The environment of stages: the bundle's code and packages first, its commit, no MLflow, nothing of DVC's."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("DVC_")}
    paths = [str(folder), str(folder / PACKAGES), env.get("PYTHONPATH", "")]
    env |= {
        "CAPSULES_MLFLOW": "off",
        COMMIT: named(contents.commit, contents.dirty),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)]),
    }
    if (folder / KERNELS).is_dir():
        env["CAPSULES_KERNELS"] = str(folder / KERNELS)
    return env


# ---- packages

_PROBE = """
import json, sys
from importlib import metadata, util
modules, names = json.loads(sys.argv[1])
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps([[m for m in modules if util.find_spec(m) is None], {n: version(n) for n in names}]))
"""
"""Which modules a stage would not find, and versions of distributions."""


def _prepare(folder: Path, env: Mapping[str, str], packages: Mapping[str, str]) -> str | None:
    """Install the wheels that the machine needs, and check that stages find all that they import.

    Returns:
        The version of torch; None if there is none.

    Raises:
        BundleError: a package is missing.
    """
    wheels = sorted((folder / WHEELS).glob("*.whl"))
    if wheels:
        _, versions = _probe(folder, env, [], [_name_of(wheel)[0] for wheel in wheels])
        wanted = [wheel for wheel in wheels if _is_older(versions.get(_name_of(wheel)[0]), _name_of(wheel)[1])]
        if wanted:
            _install(folder, env, wanted)
    # Without wheels, all bundles find the same packages: a process that runs many looks once.
    probe = _probe if wheels else _probe_once
    missing, versions = probe(folder, env, list(packages), ["torch"])
    if missing:
        names = ", ".join(packages[module] for module in missing)
        raise BundleError(
            f"this machine ({sys.executable}) lacks {names}: install {'it' if len(missing) == 1 else 'them'}, or pack "
            "the bundle with wheels (python -m pipeline bundle STAGE --wheels). Wheels do not include torch."
        )
    return versions["torch"]


def _probe(
    folder: Path, env: Mapping[str, str], modules: list[str], names: list[str]
) -> tuple[list[str], dict[str, str | None]]:
    command = [sys.executable, "-c", _PROBE, json.dumps([modules, names])]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"{sys.executable} does not work: {' '.join(done.stderr.split())[-300:]}")
    missing, versions = json.loads(done.stdout.splitlines()[-1])
    return missing, versions


_found: dict[tuple[str, ...], tuple[list[str], dict[str, str | None]]] = {}


def _probe_once(
    folder: Path, env: Mapping[str, str], modules: list[str], names: list[str]
) -> tuple[list[str], dict[str, str | None]]:
    """As `_probe`; what was found is kept, unless something was missing."""
    key = (*modules, "", *names)
    if key in _found:
        return _found[key]
    found = _probe(folder, env, modules, names)
    if not found[0]:
        _found[key] = found
    return found


def _install(folder: Path, env: Mapping[str, str], wheels: list[Path]) -> None:
    options = ["-q", "--no-index", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--upgrade"]
    options += ["--find-links", WHEELS, "--target", PACKAGES]
    names = [str(wheel.relative_to(folder)) for wheel in wheels]
    command = [sys.executable, "-m", "pip", "install", *options, *names]
    print(f"installing {len(wheels)} packages in {folder / PACKAGES}", flush=True)
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        raise BundleError(f"cannot install the bundle's wheels: {' '.join(done.stderr.split())[-500:]}")


def _name_of(wheel: Path) -> tuple[str, str]:
    """Name and version of a wheel."""
    name, version, *_ = wheel.name.split("-")
    return name.replace("_", "-").lower(), version


def _is_older(found: str | None, wanted: str) -> bool:
    """Whether a distribution is missing or older than wanted."""

    def numbers(version: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])]

    return found is None or numbers(found) < numbers(wanted)


# ---- commands


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """During the block, SIGTERM and SIGINT set `stop`; other threads than the main one cannot receive them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_GUARD = """
import os, signal, subprocess, sys, threading, time
signal.signal(signal.SIGTERM, lambda *_: None)
child = subprocess.Popen(sys.argv[1], shell=True, stdin=subprocess.DEVNULL)
def watch():
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGTERM)
    time.sleep(float(sys.argv[2]))
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=watch, daemon=True).start()
code = child.wait()
os._exit(code if code >= 0 else 128 - code)
"""
"""Runs a shell command, and ends it soon after the process that wants its results has died: its input ends then."""


def _execute(command: str, folder: Path, env: Mapping[str, str], log: IO[bytes], stop: threading.Event) -> int:
    """Run a shell command, whose output goes to the terminal and into the log; its exit code, as a shell gives it."""
    if stop.is_set():
        return 128 + signal.SIGTERM
    command = re.sub(r"^python3? ", f"{shlex.quote(sys.executable)} ", command)
    process = subprocess.Popen(
        [sys.executable, "-c", _GUARD, command, str(GRACE_SECONDS)], cwd=folder, env=env, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    copier = threading.Thread(target=_copy, args=(process.stdout, log), daemon=True)
    copier.start()
    deadline = None
    while process.poll() is None:
        if stop.is_set() and deadline is None:
            deadline = time.monotonic() + GRACE_SECONDS
            _send(process, signal.SIGTERM)
        elif deadline is not None and time.monotonic() > deadline:
            _send(process, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
    _send(process, signal.SIGKILL)  # what it may have left running
    copier.join(GRACE_SECONDS)
    process.stdin.close()
    process.stdout.close()
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _send(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to a process and all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _copy(source: IO[bytes], log: IO[bytes]) -> None:
    while piece := os.read(source.fileno(), 1 << 16):
        with suppress(OSError, ValueError):  # a closed terminal or a full disk must not stop the stage
            log.write(piece)
            log.flush()
        with suppress(OSError, ValueError):
            sys.stdout.write(piece.decode(errors="replace"))
            sys.stdout.flush()


def _say(log: IO[bytes], text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    log.write(f"{text}\n".encode())


def _shorten(path: Path) -> None:
    """Keep only the end of a long log."""
    if path.stat().st_size > _LOG_BYTES:
        path.write_bytes(path.read_bytes()[-_LOG_BYTES:])


def _produced(folder: Path, made: Mapping[str, str], failed: str | None) -> dict[str, Path]:
    """The files that go back: outputs, tracked runs, the log; checkpoints of a stage that failed."""
    found = {LOG: folder / LOG}
    for place, kind in made.items():
        paths = [folder / place] if kind == "file" else sorted((folder / place).rglob("*"))
        found |= {path.relative_to(folder).as_posix(): path for path in paths if path.is_file()}
    found |= {path.relative_to(folder).as_posix(): path for path in records(folder / JOURNALS)}
    if failed:  # the folder may be shared with other stages, whose checkpoints stay there
        found |= {name: folder / name for name in unfinished(folder, [failed])}
    return found
