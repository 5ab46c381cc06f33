"""Profiles: complete sets of parameters, each kept with the `dvc.lock` that belongs to it.

`params.yaml` and `dvc.lock` at the top of the repository are those of the current profile; `profiles/<name>/` keeps a
copy of each. Files are copied byte for byte, so comments stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import UserError
from pipeline.files import write_bytes
from pipeline.tracking.journal import flatten

PARAMS, LOCK = "params.yaml", "dvc.lock"
FILES = (PARAMS, LOCK)


class ProfileError(UserError):
    """A profile is missing, or switching would lose something."""


@dataclass(frozen=True)
class Profile:
    """One saved profile."""

    name: str
    about: str
    has_lock: bool


class Profiles:
    """The profiles of the repository in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "profiles"

    @property
    def current(self) -> str:
        """The profile that `params.yaml` belongs to.

        Raises:
            ProfileError: the file does not say.
        """
        name = _load(self.root / PARAMS).get("profile")
        if not isinstance(name, str) or not name:
            raise ProfileError(f"{self.root / PARAMS} does not name its profile (a line such as `profile: quick`)")
        return name

    def saved(self) -> list[Profile]:
        """Every saved profile, by name."""
        found = []
        for path in sorted(self.folder.glob(f"*/{PARAMS}")):
            first = path.read_text(encoding="utf-8").partition("\n")[0]
            about = first.lstrip("# ").strip() if first.startswith("#") else ""
            found.append(Profile(path.parent.name, about, (path.parent / LOCK).exists()))
        return found

    def unsaved(self) -> list[str]:
        """Those of `params.yaml` and `dvc.lock` that differ from what the current profile's folder holds."""
        kept = self.folder / self.current
        return [name for name in FILES if _read(self.root / name) != _read(kept / name)]

    def save(self) -> list[str]:
        """Store the current files in the current profile's folder; returns those that had changed."""
        changed = self.unsaved()
        kept = self.folder / self.current
        for name in changed:
            _put(kept / name, _read(self.root / name))
        return changed

    def switch(self, name: str, keep_lock: bool = False) -> bool:
        """Make `name` the current profile; False where it already is.

        Args:
            keep_lock: store a changed `dvc.lock` in its profile first, instead of refusing.

        Raises:
            ProfileError: there is no such profile, or edits would be lost.
        """
        target = self.folder / name
        names = [profile.name for profile in self.saved()]
        if name not in names:
            raise ProfileError(f"there is no profile '{name}'; profiles/ has: {', '.join(names) or 'none'}")
        current = self.current
        if name == current:
            return False
        if _load(target / PARAMS).get("profile") != name:
            raise ProfileError(f"profiles/{name}/{PARAMS} does not say `profile: {name}`: correct it first")
        unsaved = self.unsaved()
        if keep_lock and unsaved == [LOCK]:
            _put(self.folder / current / LOCK, _read(self.root / LOCK))
            unsaved = []
        if unsaved:
            saved = [file for file in unsaved if (self.folder / current / file).exists()]
            drop = [f"cp {' '.join(f'profiles/{current}/{file}' for file in saved)} ."] if saved else []
            drop += [f"rm {file}" for file in unsaved if file not in saved]
            raise ProfileError(
                f"{' and '.join(unsaved)} differ{'s' if len(unsaved) == 1 else ''} from profiles/{current}: switching "
                f"would lose that. Keep it with `python -m pipeline profile save`, or drop it with "
                f"`{' && '.join(drop)}`, then switch."
            )
        before = {file: _read(self.root / file) for file in FILES}
        try:
            for file in FILES:
                _put(self.root / file, _read(target / file))
        except UserError:
            for file, content in before.items():
                _put(self.root / file, content)
            raise
        return True

    def differences(self, name: str) -> list[tuple[str, Any, Any]]:
        """Parameters in which profile `name` differs from `params.yaml`: (dotted name, here, there); None is absent.

        Raises:
            ProfileError: there is no such profile.
        """
        path = self.folder / name / PARAMS
        if not path.exists():
            names = [profile.name for profile in self.saved()]
            raise ProfileError(f"there is no profile '{name}'; profiles/ has: {', '.join(names) or 'none'}")
        here, there = flatten(_load(self.root / PARAMS)), flatten(_load(path))
        keys = [*here, *(key for key in there if key not in here)]
        return [(key, here.get(key), there.get(key)) for key in keys if here.get(key) != there.get(key)]


def _load(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(f"{path}: no such file") from None
    except yaml.YAMLError as error:
        raise ProfileError(f"{path} is not valid YAML: {error}") from None
    return values if isinstance(values, dict) else {}


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        write_bytes(path, content)
