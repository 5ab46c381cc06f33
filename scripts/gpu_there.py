"""What runs on a borrowed GPU machine: laying out what was packed, stages that outlast a call, sending results back.

    python3 scripts/gpu_there.py unpack PACK       install and lay out; prints what PYTHONPATH should be
    python3 scripts/gpu_there.py wait MINUTES COMMAND...
    python3 scripts/gpu_there.py ship PACK OUT     put what was made into a folder

Part of the commands that `scripts/gpu_queue.py show` prints. Needs nothing but Python's own library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO

PROFILE = "paper-gpu"

WORK = Path(".cache") / "gpu"
"""What is kept from one call to the next."""
TREE = WORK / "tree"
"""The copy that stages run in. A next call may send the working tree anew and take back what a stage has written."""
RECORDS = f"reports/{PROFILE}/results"
"""Where stages leave what they measured: `<stage>/<item>.json` and `.csv`."""
SHIPPED = (RECORDS, "models", "results", ".tracking")
PIECE = 15 << 20
MOST_PIECES = 6  # beside pack.json and the benchmark's file, eight files at most
UNFINISHED = 75  # EX_TEMPFAIL


class QueueError(SystemExit):
    """Something to mend; the message says what."""

    def __init__(self, message: str) -> None:
        super().__init__(f"error: {message}")


def unpack(folder: Path) -> None:
    """Install what the machine lacks, lay out a tree to work in, and print what PYTHONPATH should be.

    Doing it again changes nothing, unless something else was packed.
    """
    about = json.loads((folder / "pack.json").read_text(encoding="utf-8"))
    if about["code"] != code_hash(Path.cwd()):
        raise QueueError("this copy's code is not what was packed: pack again")
    site, marker = (WORK / "site").absolute(), WORK / "unpacked"
    print(site)
    packed = _fingerprint(folder)
    if marker.exists() and marker.read_text(encoding="utf-8") == packed:
        return
    if any(_alive(path) for path in WORK.glob("jobs/*/pid")):
        raise QueueError("something else was packed while an earlier command still runs: wait for it first")
    shutil.rmtree(WORK / "jobs", ignore_errors=True)
    left_out = (".git", ".cache", ".venv", folder.name, "__pycache__", "out")
    shutil.copytree(".", TREE, ignore=shutil.ignore_patterns(*left_out), dirs_exist_ok=True)
    for part, target in (("data", TREE / "data" / "processed"), ("models", TREE / "models")):
        for path in (folder / part).rglob("*"):
            if path.is_file():
                put(path, target / path.relative_to(folder / part))
    if f"\nprofile: {PROFILE}\n" not in "\n" + (TREE / "params.yaml").read_text(encoding="utf-8"):
        shutil.copy(TREE / "profiles" / PROFILE / "params.yaml", TREE / "params.yaml")
    wheels = [wheel for wheel in sorted((folder / "wheels").glob("*.whl")) if _lacking(*wheel_of(wheel))]
    if wheels:
        options = ["-q", "--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--disable-pip-version-check"]
        install = [sys.executable, "-m", "pip", "install", *options, "--upgrade", "--target", str(site)]
        subprocess.run([*install, *map(str, wheels)], check=True, stdout=sys.stderr)
    names = ", ".join(wheel_of(wheel)[0] for wheel in wheels) or "nothing"
    print(f"unpacked; installed {names}", file=sys.stderr)
    time.sleep(0.1)  # file times are coarse: what was laid out must be older than the marker, what is made newer
    marker.write_text(packed, encoding="utf-8")
    time.sleep(0.1)


def _fingerprint(folder: Path) -> str:
    """What was packed, and with which parameters: names and sizes, and the small files' content."""
    digest = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
    for path in (folder / "pack.json", Path("params.yaml"), Path("profiles") / PROFILE / "params.yaml"):
        if path.exists():  # profiles/ holds those that are not the current one
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _lacking(name: str, wanted: str) -> bool:
    """Whether the machine lacks a package, or has an older one."""
    try:
        return _numbers(version(name)) < _numbers(wanted)
    except PackageNotFoundError:
        return True


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def wait(minutes: float, commands: Sequence[str]) -> int:
    """Run commands one after another, each in a session of its own, and wait for them as long as a call may take.

    A call that ends first leaves them running: the same call again goes on waiting, as long as the machine is kept. A
    training that was cut goes on from its checkpoint.
    """
    deadline = time.monotonic() + minutes * 60
    for each in commands:
        job = WORK.absolute() / "jobs" / hashlib.sha256(each.encode()).hexdigest()[:12]
        code = job / "code"
        if not code.exists() and not _alive(job / "pid"):
            job.mkdir(parents=True, exist_ok=True)
            words = shlex.quote(str(job))
            script = f"( {each} ) > {words}/log 2>&1; echo $? > {words}/new; mv {words}/new {words}/code"
            # The shell leaves it running and ends: nobody here need wait for it.
            start = ["sh", "-c", f"( {script} ) > /dev/null 2>&1 < /dev/null & echo $!"]
            apart = subprocess.run(start, cwd=TREE, start_new_session=True, check=True, capture_output=True, text=True)
            (job / "pid").write_text(apart.stdout, encoding="utf-8")
        print(f"$ {each}", flush=True)
        begun = said = time.monotonic()
        while not code.exists() and _alive(job / "pid") and time.monotonic() < deadline:
            time.sleep(0.5)
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"  {(said - begun) / 60:.0f} min: {_tail(job / 'log', 1)}", flush=True)
        if not code.exists() and _alive(job / "pid"):
            print(f"{_tail(job / 'log', 3)}\nnot finished: give the same command again before the machine goes back")
            return UNFINISHED
        print(_tail(job / "log", 40), flush=True)
        status = int(code.read_text()) if code.exists() else 1
        if status:
            print(f"ended with code {status}; the same command again tries again")
            shutil.rmtree(job)
            return status
    return 0


def _alive(path: Path) -> bool:
    """Whether the process named in a file still runs."""
    if not path.exists():
        return False
    number = path.read_text().strip()
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _tail(path: Path, lines: int) -> str:
    """The last lines of a log, of those that a progress bar overwrote only the latest."""
    text = path.read_bytes().decode(errors="replace") if path.exists() else ""
    latest = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in text.rstrip().split("\n")]
    return "\n".join(latest[-lines:])


def ship(folder: Path, out: Path) -> None:
    """Put everything that was made since `unpack` into `out`, in pieces that may come back."""
    since = (WORK / "unpacked").stat().st_mtime
    made = [path for part in SHIPPED for path in sorted((TREE / part).rglob("*")) if path.is_file()]
    made = [path for path in made if path.stat().st_mtime > since and path.name != "writer.lock"]
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "pack.json", out / "pack.json")
    if not made:
        return
    whole = WORK / "results.tar.gz"
    with tarfile.open(whole, "w:gz", compresslevel=6) as archive:
        for path in made:
            archive.add(path, path.relative_to(TREE))
    with whole.open("rb") as file:
        for number, piece in enumerate(_pieces(file)):
            if number >= MOST_PIECES:
                raise QueueError(f"more than {MOST_PIECES} pieces of {PIECE >> 20} MiB: ship fewer results at once")
            (out / f"results.tar.gz.{number:02d}").write_bytes(piece)
    print(f"shipped {len(made)} files, {whole.stat().st_size / 2**20:.1f} MiB")


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


def wheel_of(path: Path) -> tuple[str, str]:
    """Name and version of a wheel, the name as requirements.lock writes it."""
    name, number, *_ = path.name.split("-")
    return re.sub(r"[-_.]+", "-", name).lower(), number


def code_hash(root: Path) -> str:
    """A hash of the library, the stages and what they depend on: results are only worth their commit if this is the
    same over there.
    """
    digest = hashlib.sha256()
    code = [path for folder in ("pipeline", "stages") for path in sorted((root / folder).rglob("*.py"))]
    for path in [root / "dvc.yaml", *code]:
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def put(source: Path, target: Path) -> None:
    """Copy a file with its time, unless the target is as large and as new."""
    if target.exists():
        old, new = target.stat(), source.stat()
        if old.st_size == new.st_size and old.st_mtime >= new.st_mtime:
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    unpacked = commands.add_parser("unpack", help="install and lay out what was packed")
    unpacked.add_argument("folder", type=Path)
    waited = commands.add_parser("wait", help="run commands that may outlast a call")
    waited.add_argument("minutes", type=float)
    waited.add_argument("commands", nargs="+")
    shipped = commands.add_parser("ship", help="put what was made into a folder")
    shipped.add_argument("pack", type=Path)
    shipped.add_argument("out", type=Path)
    told = parser.parse_args(arguments)
    match told.command:
        case "unpack":
            unpack(told.folder)
        case "wait":
            return wait(told.minutes, told.commands)
        case "ship":
            ship(told.pack, told.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
