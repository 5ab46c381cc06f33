"""A second device with values, on a machine without a GPU: it keeps its tensors in the CPU's memory, and refuses what a
GPU refuses.

Its tensors are a subclass whose device is PyTorch's `meta`: autograd, vmap and Pyro work with it, and no compiled
kernel of this project does. Every operation computes on the CPU, or raises if it is given tensors of both devices. So
code gives the same numbers on it as on the CPU, or fails where a GPU would. What it cannot show: speed, memory, the
rounding of a GPU's own kernels, CUDA graphs, and branches on `device.type == "cuda"`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import safetensors
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from pipeline.learning import tensors

GPU = torch.device("meta")
CPU = torch.device("cpu")

_aten = torch.ops.aten
_COPIES = {_aten._to_copy.default, _aten.copy_.default}
_INDEXED = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default}
"""A tensor of a GPU may be indexed by one of the CPU, but not the other way round."""
_ALIKE = {_aten.cat.default, _aten.stack.default, _aten.mm.default, _aten.bmm.default, _aten.dot.default}
"""They take not even a single number from the CPU; elementwise operations do."""
_WAITING = {_aten._local_scalar_dense.default, _aten.nonzero.default, _aten.masked_select.default}
"""The CPU waits for their results, or for the shapes of these."""


class OnGPU(Tensor):
    """A tensor of the pretended GPU.

    Attributes:
        values: the same tensor on the CPU.
    """

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> OnGPU:
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls,
            values.size(),
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            layout=values.layout,
            device=GPU,
        )

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __repr__(self, **_: Any) -> str:
        return f"OnGPU({self.values!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("a tensor of the GPU cannot be converted to numpy")

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return _run(func, args, dict(kwargs or {}))


def _run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Compute on the CPU; the results are on the GPU if the arguments are, or if they are asked for there."""
    given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    here = [each for each in given if isinstance(each, OnGPU)]
    elsewhere = [each for each in given if not isinstance(each, OnGPU)]
    if any(each.is_meta for each in elsewhere):
        raise AssertionError(f"{func}: a tensor of the pretended GPU has no values; it was made in an unknown way")
    if here and func not in _COPIES:
        if func in _INDEXED:
            foreign = [] if isinstance(args[0], OnGPU) else elsewhere
        else:
            foreign = [each for each in elsewhere if each.dim() or func in _ALIKE]
        if foreign:
            raise RuntimeError(f"{func}: expected all tensors to be on the same device")
    asked = kwargs.get("device")
    if asked is not None:
        to_gpu = torch.device(asked) == GPU
        kwargs["device"] = CPU
    else:
        to_gpu = isinstance(args[0], OnGPU) if func is _aten.copy_.default else bool(here)
    kwargs.pop("pin_memory", None)
    result = func(*tree_map(_values, list(args)), **tree_map(_values, kwargs))
    if not to_gpu:
        return result
    wrapped = tree_map(lambda each: OnGPU(each) if isinstance(each, Tensor) else each, result)
    return return_and_correct_aliasing(func, args, kwargs, wrapped) if here else wrapped


def _values(each: Any) -> Any:
    return each.values if isinstance(each, OnGPU) else each


def _waits(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], given: Sequence[Tensor]) -> bool:
    """Whether a GPU's CPU would wait at this operation: for a value, a shape, or a copy between the devices."""
    asked = kwargs.get("device")
    between = {isinstance(each, OnGPU) for each in given}
    if asked is not None and given:
        between.add(torch.device(asked) == GPU)
    masks = [each for each in args[1] if each is not None and each.dtype == torch.bool] if func in _INDEXED else []
    return func in _WAITING or bool(masks) or (func in _COPIES and len(between) > 1)


class _Operations(TorchDispatchMode):
    """Makes tensors on the GPU, copies them between the devices, and notes where the CPU would wait."""

    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        asked = kwargs.get("device")
        if not any(isinstance(each, OnGPU) for each in given) and (asked is None or torch.device(asked) != GPU):
            return func(*args, **kwargs)
        if _waits(func, args, kwargs, given):
            self.waits.append(str(func))
        return _run(func, args, kwargs)


class _Python(TorchFunctionMode):
    """Numbers and lists of Python, of which PyTorch makes tensors where a dispatch mode does not see it."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or CPU) == GPU:
            return func(*args, **{**kwargs, "device": CPU}).to(GPU)
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], OnGPU):
            at = args[1] if isinstance(args[1], tuple) else (args[1],)
            listed = (torch.tensor(e, dtype=None if e else torch.long) if isinstance(e, list) else e for e in at)
            args = (args[0], tuple(listed), *args[2:])
        return func(*args, **kwargs)


class _Generator(torch.Generator):
    """The same numbers on both devices."""

    def __new__(cls, device: torch.device | str = "cpu") -> _Generator:
        generator = super().__new__(cls, "cpu")
        generator._device = torch.device(device)
        return generator

    @property
    def device(self) -> torch.device:
        return self._device


class _SafeOpen:
    """`safetensors.safe_open`, whose own code knows nothing of this device."""

    def __init__(self, path: Any, framework: str, device: str = "cpu") -> None:
        self._device = torch.device(device)
        self._file = safetensors.safe_open(path, framework=framework, device="cpu")

    def __enter__(self) -> _SafeOpen:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._file.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def get_tensor(self, name: str) -> Tensor:
        return self._file.get_tensor(name).to(self._device)


@contextmanager
def pretended_gpu() -> Iterator[list[str]]:
    """Within it, `GPU` is a device. Yields the operations so far at which the CPU would have waited for it."""
    waits: list[str] = []
    replaced = torch.__future__.get_overwrite_module_params_on_conversion()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(tensors, "safe_open", _SafeOpen)
        # `Module.to` otherwise exchanges the data behind a parameter, without the subclass's own attribute.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        try:
            with _Operations(waits), _Python():
                yield waits
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(replaced)
