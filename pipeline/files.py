"""Atomic writing of files (to a temporary name in the same folder, flushed, then renamed), and reading of YAML files.

A YAML file that cannot be read gives an error that names it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pipeline.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FileWriteError(UserError):
    """A file could not be written. A file that was at its path before is unchanged."""


class FileReadError(UserError):
    """A file could not be read. The message names it."""


DEEPEST = 50
"""Most levels of nesting in a YAML file. With very many, libyaml's loader crashes the process."""

_CAUSES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file exceeds the allowed file size",
    errno.EACCES: "no permission to write there",
    errno.EPERM: "no permission to write there",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "one of the folders above it is a file",
    errno.EEXIST: "one of the folders above it is a file",
}


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` when the block ends without an error.

    Raises:
        FileWriteError: with the cause and the path; `path` keeps its earlier content.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)  # at the end: a library may have made the file anew
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        cause = _CAUSES.get(error.errno or 0, error.strerror or str(error))
        kept = " The file is as it was before." if os.path.lexists(path) else ""
        raise FileWriteError(f"cannot write {path}: {cause}.{kept}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically. Raises `FileWriteError`."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write `content` to `path` as UTF-8, atomically. Raises `FileWriteError`."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write `content` to `path` as indented JSON (no NaN or infinity), atomically. Raises `FileWriteError`."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write named arrays to `path` as a compressed npz without pickles, atomically; equal arrays give equal bytes.

    The zip headers that `numpy.savez` writes differ between versions of Python. Here, the bytes depend only on zlib
    (zlib-ng compresses differently).

    Raises:
        FileWriteError: the file could not be written, for example because the disk is full.
        ValueError: an array contains Python objects, which only a pickle could store.
    """
    import numpy as np

    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # of 1980, as numpy's
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # of Unix on every system
            entry.file_size = array.nbytes  # about: decides whether 64-bit sizes are needed
            with archive.open(entry, "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's loader if PyYAML was built with it; it is five to ten times as fast."""


class _Loader(_FASTEST):
    """Reads 1e-05 as a number, as YAML 1.2 and DVC do, which writes it so (`dvc exp run -S`)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; None if it is empty.

    Sections may be merged (`<<: *name`) and then share objects: copy them before changing them.

    Raises:
        FileReadError: the file is missing, a folder or a pipe, unreadable or not UTF-8, or as `parse_yaml`.
    """
    try:
        if stat.S_ISFIFO(path.stat().st_mode):  # reading would wait for ever
            raise FileReadError(f"{path} is a pipe, not a file")
        return parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        raise FileReadError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise FileReadError(f"{path} is a folder, not a file") from None
    except OSError as error:
        raise FileReadError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise FileReadError(f"{path} is not UTF-8 text (byte {error.start})") from None


def parse_yaml(text: str, name: str) -> Any:
    """The content of the text of a YAML file, which errors call `name`.

    Raises:
        FileReadError: it is not YAML, nested more than `DEEPEST` levels deep, or has a key twice in one section (PyYAML
            would silently take the last one).
    """
    try:
        _check_structure(text, name)
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:  # PyYAML raises ValueError for dates such as 2024-99-99
        raise FileReadError(f"{name} is not valid YAML: {error}") from None


@dataclass
class _Level:
    """A section or list of a YAML file while it is read; `lines` maps the keys of a section to their line numbers."""

    lines: dict[str, int] | None
    key: str | None = None
    at_key: bool = True


def _check_structure(text: str, name: str) -> None:
    """Raise an error for duplicate keys and too many levels, before anything is built from `text`."""
    levels: list[_Level] = []
    for event in yaml.parse(text, Loader=_Loader):
        section = levels[-1] if levels and levels[-1].lines is not None else None
        if section is not None and isinstance(event, yaml.NodeEvent):
            if section.at_key and isinstance(event, yaml.ScalarEvent):
                _check_key(section, event, levels, name)
            section.at_key = not section.at_key
        if isinstance(event, yaml.CollectionStartEvent):
            levels.append(_Level({} if isinstance(event, yaml.MappingStartEvent) else None))
            if len(levels) > DEEPEST:
                raise FileReadError(f"{name} is nested more than {DEEPEST} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            levels.pop()


def _check_key(section: _Level, event: yaml.ScalarEvent, levels: list[_Level], name: str) -> None:
    assert section.lines is not None
    assert event.start_mark is not None  # libyaml and PyYAML set it; the type allows for other parsers
    section.key, line = event.value, event.start_mark.line + 1
    if event.value in section.lines:
        where = ".".join(level.key for level in levels if level.key is not None)
        raise FileReadError(f"{name}: {where} occurs twice, in lines {section.lines[event.value]} and {line}")
    section.lines[event.value] = line


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_sha256(content: Any) -> str:
    """The SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
