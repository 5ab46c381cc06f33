"""What a compiled kernel and the PyTorch form that it replaces are compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipeline import kernels


def forms_here(source: Path) -> list[str]:
    """The compiled forms of a kernel that this processor can run; AVX-512 would end the process on many."""
    forms, own = list(kernels.forms()), torch.backends.cpu.get_cpu_capability()
    able = forms[forms.index(own) :] if own in forms else [form for form in forms if form == "DEFAULT"]
    return [form for form in able if kernels.find(source, form) is not None]


def with_gradients(out: Tensor | Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The results, and the gradients of a random combination of their numbers, the same for any type of number."""
    results = [out] if isinstance(out, Tensor) else list(out)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(each.shape, generator=generator, dtype=torch.float64).to(each) for each in results]
    gradients = torch.autograd.grad(results, list(inputs), weights, materialize_grads=True)
    return [*(each.detach() for each in results), *gradients]


def assert_near(
    found: Sequence[Tensor], expected: Sequence[Tensor], relative: float = 1e-5, least: float = 0.1
) -> None:
    """Every tensor differs by at most `relative` of its largest element, or of `least` where that is larger."""
    errors = [
        float((own.double() - other).abs().max() / other.abs().max().clamp_min(least))
        for own, other in zip(found, expected, strict=True)
    ]
    assert max(errors) <= relative, errors


def assert_same_for_any_number_of_threads(compute: Callable[[], list[Tensor]]) -> None:
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            found.append(compute())
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
