"""Predictive coding: its energy and gradient against their definition, and its end where that is known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from routing_loop import capsnet
from small import SIZE
from torch import Tensor

from pipeline.errors import UserError
from pipeline.systems.capsnet.inference.predictive_coding import (
    Layer,
    Objective,
    Output,
    Penalty,
    energies_and_gradients,
    forward_pass,
    infer,
)

PENALTIES: tuple[Penalty, ...] = ("none", "L1", "L2")


@pytest.fixture(params=[0, 2], ids=["unrouted", "routed"])
def layers(request: pytest.FixtureRequest) -> list[Layer]:
    """A small CapsNet in double precision, with a middle layer, whose capsules are long enough to matter."""
    return capsnet(iterations=request.param).double().layers()


@pytest.fixture
def images() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(5, 1, SIZE, SIZE, dtype=torch.float64)


TARGET = torch.eye(3, dtype=torch.float64)[[0, 1, 2, 0, 1]]


def total(layers: Sequence[Layer], images: Tensor, activities: Sequence[Tensor], objective: Objective) -> Tensor:
    """The summed energy from its definition."""
    below = [images, *activities[:-1]]
    found = torch.zeros((), dtype=images.dtype)
    for layer, x, y in zip(layers, activities, below, strict=False):
        found = found + ((x - layer(y)) ** 2).sum() / 2
    capsules = activities[-1] if objective.output == "free" else layers[-1](activities[-1])
    lengths = (capsules**2).sum(-1).sqrt()
    if objective.target is not None:
        found = found + ((objective.target - lengths) ** 2).sum() / 2
    return found + objective.weight * {"none": 0, "L1": lengths.sum(), "L2": (lengths**2).sum() / 2}[objective.penalty]


@pytest.mark.parametrize("output", ["predicted", "free"])
@pytest.mark.parametrize("clamped", [True, False])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_energies_and_gradients_are_those_of_the_definition_and_descend(
    layers: list[Layer], images: Tensor, penalty: Penalty, clamped: bool, output: Output
) -> None:
    objective = Objective(output, TARGET if clamped else None, penalty, 0.7)
    free = forward_pass(layers if output == "free" else layers[:-1], images)
    activities = [x + 0.1 * torch.randn_like(x) for x in free]
    terms, gradients, capsules = energies_and_gradients(layers, layers[0](images), activities, objective)
    assert 0.05 < capsules.norm(dim=-1).mean() < 1
    leaves = [x.clone().requires_grad_() for x in activities]
    energy = total(layers, images, leaves, objective)
    expected = list(torch.autograd.grad(energy, leaves))
    if objective.shortens:  # what its proximal step adds to the gradient
        expected[-1] = expected[-1] - 0.7 * activities[-1] / activities[-1].norm(dim=-1, keepdim=True)
    torch.testing.assert_close(list(gradients), expected)
    torch.testing.assert_close(terms[1], (activities[1] - layers[1](activities[0])).square().flatten(1).sum(1) / 2)
    torch.testing.assert_close(terms.sum(), energy.detach())
    # In small steps the energy of no image ever rises.
    found = infer(layers, images, objective, steps=range(100), rate=0.01)
    whole = found.energies.sum(1)
    assert found.energies.shape == (101, 5 + (output == "free"), 5)
    assert whole.diff(dim=0).max() < 1e-12
    if clamped or penalty != "none":
        assert (whole[-1] < whole[0] - 1e-4).all()
    else:
        assert whole.abs().max() < 1e-12, "the forward pass has no errors"
    top = found.activities[-1] if output == "free" else layers[-1](found.activities[-1])
    torch.testing.assert_close(found.capsules, top)


@pytest.mark.parametrize(
    ("penalty", "lengths"),
    [("none", [0.85, 0.2, 0.05]), ("L1", [0.35, 0.0, 0.0]), ("L2", [1.7 / 3, 0.4 / 3, 0.1 / 3])],
)
def test_free_capsules_of_a_single_layer_end_where_they_do_by_hand(penalty: Penalty, lengths: list[float]) -> None:
    """1/2 (r - p)^2 + 1/2 (t - r)^2 + penalty(r) for a capsule of length r predicted at p: its direction stays."""
    directions = torch.nn.functional.normalize(torch.randn(1, 3, 4, dtype=torch.float64), dim=-1)
    predicted = torch.tensor([0.7, 0.4, 0.1], dtype=torch.float64)[None, :, None] * directions
    layer = lambda images: predicted  # noqa: E731
    objective = Objective("free", torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64), penalty, 1.0)
    found = infer([layer], torch.zeros(1, 1, dtype=torch.float64), objective, steps=range(2000), rate=0.01).capsules
    torch.testing.assert_close(found, torch.tensor(lengths, dtype=torch.float64)[None, :, None] * directions)


def test_predicted_capsules_of_one_number_end_where_they_do_by_hand() -> None:
    """1/2 (x - a)^2 + 1/2 (1 - x)^2 + w x for x > 0, which the last layer passes on: x = (1 + a - w) / 2."""
    layers = [lambda images: images, lambda x: x.unsqueeze(-1)]
    image = torch.tensor([[0.6]], dtype=torch.float64)
    objective = Objective("predicted", torch.ones(1, 1, dtype=torch.float64), "L1", 0.4)
    found = infer(layers, image, objective, steps=range(2000), rate=0.01)
    torch.testing.assert_close(found.capsules, torch.full((1, 1, 1), 0.6, dtype=torch.float64))
    torch.testing.assert_close(found.energies[-1, :, 0], torch.tensor([0.0, 0.08, 0.24], dtype=torch.float64))


def test_a_rate_too_high_is_named(layers: list[Layer], images: Tensor) -> None:
    with pytest.raises(UserError, match="diverged at rate 1e\\+06"):
        infer(layers, images, Objective("free", TARGET), steps=range(200), rate=1e6)
