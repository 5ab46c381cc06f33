"""What a compiled kernel and the PyTorch form that it replaces are compared by."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from pipeline import kernels


def forms_here(source: Path) -> list[str]:
    """The compiled forms of a kernel that this processor can run; AVX-512 would end the process on many."""
    forms, own = list(kernels.forms()), torch.backends.cpu.get_cpu_capability()
    able = forms[forms.index(own) :] if own in forms else [form for form in forms if form == "DEFAULT"]
    return [form for form in able if kernels.find(source, form) is not None]


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The result, and the gradients of a random combination of its numbers, the same for any type of number."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out.detach(), *torch.autograd.grad(out, inputs, weights)]
