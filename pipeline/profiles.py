"""Profiles: complete sets of parameters, each with the `dvc.lock` that belongs to it.

The current profile's `params.yaml` and `dvc.lock` are at the top of the repository, where DVC and all other code read
them. The files of every other profile are in `profiles/<name>/`. Each profile exists only once, because switching moves
its files. Edits and comments in the files are kept.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from pipeline.errors import UserError
from pipeline.files import read_yaml, write_bytes
from pipeline.settings import flatten

PARAMS, LOCK = "params.yaml", "dvc.lock"
FILES = (LOCK, PARAMS)
"""A profile's files. `switch` moves `params.yaml` last, because this move makes the new profile the current one."""


class Profile(NamedTuple):
    """A profile. `about` is the comment in line 1 of its `params.yaml`, `has_lock` whether it has a `dvc.lock`."""

    name: str
    about: str
    has_lock: bool


class Profiles:
    """The profiles of the repository in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def current(self) -> str:
        """The profile that `params.yaml` belongs to. Raises `UserError` if the file names no profile."""
        name = _load(self.root / PARAMS).get("profile")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):  # a folder has this name, too
            raise UserError(f"{self.root / PARAMS} does not name its profile (a line such as `profile: quick`)")
        return name

    def all(self) -> list[Profile]:
        """Every profile, the current one included, sorted by name."""
        found = []
        for name, folder in self._folders().items():
            first = (folder / PARAMS).read_text(encoding="utf-8", errors="replace").partition("\n")[0]
            about = first.lstrip("# ").strip() if first.startswith("#") else ""
            found.append(Profile(name, about, (folder / LOCK).exists()))
        return found

    def params_path(self, name: str) -> Path:
        """The `params.yaml` of profile `name`, current or not. Raises `UserError` if there is no such profile."""
        if name not in (folders := self._folders()):
            raise UserError(f"there is no profile '{name}'; choose one of: {', '.join(folders)}")
        return folders[name] / PARAMS

    def switch(self, name: str) -> bool:
        """Make `name` the current profile. Returns False if it was already the current one, else True.

        The current files are copied to `profiles/<current>/`. Then the files of `name` replace them, each atomically.
        Raises `UserError`, before any current file changes, if there is no profile `name`, if its parameters name
        another profile, if `profiles/<current>/` has a different version of a current file, or if a copy fails.
        """
        source, current = self.params_path(name).parent, self.current
        if name == current:
            return False
        if _load(source / PARAMS).get("profile") != name:
            raise UserError(f"profiles/{name}/{PARAMS} does not say `profile: {name}`: correct it first")
        stored = self.root / "profiles" / current
        for file in FILES:
            if (stored / file).exists() and _read(stored / file) != _read(self.root / file):
                raise UserError(
                    f"profiles/{current}/{file} differs from {file}, although {current} is the current profile. Keep "
                    f"one: remove profiles/{current}/{file}, or copy it over {file}."
                )
        for file in FILES:
            if (content := _read(self.root / file)) is not None:
                write_bytes(stored / file, content)
        for file in FILES:
            if (source / file).exists():
                (source / file).replace(self.root / file)
            else:
                (self.root / file).unlink(missing_ok=True)
        with suppress(OSError):  # the folder stays if it holds other files
            source.rmdir()
        return True

    def _folders(self) -> dict[str, Path]:
        """The folder of each profile's files, by the profile's name."""
        others = {path.parent.name: path.parent for path in self.root.glob(f"profiles/*/{PARAMS}")}
        return dict(sorted({**others, self.current: self.root}.items()))


def _load(path: Path) -> dict[str, Any]:
    values = read_yaml(path)
    return values if isinstance(values, dict) else {}


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def merges_written_out(path: Path) -> bool:
    """Whether every section of a params file that merges another one (`<<: *name`) also sets all keys of the other.

    `dvc exp run -S` writes such files. In them, an edit of the merged section no longer changes sections that merge it.
    """
    text, mark = path.read_text(encoding="utf-8"), "<<not merged"
    whole, apart = (flatten(yaml.safe_load(each)) for each in (text, text.replace("<<:", f"{mark}:")))
    return "<<:" in text and whole == {key: value for key, value in apart.items() if mark not in key}
