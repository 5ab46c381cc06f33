"""What a checkpoint says of itself, read from its header: neither torch nor its tensors are loaded."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER_BYTES = 64 << 20  # most of a header: it has the history of a training


@dataclass(frozen=True)
class About:
    """A checkpoint.

    Attributes:
        tracked_run: id of the tracked run that wrote it; "" if it cannot be read.
        epoch: the epochs that are done; -1 if it cannot be read.
    """

    tracked_run: str = ""
    epoch: int = -1


def about_checkpoint(path: Path) -> About:
    """What the file of a checkpoint says; of one that is missing or damaged, nothing."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(length)) if length <= _HEADER_BYTES else {}
        stored = json.loads(header["__metadata__"]["capsules"])
        return About(str(stored["tracked_run"]), int(stored["state"].get("epoch", -1)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        return About()
