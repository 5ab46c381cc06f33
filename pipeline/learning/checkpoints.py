"""Checkpoints during training, identified by everything that they depend on.

A training's fingerprint is a hash of its parameters, data and code. Its checkpoint is in a folder with that name. So
training with a changed parameter never uses an old checkpoint, and changing it back finds the old one again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.files import json_sha256, sha256
from pipeline.learning.tensors import load_tensors, save_tensors


def fingerprint(**dependencies: Any) -> str:
    """A hash of everything a training depends on: JSON values by name."""
    return json_sha256(dependencies)[:16]


def code_fingerprint(root: Path, places: Iterable[str]) -> str:
    """A hash of source files: Python and C++.

    Args:
        places: files, and folders whose Python and C++ files are all included; relative to `root`.
    """
    files: set[Path] = set()
    for place in places:
        path = root / place
        files |= {path} if path.is_file() else {each for kind in ("py", "cpp", "h") for each in path.rglob(f"*.{kind}")}
    return json_sha256({file.relative_to(root).as_posix(): sha256(file) for file in sorted(files)})


class Checkpoint:
    """The latest state of one training, in one file replaced atomically.

    Args:
        folder: folder of all checkpoints.
        key: the training's fingerprint.
        interval: minimum seconds between two saves that are not forced, so that checkpoints cost little time.

    Attributes:
        tracked_run: id of the tracked run, stored with the state in later saves.
    """

    def __init__(self, folder: Path, key: str, interval: float = 10.0) -> None:
        self.path = folder / key / "checkpoint.safetensors"
        self.key, self.interval = key, interval
        self.tracked_run = ""
        self._saved = -float("inf")

    def load(self, device: torch.device | str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last saved tensors and JSON state, or None if there is no checkpoint.

        Raises:
            CheckpointError: the file is damaged or belongs to another training.
        """
        if not self.path.exists():
            return None
        tensors, header = self._load(device)
        return tensors, header["state"]

    def written_by(self) -> str:
        """The id of the tracked run stored in the checkpoint; empty if there is no checkpoint.

        Raises:
            CheckpointError: as `load`.
        """
        return str(self._load("cpu")[1]["tracked_run"]) if self.path.exists() else ""

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any], force: bool = False) -> None:
        """Save `tensors` and the JSON `state`, unless the last save was less than `interval` seconds ago."""
        if force or time.monotonic() - self._saved >= self.interval:
            save_tensors(self.path, tensors, {"fingerprint": self.key, "tracked_run": self.tracked_run, "state": state})
            self._saved = time.monotonic()

    def _load(self, device: torch.device | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return load_tensors(self.path, {"fingerprint": self.key}, device)
