"""Choice of the device (CPU or GPU), and settings of precision and memory for numerical work."""

import ctypes
import platform
import sys
from contextlib import suppress
from pathlib import Path

import torch

from pipeline.errors import UserError


def choose_device(wanted: str) -> torch.device:
    """The device for `cpu`, `cuda` or `auto` (a GPU if there is one). Raises `UserError` for `cuda` without a GPU."""
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("device: cuda, but torch finds no NVIDIA GPU. Set device to auto or cpu in params.yaml.")
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def prepare(device: torch.device) -> None:
    """Set up this process for `device`: float32 without TF32, no checks by Pyro and, on the CPU, few page faults."""
    import pyro

    # Pyro's checks branch on values of tensors, which would make the program wait for the GPU. Tests enable the checks.
    pyro.enable_validation(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if device.type == "cpu":
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the kernel.

    Every training step allocates and frees the same few hundred megabytes. By default, each large block is mapped anew,
    with a page fault for every page. A step of the capsule model takes 0.39 s by default, and 0.27 s if memory is kept.
    """
    if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
        m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4
        libc = ctypes.CDLL(None)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 64 << 20)


def describe(device: torch.device) -> str:
    """A description of the device for provenance: the GPU's name, or the CPU's name and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return f"CPU ({name}, {torch.get_num_threads()} threads)"
