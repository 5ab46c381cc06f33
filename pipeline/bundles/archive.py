"""One tar file that begins with a manifest of all other files: their sizes and SHA-256.

Written whole or not at all. Reading trusts nothing: files lie inside the given folder, are plain files, and have the
size and hash of the manifest; every size is compared with the manifest and with the free space before it is written.
The manifest itself may have `MANIFEST_BYTES` at most. A file with the same content as an earlier one may be left out of
the tar file: it is copied.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from pipeline.errors import UserError
from pipeline.files import FileWriteError, atomic_path
from pipeline.files import sha256 as file_sha256

MANIFEST = "manifest.json"
MANIFEST_BYTES = 64 << 20
FORMAT = 1

_BLOCK = tarfile.BLOCKSIZE
_PIECE = 1 << 20  # bytes read at a time
_SAMPLE = 1 << 16  # bytes of each file that are compressed on trial
_PAYS = 0.1  # share that compression must save
_DEFLATED = 1032  # times as long as a compressed file can be what it unpacks to
_SPARE = 1 << 20  # bytes of the disk that must stay free


class BundleError(UserError):
    """A bundle or a file of results cannot be made or used. The message says why."""


class ChangedError(BundleError):
    """A file changed while it was packed."""


def digest(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file. The hash of an unchanged file is computed only once in a process."""
    state = path.stat()
    return state.st_size, _sha256(path, state.st_size, state.st_mtime_ns, state.st_ino)


@functools.lru_cache(maxsize=65536)
def _sha256(path: Path, size: int, time: int, node: int) -> str:
    return file_sha256(path)


# ---- writing


def write(path: Path, kind: str, about: Mapping[str, Any], files: Mapping[str, Path], *, once: bool = False) -> None:
    """Write the manifest and files to `path`, atomically; compressed if that saves something.

    Args:
        kind: what the file is; `read` checks it.
        about: what else the manifest says, as JSON.
        files: where the content of each name is.
        once: leave out files whose content an earlier one has. `tar` alone would not restore them.

    Raises:
        ChangedError: a file changed while it was written.
        BundleError: a file cannot be read, or its name is too long.
        FileWriteError: the disk is full or `path` cannot be written.
    """
    sizes = {}
    for name, source in files.items():
        check_name(name)
        with _reading(source):
            sizes[name] = digest(source)
    listed = {name: {"size": size, "sha256": sha256} for name, (size, sha256) in sizes.items()}
    manifest = json.dumps({**about, "format": FORMAT, "kind": kind, "files": listed}, indent=1, allow_nan=False)
    with atomic_path(path) as temporary, temporary.open("wb") as raw, ExitStack() as stack:
        out: IO[bytes] = raw
        if _compression_pays(files):
            out = stack.enter_context(gzip.GzipFile("", "wb", 6, raw, mtime=0))  # type: ignore[arg-type]
        _write_member(out, MANIFEST, io.BytesIO(manifest.encode()), len(manifest.encode()))
        written: set[str] = set()
        for name, source in files.items():
            size, sha256 = sizes[name]
            if once and sha256 in written:
                continue
            written.add(sha256)
            with _reading(source):
                file = source.open("rb")
            with file:
                if _write_member(out, name, file, size) != sha256:
                    raise ChangedError(f"{source} changed while it was packed: try again")
        out.write(bytes(2 * _BLOCK))


def _write_member(out: IO[bytes], name: str, file: IO[bytes], size: int) -> str:
    """Write one file, with the same header on every machine; the SHA-256 of what was written."""
    header = tarfile.TarInfo(name)
    header.size = size
    try:
        out.write(header.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict"))
    except ValueError as error:
        raise BundleError(f"{name} cannot be packed: {error}") from None
    content = hashlib.sha256()
    left = size
    while left and (piece := file.read(min(_PIECE, left))):
        content.update(piece)
        out.write(piece)
        left -= len(piece)
    if left or file.read(1):
        return ""  # longer or shorter than it was
    out.write(bytes(-size % _BLOCK))
    return content.hexdigest()


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BundleError(f"cannot read {source}: {error.strerror or error}") from None


def _compression_pays(files: Mapping[str, Path]) -> bool:
    """Whether compression saves a tenth, judged by the beginning of each file."""
    total = saved = 0.0
    for source in files.values():
        with _reading(source), source.open("rb") as file:
            sample = file.read(_SAMPLE)
        size = source.stat().st_size
        total += size
        saved += size * max(0.0, 1 - len(zlib.compress(sample, 1)) / max(1, len(sample)))
    return saved > _PAYS * total


# ---- reading


def extract(path: Path, kind: str, folder: Path) -> dict[str, Any]:
    """Write all files of `path` into `folder`, which must be new or empty, and check them. Returns the manifest.

    `folder` is made whole or not at all.

    Raises:
        BundleError: `path` is missing, damaged, cut short, of another kind, or unsafe; or there is no room for it.
        FileWriteError: `folder` cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BundleError(f"{folder} exists already: name a new folder")
    with _opened(path) as (file, most):
        manifest = _read_manifest(path, kind, file)
        files: dict[str, dict[str, Any]] = manifest["files"]
        held = {each["sha256"]: each["size"] for each in files.values()}
        if sum(held.values()) > most:
            raise BundleError(f"{path} claims {sum(held.values()):,} bytes, more than it can hold")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            _check_room(folder.parent, sum(each["size"] for each in files.values()))
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as made:
                inside = Path(made) / "inside"
                inside.mkdir()
                _write_files(path, file, files, inside)
                (inside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
                if folder.exists():
                    folder.rmdir()
                inside.rename(folder)
        except OSError as error:
            raise FileWriteError(f"cannot write {folder}: {error.strerror or error}") from None
    return manifest


def read_manifest(path: Path, kind: str) -> dict[str, Any]:
    """The manifest alone. Raises `BundleError`."""
    with _opened(path) as (file, _):
        return _read_manifest(path, kind, file)


def parse_manifest(text: bytes, kind: str, name: str) -> dict[str, Any]:
    """A manifest, whose list of files is checked; `name` is for messages. Raises `BundleError`."""
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError):
        raise BundleError(f"{name} is damaged: its manifest is not JSON") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError(f"{name} has another format than this version of the code reads")
    if manifest.get("kind") != kind:
        raise BundleError(f"{name} is not a {kind} file, but {manifest.get('kind')!r}")
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise BundleError(f"{name} is damaged: its manifest lists no files")
    for file, entry in files.items():
        check_name(file)
        size, sha256 = (entry.get("size"), entry.get("sha256")) if isinstance(entry, dict) else (None, None)
        if type(size) is not int or size < 0 or not isinstance(sha256, str) or not re.fullmatch("[0-9a-f]{64}", sha256):
            raise BundleError(f"{name} is damaged: its manifest has no size and SHA-256 of {file}")
    return manifest


def check_name(name: str) -> None:
    """Refuse a file name that is not a plain path below a folder. Raises `BundleError`."""
    parts = name.split("/")
    plain = name == str(PurePosixPath(name)) and ".." not in parts and not name.startswith("/") and name != "."
    if not plain or "\\" in name or not name.isprintable() or name == MANIFEST:
        raise BundleError(f"{name!r} is not the name of a file inside a bundle")


def inside(name: str, places: Mapping[str, Any] | tuple[str, ...]) -> bool:
    """Whether a file is one of `places` or below one."""
    return name in places or any(parent.as_posix() in places for parent in PurePosixPath(name).parents)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The tar file as a stream, uncompressed, and the most bytes that it can hold."""
    try:
        if not path.is_file():  # opening a pipe would wait for ever
            raise BundleError(f"{path}: no such file")
        with path.open("rb") as raw:
            size = path.stat().st_size
            if raw.peek(2)[:2] == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=raw) as file:
                    yield file, _DEFLATED * size  # type: ignore[misc]
            else:
                yield raw, size
    except PermissionError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}") from None


def _read_manifest(path: Path, kind: str, file: IO[bytes]) -> dict[str, Any]:
    header = _header(path, file)
    if header is None or header.name != MANIFEST:
        raise BundleError(f"{path} is not a {kind} file: it does not begin with a manifest")
    if header.size > MANIFEST_BYTES:
        raise BundleError(f"{path} claims a manifest of {header.size:,} bytes")
    text = b"".join(_content(path, file, header.size))
    return parse_manifest(text, kind, str(path))


def _write_files(path: Path, file: IO[bytes], files: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Write the files that follow the manifest, then those with the same content."""
    written: dict[str, Path] = {}
    while (header := _header(path, file)) is not None:
        entry = files.get(header.name)
        target = folder / header.name
        if entry is None:
            raise BundleError(f"{path} holds {header.name!r}, which its manifest does not list")
        if header.size != entry["size"]:
            raise BundleError(f"{path}: {header.name} has {header.size:,} bytes, by its manifest {entry['size']:,}")
        if target.exists():
            raise BundleError(f"{path} holds {header.name} twice")
        content = hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            for piece in _content(path, file, header.size):
                content.update(piece)
                out.write(piece)
        if content.hexdigest() != entry["sha256"]:
            raise BundleError(f"{path}: {header.name} does not match its SHA-256")
        written[entry["sha256"]] = target
    for name, entry in files.items():
        if not (target := folder / name).exists():
            source = written.get(entry["sha256"])
            if source is None or source.stat().st_size != entry["size"]:
                raise BundleError(f"{path} is incomplete: {name} is missing")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def _header(path: Path, file: IO[bytes]) -> tarfile.TarInfo | None:
    """The next header; None at the end. Anything but a plain file is refused, extensions of the format too."""
    block = _exactly(path, file, _BLOCK)
    if not any(block):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, UnicodeDecodeError):
        raise BundleError(f"{path} is damaged, or not a tar file") from None
    if header.type != tarfile.REGTYPE or header.linkname:
        raise BundleError(f"{path}: {header.name!r} is not a plain file")
    if header.name != MANIFEST:
        check_name(header.name)
    if header.size < 0:
        raise BundleError(f"{path} is damaged: {header.name} has a negative size")
    return header


def _content(path: Path, file: IO[bytes], size: int) -> Iterator[bytes]:
    left = size
    while left:
        piece = _exactly(path, file, min(_PIECE, left))
        left -= len(piece)
        yield piece
    _exactly(path, file, -size % _BLOCK)


def _exactly(path: Path, file: IO[bytes], count: int) -> bytes:
    found = b""
    try:
        while len(found) < count and (piece := file.read(count - len(found))):
            found += piece
    except EOFError:
        found = b""
    except (OSError, zlib.error) as error:
        raise BundleError(f"{path} cannot be read or is damaged: {error}") from None
    if len(found) < count:
        raise BundleError(f"{path} is cut short")
    return found


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed + _SPARE > free:
        raise BundleError(f"{folder}: {needed:,} bytes needed, {free:,} free")
