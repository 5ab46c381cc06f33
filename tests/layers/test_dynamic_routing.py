"""Routing by agreement against a loop written from the equations, its gradient against finite differences."""

from __future__ import annotations

import pytest
import torch
from routing_loop import by_the_letter
from torch import Tensor

from pipeline.layers import dynamic_routing
from pipeline.layers.dynamic_routing import cast_votes, route, squash, unweighted_sum

B, m, d, n, D = 3, 4, 3, 3, 2


@pytest.fixture
def inputs() -> tuple[Tensor, Tensor]:
    """Capsules and transformations, large enough that weights differ."""
    return torch.randn(B, m, d, dtype=torch.float64), torch.randn(m, d, n, D, dtype=torch.float64)


@pytest.mark.parametrize("updates", [1, 3])
def test_routing_does_what_the_equations_say(inputs: tuple[Tensor, Tensor], updates: int) -> None:
    """A sum more than there are updates."""
    torch.testing.assert_close(route(*inputs, updates), by_the_letter(*inputs, updates + 1), rtol=1e-12, atol=1e-12)


def test_without_weights_votes_are_summed(inputs: tuple[Tensor, Tensor]) -> None:
    capsules, transformations = inputs
    votes = torch.einsum("bid,idjk->bjik", capsules, transformations)
    torch.testing.assert_close(cast_votes(capsules, transformations), votes)
    torch.testing.assert_close(unweighted_sum(capsules, transformations), votes.sum(2))
    # Uniform weights are 1 / n each.
    torch.testing.assert_close(n * route(capsules, transformations, 0), votes.sum(2))


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_gradients_flow_through_every_iteration(inputs: tuple[Tensor, Tensor], updates: int) -> None:
    capsules, transformations = (each.requires_grad_() for each in inputs)
    torch.autograd.gradcheck(lambda u, W: route(u, W, updates), (capsules, transformations))
    torch.autograd.gradgradcheck(lambda u, W: route(u, W, updates), (capsules, transformations))


@pytest.mark.parametrize("images", [1, 2])
def test_a_few_images_at_a_time_give_what_all_at_once_give(
    inputs: tuple[Tensor, Tensor], images: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[Tensor]:
        leaves = [each.detach().requires_grad_() for each in inputs]
        sums = route(*leaves, 2)
        return [sums, *torch.autograd.grad(sums.square().sum(), leaves)]

    whole = found()
    monkeypatch.setitem(dynamic_routing._BYTES_AT_ONCE, "cpu", images * m * n * D * 8)
    torch.testing.assert_close(found(), whole)
    # Transformations that are not learnt get no gradient, which changes nothing else.
    leaf = inputs[0].detach().requires_grad_()
    (alone,) = torch.autograd.grad(route(leaf, inputs[1].detach(), 2).square().sum(), leaf)
    torch.testing.assert_close(alone, whole[1])


def test_squash() -> None:
    x = torch.randn(6, 4, dtype=torch.float64)
    norm = x.norm(dim=-1)
    torch.testing.assert_close(squash(x).norm(dim=-1), norm**2 / (1 + norm**2))
    torch.testing.assert_close(squash(x) / squash(x).norm(dim=-1, keepdim=True), x / norm.unsqueeze(-1))
    zero = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    squash(zero).sum().backward()
    assert zero.grad is not None
    assert zero.grad.abs().max() < 1e-12
