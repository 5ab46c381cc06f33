"""Compiles C++ kernels at set-up, and loads them when a model runs.

A kernel is one C++ file in the folder of the module that calls it. All kernels include `kernels.h`. `python -m pipeline
kernels` compiles every kernel once for each instruction set that this kind of processor may have, such as AVX2. Each
result is a *form* of the kernel, in one file. A machine loads the form for its own processor, so all machines of a
cluster can use the same files. File names contain a hash of source, headers and flags, so no outdated kernel is loaded.
The files are in a folder of the Python environment. Without them, models use PyTorch's operators, and are slower.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import UserError
from pipeline.files import atomic_path

if TYPE_CHECKING:
    from torch import Tensor

_PACKAGE = Path(__file__).resolve().parent
# Not -ffast-math: it changes the order of sums, and simplifies "x + large - large", with which kernels round x, to x.
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-pthread", "-Wno-psabi")


Struct = ctypes.Structure
"""A C struct that a kernel gets as an argument: numbers and addresses of tensors. The function `struct` makes it."""


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel: its library, its form (the name of an instruction set), and its lanes (floats in a vector)."""

    library: ctypes.CDLL
    form: str
    lanes: int

    def call(self, function: str, *arguments: Struct | Tensor | None) -> None:
        """Call a function of the library with the addresses of `arguments`. Raises `MemoryError` if there is not enough
        memory. The caller must keep references to the tensors until the function returns.
        """
        if getattr(self.library, function)(*map(address, arguments)):
            raise MemoryError(f"{function}: not enough memory; a smaller batch needs less")

    def kept_floats(self, layout: Struct) -> int:
        """Number of floats that a forward pass keeps for the backward pass, per batch (in EM routing, per image)."""
        self.library.kept_floats.restype = ctypes.c_int64  # ctypes would assume 32 bits
        return int(self.library.kept_floats(ctypes.byref(layout)))


def address(of: Struct | Tensor | None) -> ctypes.c_void_p:
    """The address of a struct or of a tensor's numbers (null for None). The address does not keep the object alive."""
    if isinstance(of, Struct):
        return ctypes.c_void_p(ctypes.addressof(of))
    return ctypes.c_void_p(None if of is None else of.data_ptr())


def struct(**fields: Any) -> Struct:
    """Make a struct from fields, given in the order in which C++ declares them. An int or a bool becomes an int64_t,
    a Python float a float, a `c_double` a double, and a tensor or None a pointer. The struct keeps no tensor alive.
    """
    values = fields.values()
    layout = _layout(tuple(fields), tuple(map(type, values)))
    return layout(*(each.data_ptr() if hasattr(each, "data_ptr") else each for each in values))


@functools.cache
def _layout(names: tuple[str, ...], kinds: tuple[type, ...]) -> type[Struct]:
    types: dict[type, Any] = {float: ctypes.c_float, ctypes.c_double: ctypes.c_double}
    types |= dict.fromkeys((int, bool), ctypes.c_int64)
    fields = [(name, types.get(kind, ctypes.c_void_p)) for name, kind in zip(names, kinds, strict=True)]
    return type("Struct", (Struct,), {"_fields_": fields})


def sources() -> list[Path]:
    """All C++ files of the project."""
    return sorted(_PACKAGE.rglob("*.cpp"))


def forms() -> dict[str, tuple[str, ...]]:
    """Compiler flags by form. On x86, forms have the names that `torch.backends.cpu.get_cpu_capability()` returns."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return {"DEFAULT": ()}
    avx2 = ("-mavx2", "-mfma")
    return {"AVX512": (*avx2, "-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl"), "AVX2": avx2}


def compiler() -> str | None:
    """Path of the C++ compiler: `$CXX` if set, else the first found of c++, g++ and clang++; None if there is none."""
    candidates = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((found for name in candidates if (found := shutil.which(name))), None)


def compiler_advice() -> str:
    """A message that says why `compiler` finds no compiler, and what to do."""
    if chosen := os.environ.get("CXX"):
        return f"CXX is {chosen}, a compiler that was not found: correct CXX, or unset it"
    return "no C++ compiler was found (Debian, Ubuntu: apt install g++)"


def folder() -> Path:
    """The folder of compiled kernels, in the Python environment."""
    return Path(sysconfig.get_path("platlib")) / "capsules_kernels"


def build() -> list[Path]:
    """Compile missing kernels. Returns all kernels' paths. Raises `UserError` if the compiler is missing or fails."""
    program = compiler()
    if program is None:
        raise UserError(compiler_advice())
    wanted = [(source, _path(source, form), flags) for source in sources() for form, flags in forms().items()]
    missing = [each for each in wanted if not each[1].exists()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda each: _compile(program, *each), missing))
    return [path for _, path, _ in wanted]


def _compile(program: str, source: Path, path: Path, flags: tuple[str, ...]) -> None:
    with atomic_path(path) as result:
        command = [program, *_FLAGS, *flags, f"-I{_PACKAGE}", "-o", str(result), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"{program} failed on {source.name}: {' '.join(done.stderr.split())[-500:]}")


def _path(source: Path, form: str) -> Path:
    flags = " ".join((*_FLAGS, *forms()[form])).encode()
    headers = sorted(_PACKAGE.glob("*.h"))  # any source may include them
    parts = (*(each.read_bytes() for each in (source, *headers)), flags)
    content = b"".join(hashlib.sha256(each).digest() for each in parts)
    return folder() / f"{source.stem}-{form}-{hashlib.sha256(content).hexdigest()[:16]}.so"


def find(source: Path, form: str | None = None) -> Kernel | None:
    """Load the kernel compiled from `source` for `form` (by default this processor's). None if it cannot be loaded."""
    if form is None:
        import torch

        form = "DEFAULT" if "DEFAULT" in forms() else torch.backends.cpu.get_cpu_capability()
    if form in forms():
        with suppress(OSError):  # the file is missing, damaged, or for another system
            return Kernel(ctypes.CDLL(str(_path(source, form))), form, 16 if form == "AVX512" else 8)
    return None


@functools.cache
def load(source: Path) -> Kernel | None:
    """The same as `find`, but a process loads each kernel only once. Logs a warning if the kernel cannot be loaded."""
    kernel = find(source)
    if kernel is None:
        logging.getLogger(__name__).warning(
            "%s is not compiled for this processor: slower PyTorch operators are used (see python -m pipeline doctor)",
            source.name,
        )
    return kernel
