"""Named tensors with a JSON header in one safetensors file: trained weights and checkpoints during training."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pipeline.errors import UserError
from pipeline.files import atomic_path

_HEADER = "capsules"


class CheckpointError(UserError):
    """A file of tensors is missing, damaged, or belongs to something else."""


def save_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write `tensors` and a JSON `header` to `path`, atomically. Raises `FileWriteError`.

    The header also gets the tensors' `sha256`, which is checked when they are loaded: the format itself would not
    notice a changed number.
    """
    detached = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    header = {**header, "sha256": tensors_sha256(detached)}
    with atomic_path(path) as temporary:
        try:
            save_file(detached, temporary, metadata={_HEADER: json.dumps(header)})
        except SafetensorError as error:
            # The library reports a failed write only as text, with the system's error number in brackets.
            number = re.search(r"os error (\d+)", str(error))
            raise OSError(int(number[1]) if number else 0, str(error)) from error


def tensors_sha256(tensors: dict[str, Tensor]) -> str:
    """A hash of the names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name].detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def load_tensors(
    path: Path, expected: dict[str, Any], device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict]:
    """Read what `save_tensors` wrote.

    Args:
        expected: keys and values that the header must have.

    Returns:
        the tensors by name, and the header with their `sha256`.

    Raises:
        CheckpointError: the file is missing or damaged, or its header differs from `expected`. The message names it.
    """
    if not path.exists():
        raise CheckpointError(f"{path} is missing. Get it back with `dvc pull`, or train again with `dvc repro`.")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = json.loads((file.metadata() or {}).get(_HEADER, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged ({error}). Delete it and run again.") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path} was not written by this pipeline. Delete it and run again.")
    for key, value in expected.items():
        if header.get(key) != value:
            raise CheckpointError(
                f"{path} belongs to something else: {key} {header.get(key)!r} instead of {value!r}. "
                "Delete it and run again."
            )
    if header.get("sha256") != tensors_sha256(tensors):
        raise CheckpointError(f"{path} is damaged (its numbers do not match their hash). Delete it and run again.")
    return tensors, header
