"""Files of tensors: what is written comes back, and whatever is not ours is refused by name."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipeline.files import FileWriteError
from pipeline.learning.tensors import CheckpointError, load_tensors, save_tensors, tensors_sha256

ROOT = Path(__file__).parents[1]


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    return {
        "weights": torch.randn(3, 4),
        "counts": torch.arange(5),
        "turned": torch.arange(6.0).reshape(2, 3).T,  # not contiguous
        "learnt": torch.ones(2, requires_grad=True),
    }


def test_tensors_and_header_come_back_to_the_bit(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path = tmp_path / "new folder" / "a file.safetensors"
    header = {"run": "a", "seeds": [0, 1], "nested": {"loss": 0.1 + 0.2, "none": None}}
    save_tensors(path, tensors, header)
    loaded, found = load_tensors(path, {"run": "a"})
    assert found == {**header, "sha256": tensors_sha256(tensors)}
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor)
        assert loaded[name].dtype == tensor.dtype
        assert not loaded[name].requires_grad
    assert [each.name for each in path.parent.iterdir()] == ["a file.safetensors"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is missing") as caught:
        load_tensors(tmp_path / "weights.safetensors", {})
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("keep", [0, 5, 40, -1])
def test_a_truncated_file_is_named(tmp_path: Path, tensors: dict[str, torch.Tensor], keep: int) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, tensors, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged .* Delete it and run again"):
        load_tensors(path, {})


@pytest.mark.parametrize("content", [b"no tensors at all", b"\x80\x04pickle", b"\xff" * 64, b"PK\x03\x04" + b"\0" * 60])
def test_something_else_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged"):
        load_tensors(path, {})


def test_a_folder_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "weights.safetensors").mkdir()
    with pytest.raises(CheckpointError, match=r"weights\.safetensors"):
        load_tensors(tmp_path / "weights.safetensors", {})


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}])
def test_tensors_of_another_program_are_named(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(2)}, path, metadata)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors was not written by this pipeline"):
        load_tensors(path, {"run": "a"})


@pytest.mark.parametrize("header", ["not JSON", "[1, 2]", '"text"', "null"])
def test_a_header_that_is_none_is_named(tmp_path: Path, header: str) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(2)}, path, {"capsules": header})
    with pytest.raises(CheckpointError, match=r"weights\.safetensors (is damaged|was not written by this pipeline)"):
        load_tensors(path, {"run": "a"})


@pytest.mark.parametrize(("found", "shown"), [({"run": "b"}, "'b'"), ({}, "None")])
def test_a_foreign_file_is_named_with_what_differs(tmp_path: Path, found: dict[str, str], shown: str) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"a": torch.zeros(2)}, found)
    with pytest.raises(CheckpointError) as caught:
        load_tensors(path, {"run": "a"})
    assert str(caught.value).startswith(f"{path} belongs to something else: run {shown} instead of 'a'")


def test_a_full_disk_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"a": torch.zeros(10)}, {"run": "a"})
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(FileWriteError, match=r"cannot write .*weights\.safetensors: the file exceeds the allowed"):
            save_tensors(path, {"a": torch.zeros(100_000)}, {"run": "a"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts a small file system: needs root")
def test_a_disk_that_is_really_full_is_called_so(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a file system here")
    try:
        path = folder / "weights.safetensors"
        save_tensors(path, {"a": torch.zeros(10)}, {"run": "a"})
        with pytest.raises(FileWriteError, match=r"cannot write .*weights\.safetensors: the disk is full"):
            save_tensors(path, {"a": torch.zeros(100_000)}, {"run": "a"})
        assert torch.equal(load_tensors(path, {"run": "a"})[0]["a"], torch.zeros(10))
        assert list(folder.iterdir()) == [path]
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileWriteError, match=r"cannot write .*weights\.safetensors: one of .* is a file\.$"):
        save_tensors(tmp_path / "file" / "weights.safetensors", {"a": torch.zeros(1)}, {})


def test_everybody_can_read_what_the_owner_can(tmp_path: Path) -> None:
    """Libraries make files that only their owner can read."""
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"a": torch.zeros(1)}, {})
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_hash_of_tensors_tells_names_types_shapes_and_values_apart() -> None:
    first = {"a": torch.zeros(2, 3), "b": torch.ones(1)}
    assert tensors_sha256(first) == tensors_sha256({"b": torch.ones(1), "a": torch.zeros(2, 3)})
    others = [
        {"a": torch.zeros(3, 2), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3), "c": torch.ones(1)},
        {"a": torch.zeros(2, 3), "b": torch.ones(1, dtype=torch.float64)},
        {"a": torch.full((2, 3), 1e-7), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3)},
    ]
    assert len({tensors_sha256(each) for each in (first, *others)}) == 6


def test_a_changed_number_is_found(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"a": torch.arange(8.0)}, {})
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="its numbers do not match their hash"):
        load_tensors(path, {})


def test_the_hash_is_returned_with_the_header(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(2)}
    save_tensors(tmp_path / "weights.safetensors", tensors, {"of": "me"})
    assert load_tensors(tmp_path / "weights.safetensors", {})[1] == {"of": "me", "sha256": tensors_sha256(tensors)}
