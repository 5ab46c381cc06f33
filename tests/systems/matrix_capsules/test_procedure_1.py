"""The fast form of EM routing against Procedure 1 in plain autograd: values and gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_em_routing import routing, some

from pipeline.systems.matrix_capsules.model.em_routing import route
from pipeline.systems.matrix_capsules.model.procedure_1 import procedure_1


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize(
    ("height", "kernel", "stride", "offsets"),
    [(4, 3, 1, False), (6, 3, 2, False), (3, 3, 1, True)],
    ids=["overlapping", "strided, an edge unseen", "class layer"],
)
def test_the_fast_form_gives_the_values_and_gradients_of_procedure_1(
    height: int, kernel: int, stride: int, offsets: bool, iterations: int
) -> None:
    how = routing(height, kernel, stride, iterations)
    if offsets:
        how = replace(how, offsets=torch.randn(kernel**2, 4, dtype=torch.float64))
    found = []
    for form in (route, procedure_1):
        inputs = [each.requires_grad_() for each in some(height, kernel)]
        poses, activations = form(*inputs, how)
        torch.manual_seed(1)
        loss = (poses * torch.randn_like(poses)).sum() + (activations * torch.randn_like(activations)).sum()
        found.append([poses, activations, *torch.autograd.grad(loss, inputs)])
    for fast, plain in zip(*found, strict=True):
        # The fast form adds next to nothing (1e-7) to the mass that means are divided by.
        torch.testing.assert_close(fast, plain, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("changes", [{"activation": "mixing"}, {"competition": "position"}, {"damped_first": True}])
def test_what_procedure_1_does_not_have_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Procedure 1 has"):
        procedure_1(*some(4, 3), routing(4, 3, **changes))  # type: ignore[arg-type]
