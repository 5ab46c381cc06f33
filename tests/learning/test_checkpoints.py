"""Files of tensors, and checkpoints in mid-training: found again by what they depend on, and by nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipeline.errors import UserError
from pipeline.learning.checkpoints import (
    Checkpoint,
    code_fingerprint,
    load_tensors,
    save_tensors,
    tensors_sha256,
)


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
    loaded, found = load_tensors(path)
    assert found == {**header, "sha256": tensors_sha256(tensors)}
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(loaded[name], tensor)
        assert loaded[name].dtype == tensor.dtype
        assert not loaded[name].requires_grad
    assert [each.name for each in path.parent.iterdir()] == ["a file.safetensors"]


def test_what_cannot_be_used_is_named(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, tensors, {"run": "b"})
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-3] ^= 4
    for content in (whole[:0], whole[:40], whole[:-1], changed, b"no tensors at all", b"\x80\x04pickle"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"weights\.safetensors is damaged"):
            load_tensors(path)
    for metadata in (None, {"capsules": "[1, 2]"}):
        save_file({"a": torch.zeros(2)}, path, metadata)
        with pytest.raises(UserError, match=r"weights\.safetensors was not written by this pipeline"):
            load_tensors(path)
    with pytest.raises(UserError, match=f"{tmp_path} cannot be read"):  # not called damaged
        load_tensors(tmp_path)


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


def test_code_is_part_of_it_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "models" / "inner").mkdir(parents=True)
    (tmp_path / "reports").mkdir()
    (tmp_path / "models" / "a.py").write_text("1")
    (tmp_path / "compute.py").write_text("1")

    def code() -> str:
        return code_fingerprint(tmp_path, ["models", "compute.py"])

    found = {code()}
    (tmp_path / "reports" / "b.py").write_text("2")
    (tmp_path / "models" / "notes.md").write_text("2")
    assert code() in found, "another package does not matter, nor what is no code"
    assert code_fingerprint(tmp_path, ["compute.py", "models"]) in found
    assert code_fingerprint(tmp_path, ["compute.py", "models", "models/inner", "models/a.py"]) in found
    changes = ("models/a.py", "models/inner/c.py", "models/d.py", "models/kernel.cpp", "models/shared.h", "compute.py")
    for change in changes:
        (tmp_path / change).write_text("changed")
        found.add(code())
    shutil.copytree(tmp_path / "models", tmp_path / "elsewhere" / "models")
    assert code_fingerprint(tmp_path / "elsewhere", ["models"]) == code_fingerprint(tmp_path, ["models"])
    (tmp_path / "models" / "d.py").rename(tmp_path / "models" / "e.py")
    found.add(code())
    assert len(found) == 8


def test_saves_are_spaced_unless_they_are_forced(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "abc", interval=1000)

    def saved(value: float, force: bool = False) -> float:
        checkpoint.save({"w": torch.tensor(value)}, {}, force)
        loaded = checkpoint.load("cpu")
        assert loaded is not None
        return loaded[0]["w"].item()

    assert [saved(1), saved(2), saved(3, force=True), saved(4)] == [1, 1, 3, 3]
    checkpoint.interval = 0
    assert saved(5) == 5
