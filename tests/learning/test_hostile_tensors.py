"""Files of tensors that are cut, damaged or made to do harm: an error that names the file, in bounded memory."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from mutations import damaged, in_little_memory, thorough
from safetensors.torch import save_file

from pipeline.learning.checkpoints import Checkpoint
from pipeline.learning.tensors import CheckpointError, load_tensors, save_tensors, tensors_sha256

TENSORS = {"weights": torch.arange(12.0).reshape(3, 4), "counts": torch.arange(5)}


def with_header(header: bytes, rest: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + rest


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "weights.safetensors"
    save_tensors(path, TENSORS, {"run": "a", "nested": {"loss": 0.5}})
    return path


def test_a_damaged_file(good: Path, tmp_path: Path) -> None:
    content = good.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header, rest = content[8 : 8 + length], content[8 + length :]
    path = tmp_path / "weights.safetensors"

    @thorough
    @given(whole=damaged(content), changed=damaged(header).map(lambda header: with_header(header, rest)))
    def check(whole: bytes, changed: bytes) -> None:
        for each in (whole, changed):
            path.write_bytes(each)
            try:
                tensors, _ = load_tensors(path, {"run": "a"})
            except CheckpointError as error:
                refusal = str(error)
            else:
                assert tensors_sha256(tensors) == tensors_sha256(TENSORS)
                continue
            assert str(path) in refusal

    check()


def test_a_damaged_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "key")
    checkpoint.save(TENSORS, {"epoch": 3}, force=True)
    content = checkpoint.path.read_bytes()

    @thorough
    @given(changed=damaged(content))
    def check(changed: bytes) -> None:
        checkpoint.path.write_bytes(changed)
        try:
            loaded = checkpoint.load("cpu")
        except CheckpointError as error:
            refusal = str(error)
        else:
            assert loaded is not None
            assert tensors_sha256(loaded[0]) == tensors_sha256(TENSORS)
            return
        assert str(checkpoint.path) in refusal

    check()


@pytest.mark.parametrize("header", [{}, {"state": 3}, {"state": {}}, {"tracked_run": "", "state": None}])
def test_a_checkpoint_without_a_state_is_named(tmp_path: Path, header: dict[str, object]) -> None:
    checkpoint = Checkpoint(tmp_path, "key")
    save_tensors(checkpoint.path, TENSORS, {"fingerprint": "key", **header})
    for read in (lambda: checkpoint.load("cpu"), checkpoint.written_by):
        with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors is not a checkpoint"):
            read()


def test_deeply_nested_metadata_is_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(2)}, path, {"capsules": "[" * 200_000 + "]" * 200_000})
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged \(maximum recursion depth"):
        load_tensors(path, {})
    path.write_bytes(with_header(b'{"a":' * 200_000, b""))
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged"):
        load_tensors(path, {})


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float8_e4m3fn])
def test_kinds_of_numbers_that_are_not_written_here_are_named(tmp_path: Path, kind: torch.dtype) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(2).to(kind)}, path, {"capsules": "{}"})
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged"):
        load_tensors(path, {})


def test_sizes_that_lie_are_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    imports = "from pipeline.learning.tensors import load_tensors"
    far = {"a": {"dtype": "F32", "shape": [10**10], "data_offsets": [0, 4 * 10**10]}}
    for content in (with_header(json.dumps(far).encode(), bytes(8)), struct.pack("<Q", 10**11) + b"{}"):
        path.write_bytes(content)
        assert f"1 {path} is damaged" in in_little_memory(path, imports, "load_tensors(path, {})", 100)


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="pipe is not a file"):
        load_tensors(tmp_path / "pipe", {})


def test_an_unreadable_file_is_not_called_damaged(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:  # root may read whatever its mode
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors cannot be read: Permission denied"):
        load_tensors(good, {})
