"""Routing iterations of CapsNet: those of the network itself, and of a loop over numbers."""

from __future__ import annotations

import math

import pytest
import torch
from routing_loop import by_the_letter, capsnet
from small import SIZE

from pipeline.layers.dynamic_routing import squash
from pipeline.systems.capsnet.routing import follow, iterations_of, routed_layers


@pytest.mark.parametrize("middle", [0, 6])
@pytest.mark.parametrize(("counting", "own"), [("updates", 3), ("sums", 2)])
def test_the_last_iteration_is_what_the_network_gives(counting: str, own: int, middle: int) -> None:
    net, images = capsnet(counting=counting, middle=middle).double(), torch.rand(5, 1, SIZE, SIZE, dtype=torch.float64)
    assert iterations_of(net) == own
    found = follow(net, own + 2, images)
    torch.testing.assert_close(found.activations[own - 1], net.encode(images).norm(dim=-1))
    assert not torch.allclose(found.activations[own], found.activations[own - 1])
    positions, types = (1, 6) if middle else (16, 2)
    assert found.shares.shape == (own + 2, 5, 3, positions, types)
    torch.testing.assert_close(found.shares[0], torch.full_like(found.shares[0], 1 / 3))
    torch.testing.assert_close(found.shares.sum(2), torch.ones_like(found.shares[:, :, 0]))


@pytest.mark.parametrize("middle", [0, 6])
def test_capsules_divide_themselves_as_in_a_loop_over_numbers(middle: int) -> None:
    """In every layer; logits are the products of votes with the capsules of all sums but the last."""
    net, images = capsnet(middle=middle).double(), torch.rand(2, 1, SIZE, SIZE, dtype=torch.float64)
    below = net.primary_capsules(net.feature_maps(images))
    routed = [layer for layer in (net.middle, net.last) if layer is not None]
    for layer, found in zip(routed, routed_layers(net, images), strict=True):
        W = layer.transformations
        sums = [squash(by_the_letter(below, W, t + 1)) for t in range(3)]
        for image in range(2):
            entropy = 0.0
            for i, child in enumerate(below[image]):
                logits = [float(sum(child @ W[i, :, j] @ v[image, j] for v in sums[:2])) for j in range(W.shape[2])]
                shares = [math.exp(logit) / sum(map(math.exp, logits)) for logit in logits]
                entropy -= float(child.norm()) * sum(q * math.log(q) for q in shares) / math.log(len(shares))
            assert found.entropy[image].item() == pytest.approx(entropy)
            assert found.active[image].item() == pytest.approx(sum(float(child.norm()) for child in below[image]))
        below = sums[-1]
        torch.testing.assert_close(found.activations, below.norm(dim=-1))
