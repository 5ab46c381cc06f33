"""The free memory, and a check that data or models fit into it."""

from pathlib import Path

import psutil
from tqdm import tqdm

from pipeline.errors import UserError

_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""The file with the memory limit of a container. psutil does not know this limit."""

COPIES = 3
"""Copies of the pixels during training: the data set, its parts (training, test, ...), and the parts on the device."""

WEIGHT_COPIES = 6
"""Copies of the weights during training: trained, evaluated and best weights, gradients, and Adam's two moments."""


def available_bytes() -> int:
    """Bytes of memory that can be used without swapping, or the container's memory limit if this is lower."""
    available = int(psutil.virtual_memory().available)
    try:
        limit = _LIMIT.read_text(encoding="ascii").strip()
    except OSError:
        return available
    return min(available, int(limit)) if limit.isdecimal() else available


def readable(count: float) -> str:
    """A number of bytes as text, such as "5.20GB"."""
    return str(tqdm.format_sizeof(count, "B"))


def check_fits(needed: int, what: str, advice: str) -> None:
    """Raise `UserError` if fewer than `needed` bytes are free. The message has `what` first and `advice` last."""
    if needed > (free := available_bytes()):
        raise UserError(f"{what}: about {readable(needed)} of memory needed, {readable(free)} free. {advice}")
