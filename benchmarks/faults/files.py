"""Faults of files: cut, changed and lost files, a full disk, outputs that cannot be written, times that moved."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.processes import kill_all
from benchmarks.faults.repository import CampaignError, Repository

Damage = Callable[[Path, random.Random], str]
MEBIBYTE = 1 << 20


def cut(path: Path, chance: random.Random) -> str:
    """Keep only a random number of bytes."""
    size = path.stat().st_size
    kept = chance.randrange(size) if size else 0
    _writable(path)
    os.truncate(path, kept)
    return f"cut from {size:,} to {kept:,} bytes"


def flip(path: Path, chance: random.Random) -> str:
    """Change two bytes."""
    content = bytearray(path.read_bytes())
    if not content:
        return "empty already"
    places = [chance.randrange(len(content)) for _ in range(2)]
    for place in places:
        content[place] ^= 1 << chance.randrange(8)
    _writable(path)
    path.write_bytes(content)
    return f"changed at bytes {places[0]:,} and {places[1]:,}"


def damage_output(damage: Damage) -> Callable[[Repository, random.Random], str]:
    """A file that a stage wrote, damaged in the working tree."""

    def apply(repository: Repository, chance: random.Random) -> str:
        chosen = chance.choice(_files(repository.folder, "data", "models", "results", "reports"))
        return f"{chosen.relative_to(repository.folder)} {damage(chosen, chance)}"

    return apply


def damage_cache(damage: Damage) -> Callable[[Repository, random.Random], str]:
    """A file of DVC's cache, damaged after the working tree has lost its outputs: they must come from the cache."""

    def apply(repository: Repository, chance: random.Random) -> str:
        chosen = chance.choice(_files(repository.folder, ".dvc/cache"))
        told = damage(chosen, chance)
        for name in ("data", "models", "results"):
            shutil.rmtree(repository.folder / name, ignore_errors=True)
        return f"{chosen.relative_to(repository.folder)} {told}"

    return apply


def damage_checkpoint(damage: Damage) -> Callable[[Repository, random.Random], str]:
    """A checkpoint of a training that was killed, damaged before it goes on."""

    def apply(repository: Repository, chance: random.Random) -> str:
        when = kill_all(repository, chance)
        found = _files(repository.folder, ".cache/resume")
        if not found:
            return f"killed {when}, no checkpoint yet"
        return f"killed {when}; checkpoint {damage(chance.choice(found), chance)}"

    return apply


def damage_lock(damage: Damage) -> Callable[[Repository, random.Random], str]:
    """DVC's lock file, damaged."""
    return lambda repository, chance: f"dvc.lock {damage(repository.folder / 'dvc.lock', chance)}"


def damage_journal(damage: Damage) -> Callable[[Repository, random.Random], str]:
    """The record of a tracked run, damaged before other runs are recorded."""

    def apply(repository: Repository, chance: random.Random) -> str:
        chosen = chance.choice([path for path in _files(repository.folder, ".tracking") if path.suffix == ".jsonl"])
        told = damage(chosen, chance)
        shutil.rmtree(repository.folder / "models")
        shutil.rmtree(repository.folder / ".dvc/cache")  # so that stages run again
        return f"journal {told}"

    return apply


def lose_cache(repository: Repository, chance: random.Random) -> str:
    """Random files of DVC's cache and of the working tree are gone."""
    cached = _files(repository.folder, ".dvc/cache")
    written = _files(repository.folder, "data", "models", "results")
    lost = chance.sample(cached, k=min(len(cached), chance.randint(1, 6)))
    lost += chance.sample(written, k=min(len(written), chance.randint(1, 4)))
    for path in lost:
        path.unlink()
    return f"{len(lost)} files"


def move_times(repository: Repository, chance: random.Random) -> str:
    """Files get modification times before or after now, as from a clock that was set; one of them is changed, too."""
    shift = chance.choice([-86_400.0, -3600.0, 3600.0, 86_400.0])
    when = time.time() + shift
    chosen = _files(repository.folder, "data", "models", "results", "reports")
    for path in chosen:
        os.utime(path, (when, when))
    target = chance.choice([path for path in chosen if path.suffix in (".npz", ".safetensors")])
    state = target.stat()
    told = flip(target, chance)
    os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))
    return f"{shift:+.0f} s, and {target.name} {told}"


def disk_full(repository: Repository, chance: random.Random) -> str:
    """A disk with too little room, which is emptied later. A file system in memory of a limited size."""
    folder = repository.folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    start = repository.work / repository.state
    used = sum(path.stat().st_size + 4096 for path in start.rglob("*") if path.is_file()) + MEBIBYTE
    room = chance.randrange(4096, 3 * MEBIBYTE)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={2 * used}", "tmpfs", str(folder)], check=True)
    repository.begin(repository.state, folder_exists=True)
    occupied = shutil.disk_usage(folder).used
    subprocess.run(["mount", "-o", f"remount,size={occupied + room}", str(folder)], check=True)
    code, _ = repository.reproduce()
    subprocess.run(["mount", "-o", f"remount,size={4 * used + 512 * MEBIBYTE}", str(folder)], check=True)
    return f"{room:,} bytes free; exit code {code}"


def leave_disk(repository: Repository) -> None:
    """Go back from the file system in memory, if there is one."""
    for _ in range(20):
        if not os.path.ismount(repository.folder):
            return
        if subprocess.run(["umount", str(repository.folder)], capture_output=True, check=False).returncode:
            time.sleep(0.5)
    raise CampaignError(f"{repository.folder} could not be unmounted")


def read_only(repository: Repository, chance: random.Random) -> str:
    """A folder or file of the outputs that nobody can change, and can again later."""
    candidates = [repository.folder / name for name in ("models", "results", "reports", ".dvc/cache", ".cache", "data")]
    candidates += _files(repository.folder, "models", "results", "reports")
    chosen = chance.choice([path for path in candidates if path.exists()])
    lost = repository.folder / "models"
    if chosen != lost and lost not in chosen.parents:
        shutil.rmtree(lost)  # so that there is something to do
    with _immutable(chosen):
        code, _ = repository.reproduce()
    return f"{chosen.relative_to(repository.folder)}; exit code {code}"


def can_mount() -> str:
    """Why there can be no file system in memory here; empty if there can."""
    return "" if sys.platform == "linux" and os.geteuid() == 0 else "needs root on Linux, to mount a small disk"


def can_lock() -> str:
    """Why files cannot be made immutable here; empty if they can."""
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("chattr"):
        return "needs root on Linux and chattr, to make files immutable"
    return ""


@contextmanager
def _immutable(path: Path) -> Iterator[None]:
    done = subprocess.run(["chattr", "+i", str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CampaignError(f"chattr: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)


def _files(folder: Path, *names: str) -> list[Path]:
    """Files below folders, in a fixed order: the same case is damaged in the same place in every campaign."""
    return [path for name in names for path in sorted((folder / name).rglob("*")) if path.is_file()]


def _writable(path: Path) -> None:
    path.chmod(path.stat().st_mode | 0o200)
