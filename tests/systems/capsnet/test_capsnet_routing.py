"""Routing iterations of CapsNet: those of the network itself, and of a loop over numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from routing_loop import by_the_letter
from small import SIZE, SMALL_CAPSNET

from pipeline.layers.dynamic_routing import squash
from pipeline.systems.capsnet.model.capsnet import CapsNet
from pipeline.systems.capsnet.routing import follow, iterations_of
from pipeline.systems.capsnet.settings import CapsNetModelParams


def network(**changes: Any) -> CapsNet:
    torch.manual_seed(0)
    net = CapsNet(CapsNetModelParams.model_validate({**SMALL_CAPSNET, **changes}), SIZE).double().eval()
    with torch.no_grad():  # long enough that weights differ
        for layer in (net.middle, net.last):
            if layer is not None:
                layer.transformations.mul_(20)
    return net


@pytest.mark.parametrize("middle", [0, 6])
@pytest.mark.parametrize(("counting", "own"), [("updates", 3), ("sums", 2)])
def test_the_last_iteration_is_what_the_network_gives(counting: str, own: int, middle: int) -> None:
    net, images = network(counting=counting, middle=middle), torch.rand(5, 1, SIZE, SIZE, dtype=torch.float64)
    assert iterations_of(net) == own
    found = follow(net, own + 2, images)
    torch.testing.assert_close(found.activations[own - 1], net.encode(images).norm(dim=-1).detach())
    assert not torch.allclose(found.activations[own], found.activations[own - 1])
    positions, types = (1, 6) if middle else (16, 2)
    assert found.shares.shape == (own + 2, 5, 3, positions, types)
    torch.testing.assert_close(found.shares[0], torch.full_like(found.shares[0], 1 / 3))
    torch.testing.assert_close(found.shares.sum(2), torch.ones_like(found.shares[:, :, 0]))


def test_every_iteration_is_the_one_of_a_loop_over_numbers() -> None:
    net, images = network(), torch.rand(1, 1, SIZE, SIZE, dtype=torch.float64)
    with torch.no_grad():
        primary = net.primary_capsules(net.feature_maps(images))
    found = follow(net, 4, images)
    for t in range(4):
        sums = by_the_letter(primary, net.last.transformations.detach(), t + 1)
        torch.testing.assert_close(found.activations[t], squash(sums).norm(dim=-1))


def test_a_network_without_routing_has_no_iterations() -> None:
    with pytest.raises(ValueError, match="without weights"):
        iterations_of(network(iterations=0))
