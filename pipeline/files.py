"""Atomic writing of files (under a temporary name, flushed, then renamed), strict reading of YAML, and hashes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pipeline.errors import UserError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`. Rename it to `path` if the block ends without an error. Raises
    `UserError` with the cause and the path if a file operation fails. In this case, `path` keeps its earlier content.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        os.close(handle)
        temporary = Path(name)
        yield temporary
        temporary.chmod(0o644)  # after the block, which may replace the file by one with other permissions
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        kept = " The file is as it was before." if os.path.lexists(path) else ""
        raise UserError(f"cannot write {path}: {error.strerror or error}.{kept}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically. Raises `UserError` if this fails."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write `content` to `path` as UTF-8, atomically. Raises `UserError` if this fails."""
    write_bytes(path, content.encode())


def write_json(path: Path, content: Any) -> None:
    """Write indented JSON atomically. Raises `UserError` if this fails, and `ValueError` for NaN or infinity."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write named arrays to `path` as a compressed npz without pickles, atomically.

    Equal arrays give equal bytes in all versions of Python. (With `numpy.savez`, the zip headers would depend on the
    version.) Only another implementation of zlib, such as zlib-ng, gives other bytes. Raises `UserError` if the file
    cannot be written, and `ValueError` for an array of Python objects.
    """
    import numpy as np

    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # its date is always 1980, as in numpy's files
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, so that the bytes are the same on all systems
            entry.file_size = array.nbytes  # an estimate: zipfile needs it to choose 32-bit or 64-bit sizes
            with archive.open(entry, "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


_FASTEST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's loader with libyaml or, if it is missing, the loader in Python, which takes five to ten times as long."""


class _Loader(_FASTEST):
    """A loader that reads 1e-05 as a number. PyYAML reads it as text. `dvc exp run -S` writes numbers in this form."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_json(path: Path) -> Any:
    """The content of a JSON file. Raises `UserError` if it is missing, unreadable or invalid."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        advice = "restore the file with `git checkout`, or run the stage that makes it"
        raise UserError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): {advice}") from None


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; None if it is empty.

    A section that merges another section (`<<: *name`) contains the same objects, not copies. So copy a section before
    you change it. Raises `UserError` if the file is missing, unreadable, not UTF-8 or invalid, or repeats a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> Any:
    """The content of a YAML text. Raises `UserError`, with `name`, if the text is invalid or repeats a key."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        _check_keys(node, name)
        return loader.construct_document(node) if node else None
    # ValueError: a date such as 2024-99-99. RecursionError: a section that contains itself.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{name} is not valid YAML: {error}") from None


def _check_keys(node: yaml.Node | None, name: str, above: tuple[str, ...] = ()) -> None:
    """Raise `UserError` if a key occurs twice in a section. `above` has the keys that lead to `node`."""
    if isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _check_keys(value, name, above)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            place, line = (*above, str(key.value)), key.start_mark.line + 1
            if place[-1] in lines:
                where = ".".join(place)
                raise UserError(f"{name}: {where} occurs twice, in lines {lines[place[-1]]} and {line}")
            lines[place[-1]] = line
            _check_keys(value, name, place)


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_sha256(content: Any) -> str:
    """The SHA-256 of a JSON value. The order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def md5(path: Path) -> str | None:
    """The MD5 hash of a file or folder, as in `dvc.lock`; None if `path` does not exist. A folder's hash is the hash of
    a list of the hashes and paths of its files. Files of compiled Python are left out.
    """
    if not path.is_dir():
        return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() if path.is_file() else None
    found = sorted(path.rglob("*"), key=Path.as_posix)
    files = [each for each in found if each.is_file() and "__pycache__" not in each.parts]
    listing = json.dumps([{"md5": md5(each), "relpath": each.relative_to(path).as_posix()} for each in files])
    return hashlib.md5(listing.encode(), usedforsecurity=False).hexdigest() + ".dir"
