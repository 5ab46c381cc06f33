"""Stores trained weights, and checkpoints of trainings, in safetensors files with a JSON header.

A training's fingerprint is a hash of its settings, data and code. The fingerprint is also the name of the folder of
its checkpoint. So a training with a changed setting never uses an old checkpoint. If the setting is changed back, the
old checkpoint is used again.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pipeline.errors import UserError
from pipeline.files import atomic_path, json_sha256, sha256

_HEADER = "capsules"


def save_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write `tensors` and a JSON `header` to `path`, atomically. Raises `UserError` if this fails.

    This function adds the tensors' `sha256` to the header, and `load_tensors` checks it. The file format itself would
    not detect a changed number.
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
    """The SHA-256 of the tensors' names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name].detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def load_tensors(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load tensors and header. Raises `UserError` if the file is missing, damaged or not from `save_tensors`."""
    if not path.exists():
        raise UserError(f"{path} is missing. Get it back with `dvc pull`, or train again with `dvc repro`.")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            header = json.loads((file.metadata() or {}).get(_HEADER, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except OSError as error:  # some such errors do not name the file
        raise UserError(f"{path} cannot be read: {error}") from error
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}). Delete it and run again.") from error
    if not isinstance(header, dict):
        raise UserError(f"{path} was not written by this pipeline. Delete it and run again.")
    if header.get("sha256") != tensors_sha256(tensors):
        raise UserError(f"{path} is damaged (its numbers do not match their hash). Delete it and run again.")
    return tensors, header


def fingerprint(**dependencies: Any) -> str:
    """A hash (16 hexadecimal digits) of everything that a training depends on. `dependencies` are JSON values."""
    return json_sha256(dependencies)[:16]


def code_fingerprint(root: Path, places: Iterable[str]) -> str:
    """A hash of the source files (Python and C++) in `places`: files or folders, relative to `root`."""
    files: set[Path] = set()
    for place in places:
        path = root / place
        files |= {path} if path.is_file() else {each for kind in ("py", "cpp", "h") for each in path.rglob(f"*.{kind}")}
    return json_sha256({file.relative_to(root).as_posix(): sha256(file) for file in sorted(files)})


class Checkpoint:
    """The latest state of one training, in a file that is replaced atomically. The name of its folder is the training's
    fingerprint `key`.

    At least `interval` seconds pass between two saves, so that saving takes little time. Forced saves do not wait.
    """

    def __init__(self, folder: Path, key: str, interval: float = 10.0) -> None:
        self.path = folder / key / "checkpoint.safetensors"
        self.interval = interval
        self._saved = -float("inf")

    def load(self, device: torch.device | str) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The last saved tensors and JSON state, or None without a file. Raises `UserError` if the file is damaged."""
        if not self.path.exists():
            return None
        tensors, header = load_tensors(self.path, device)
        return tensors, header["state"]

    def save(self, tensors: dict[str, Tensor], state: dict[str, Any], force: bool = False) -> None:
        """Save `tensors` and the JSON `state`. Without `force`, do nothing for `interval` seconds after a save."""
        if force or time.monotonic() - self._saved >= self.interval:
            save_tensors(self.path, tensors, {"state": state})
            self._saved = time.monotonic()
