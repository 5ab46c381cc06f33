"""Archives: whole or not at all, and safe to open whoever made them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.bundles import archive
from pipeline.bundles.archive import BundleError, ChangedError, extract, write
from pipeline.errors import UserError
from pipeline.files import FileWriteError


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def listed(**files: bytes) -> dict[str, Any]:
    return {name: {"size": len(content), "sha256": sha256(content)} for name, content in files.items()}


def tar(path: Path, members: list[tuple[str, bytes] | tarfile.TarInfo], files: dict[str, Any], **about: Any) -> Path:
    """A tar file as somebody else may make it: with any members after its manifest."""
    manifest = json.dumps({"format": 1, "kind": "results", "files": files, **about}).encode()
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        for member in [("manifest.json", manifest), *members]:
            if isinstance(member, tarfile.TarInfo):
                out.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                out.addfile(info, io.BytesIO(member[1]))
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A text, noise, an empty file, and a copy of the noise."""
    source = tmp_path / "source"
    source.mkdir()
    noise = random.Random(0).randbytes(3000)
    contents = {"code/text.py": b"words " * 500, "noise.bin": noise, "empty": b"", "copy/of/noise.bin": noise}
    for name, content in contents.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(content)
    return {name: source / name for name in contents}


@pytest.mark.parametrize("once", [False, True])
def test_what_is_written_is_read(tmp_path: Path, files: dict[str, Path], once: bool) -> None:
    path = tmp_path / "all.tar"
    write(path, "results", {"answer": 42}, files, once=once)
    manifest = extract(path, "results", tmp_path / "out")
    assert manifest["answer"] == archive.read_manifest(path, "results")["answer"] == 42
    assert manifest["files"].keys() == files.keys()
    for name, source in files.items():
        assert (tmp_path / "out" / name).read_bytes() == source.read_bytes()
    with tarfile.open(path) as opened:
        names = opened.getnames()
    assert names[0] == "manifest.json"
    assert ("copy/of/noise.bin" in names) == (not once)


def test_the_same_files_give_the_same_bytes(tmp_path: Path, files: dict[str, Path]) -> None:
    write(tmp_path / "a.tar", "results", {}, files)
    for source in files.values():
        os.utime(source, (1, 1))
    write(tmp_path / "b.tar", "results", {}, files)
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_only_what_shrinks_is_compressed(tmp_path: Path, files: dict[str, Path]) -> None:
    write(tmp_path / "text.tar", "results", {}, {"text": files["code/text.py"]})
    write(tmp_path / "noise.tar", "results", {}, {"noise": files["noise.bin"]})
    assert (tmp_path / "text.tar").read_bytes()[:2] == b"\x1f\x8b"
    assert (tmp_path / "noise.tar").read_bytes()[:2] != b"\x1f\x8b"


@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_cut_anywhere_is_refused(tmp_path: Path, files: dict[str, Path], compressed: bool) -> None:
    write(tmp_path / "all.tar", "results", {}, files)
    with gzip.open(tmp_path / "all.tar") as file:
        content = file.read()
    content = gzip.compress(content) if compressed else content
    cut = tmp_path / "cut.tar"
    assert len(content) > 3000
    # The second of the two empty blocks at the end says nothing new, nor does gzip's own end.
    sizes = {*range(0, len(content) - 1100, 97), 1, 511, 512, 513, len(content) - 1200} if not compressed else {
        *range(0, len(content) - 60, 41), 1, 2, 9, 10, 11,
    }  # fmt: skip
    for size in sorted(sizes):
        cut.write_bytes(content[:size])
        with pytest.raises(BundleError):
            extract(cut, "results", tmp_path / "out")
        assert not (tmp_path / "out").exists(), size
    assert {path.name for path in tmp_path.iterdir()} == {"all.tar", "cut.tar", "source"}


def test_a_flipped_bit_is_noticed(tmp_path: Path, files: dict[str, Path]) -> None:
    write(tmp_path / "all.tar", "results", {}, files)
    with gzip.open(tmp_path / "all.tar") as file:
        content = file.read()
    end = len(content) - 2 * 512
    dice = random.Random(1)
    for count in range(300):
        at = dice.randrange(end)
        changed = bytearray(content)
        changed[at] ^= 1 << dice.randrange(8)
        (tmp_path / "bad.tar").write_bytes(changed)
        folder = tmp_path / f"out-{count}"
        try:
            extract(tmp_path / "bad.tar", "results", folder)
        except BundleError:
            assert not folder.exists()
        else:  # padding, or what a header says of times and owners
            assert all((folder / name).read_bytes() == source.read_bytes() for name, source in files.items())


OUTSIDE = ["/etc/x", "../x", "a/../../x", "a/../x", "./x", "a//x", "a/", ".", "..", "", "a\\x", "a\nx", "manifest.json"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    entry = {"size": 1, "sha256": sha256(b"x")}
    with pytest.raises(BundleError, match="is not the name of a file inside a bundle"):
        extract(tar(tmp_path / "a.tar", [], {name: entry}), "results", tmp_path / "out")
    if name:
        with pytest.raises(BundleError):
            extract(tar(tmp_path / "b.tar", [(name, b"x")], {"x": entry}), "results", tmp_path / "out")
    source = tmp_path / "x"
    source.write_bytes(b"x")
    with pytest.raises(BundleError):
        write(tmp_path / "c.tar", "results", {}, {name: source})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_only_plain_files_are_taken(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("x")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(BundleError, match="'x' is not a plain file"):
        extract(tar(tmp_path / "a.tar", [member], listed(x=b"")), "results", tmp_path / "out")


def test_a_link_cannot_be_hidden_in_an_extended_header(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    content = json.dumps({"format": 1, "kind": "results", "files": listed(x=b"y")}).encode()
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as out:
        info = tarfile.TarInfo("manifest.json")
        info.size = len(content)
        out.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("x")
        info.size, info.pax_headers = 1, {"path": "../outside"}
        out.addfile(info, io.BytesIO(b"y"))
    with pytest.raises(BundleError, match="is not a plain file"):
        extract(path, "results", tmp_path / "out")
    assert not (tmp_path / "outside").exists()


def test_lying_sizes_are_refused_before_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = listed(x=b"xyz")
    more = {"x": {**true["x"], "size": 10**15}}
    with pytest.raises(BundleError, match="more than it can hold"):
        extract(tar(tmp_path / "a.tar", [("x", b"xyz")], more), "results", tmp_path / "out")
    less = {"x": {**true["x"], "size": 2}}
    with pytest.raises(BundleError, match="x has 3 bytes, by its manifest 2"):
        extract(tar(tmp_path / "b.tar", [("x", b"xyz")], less), "results", tmp_path / "out")
    copies = {f"x{number}": {**true["x"]} for number in range(3)}
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda _: type("Usage", (), {"free": (1 << 20) + 8})())
    with pytest.raises(BundleError, match="9 bytes needed"):
        extract(tar(tmp_path / "c.tar", [("x0", b"xyz")], copies), "results", tmp_path / "out")
    monkeypatch.setattr(archive.shutil, "disk_usage", lambda _: type("Usage", (), {"free": (1 << 20) + 9})())
    extract(tmp_path / "c.tar", "results", tmp_path / "out")


def test_a_small_file_cannot_unpack_to_a_large_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zeros = bytes(8 << 20)
    plain = tar(tmp_path / "a.tar", [("x", zeros)], listed(x=zeros))
    (tmp_path / "b.tar").write_bytes(gzip.compress(plain.read_bytes()))
    small = tar(tmp_path / "c.tar", [("x", zeros)], {"x": {"size": 1, "sha256": sha256(b"x")}})
    with pytest.raises(BundleError, match=r"x has .* bytes, by its manifest 1"):
        extract(small, "results", tmp_path / "out")
    claimed = {"x": {"size": 10**12, "sha256": sha256(zeros)}}
    (tmp_path / "d.tar").write_bytes(gzip.compress(tar(tmp_path / "e.tar", [("x", zeros)], claimed).read_bytes()))
    with pytest.raises(BundleError, match="more than it can hold"):
        extract(tmp_path / "d.tar", "results", tmp_path / "out")
    monkeypatch.setattr(archive, "MANIFEST_BYTES", 50)
    with pytest.raises(BundleError, match="claims a manifest of"):
        extract(plain, "results", tmp_path / "out")


@pytest.mark.parametrize(
    ("members", "files", "said"),
    [
        ([("x", b"xyz")], {}, "holds 'x', which its manifest does not list"),
        ([], listed(x=b"xyz"), "incomplete: x is missing"),
        ([("x", b"xyZ")], listed(x=b"xyz"), "x does not match its SHA-256"),
        ([("x", b"xyz"), ("x", b"xyz")], listed(x=b"xyz"), "holds x twice"),
        ([("x", b"xyz")], {**listed(x=b"xyz"), "y": {"size": 2, "sha256": sha256(b"xyz")}}, "y is missing"),
        ([], {"x": {"size": True, "sha256": "0" * 64}}, "no size and SHA-256 of x"),
        ([], {"x": {"size": -1, "sha256": "0" * 64}}, "no size and SHA-256 of x"),
        ([], {"x": {"size": 1, "sha256": "0" * 63}}, "no size and SHA-256 of x"),
        ([], {"x": 3}, "no size and SHA-256 of x"),
        ([], [], "lists no files"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes]], files: dict[str, Any], said: str
) -> None:
    with pytest.raises(BundleError, match=said):
        extract(tar(tmp_path / "a.tar", list(members), files), "results", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_no_archive_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with pytest.raises(BundleError, match="no such file"):
        extract(path, "results", tmp_path / "out")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match="no such file"):
        extract(tmp_path / "pipe", "results", tmp_path / "out")
    for content in (b"", b"short", b"x" * 5000, b"\x1f\x8b not gzip" * 100, bytes(5000), b"[" * 5000):
        path.write_bytes(content)
        with pytest.raises(BundleError, match=r"cut short|damaged|does not begin with a manifest"):
            extract(path, "results", tmp_path / "out")
    with pytest.raises(BundleError, match="another format"):
        extract(tar(path, [], {}, format=2), "results", tmp_path / "out")
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as out:
        info = tarfile.TarInfo("manifest.json")
        info.size = 100_000
        out.addfile(info, io.BytesIO(b"[" * 100_000))
    with pytest.raises(BundleError, match="is not JSON"):
        extract(path, "results", tmp_path / "out")


def test_folders_that_are_in_use_are_left_alone(tmp_path: Path, files: dict[str, Path]) -> None:
    write(tmp_path / "all.tar", "results", {}, files)
    (tmp_path / "out").mkdir()
    extract(tmp_path / "all.tar", "results", tmp_path / "out")
    with pytest.raises(BundleError, match="exists already"):
        extract(tmp_path / "all.tar", "results", tmp_path / "out")
    (tmp_path / "file").write_text("a file")
    with pytest.raises(UserError):
        extract(tmp_path / "all.tar", "results", tmp_path / "file" / "out")


def test_a_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "all.tar", "results", {}, files)
    opened = Path.open

    def full(self: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if mode == "wb":
            raise OSError(28, "No space left on device")
        return opened(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(FileWriteError, match="No space left"):
        extract(tmp_path / "all.tar", "results", tmp_path / "out")
    with pytest.raises(FileWriteError, match="disk is full"):
        write(tmp_path / "more.tar", "results", {}, files)
    assert {path.name for path in tmp_path.iterdir()} == {"all.tar", "source"}


def test_a_file_that_changes_while_it_is_packed_is_noticed(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = archive.digest(files["noise.bin"])
    monkeypatch.setattr(archive, "digest", lambda _: states)
    files["noise.bin"].write_bytes(files["noise.bin"].read_bytes() + b"more")
    with pytest.raises(ChangedError, match=r"noise\.bin changed while it was packed"):
        write(tmp_path / "all.tar", "results", {}, {"noise.bin": files["noise.bin"]})
    with pytest.raises(BundleError, match=r"cannot read .*gone: No such file"):
        write(tmp_path / "all.tar", "results", {}, {"gone": tmp_path / "gone"})
    assert not (tmp_path / "all.tar").exists()
