"""Files of tensors: what is written comes back, and whatever is not ours is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipeline.learning.checkpoints import CheckpointError, load_tensors, save_tensors, tensors_sha256


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


def test_what_cannot_be_used_is_named(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, tensors, {"run": "b"})
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-3] ^= 4
    for content in (whole[:0], whole[:40], whole[:-1], changed, b"no tensors at all", b"\x80\x04pickle"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"weights\.safetensors is damaged"):
            load_tensors(path, {})
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors belongs .*: run 'b' instead of 'a'"):
        load_tensors(path, {"run": "a"})
    for metadata in (None, {"capsules": "[1, 2]"}):
        save_file({"a": torch.zeros(2)}, path, metadata)
        with pytest.raises(CheckpointError, match=r"weights\.safetensors was not written by this pipeline"):
            load_tensors(path, {})
    path.unlink()
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is missing"):
        load_tensors(path, {})


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
