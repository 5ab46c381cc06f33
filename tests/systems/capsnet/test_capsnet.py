"""CapsNet: its shapes, losses against hand-made values, and routing iterations against a loop over numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from routing_loop import by_the_letter, capsnet
from small import SIZE, SMALL_CAPSNET
from torch import Tensor

from pipeline.errors import UserError
from pipeline.layers.class_losses import margin_loss
from pipeline.layers.dynamic_routing import cast_votes, squash
from pipeline.systems.capsnet.model.capsnet import CapsNet, forward_pass
from pipeline.systems.capsnet.routing import follow, routed_layers
from pipeline.systems.capsnet.settings import CapsNetModelParams

NONE, NOW = torch.empty(0), torch.tensor(0.0)


def params(**changes: Any) -> CapsNetModelParams:
    return CapsNetModelParams.model_validate({**SMALL_CAPSNET, **changes})


@pytest.fixture
def images() -> Tensor:
    torch.manual_seed(1)
    return torch.rand(7, 1, SIZE, SIZE)


def test_the_published_network_has_the_published_sizes() -> None:
    published = params(
        channels=256, kernel=9, strides=[1, 2], types=32, primary_size=8, class_size=16, classes=10, decoder=[512, 1024]
    )
    net = CapsNet(published, 28)
    shapes = [activities.shape for activities in forward_pass(net.layers(), torch.rand(2, 1, 28, 28))]
    assert shapes == [(2, 256, 20, 20), (2, 1152, 8), (2, 10, 16)]
    # 8.2 million (Sabour et al., section 4): two convolutions, transformations, decoder
    convolutions = 256 * 82 + 256 * (256 * 81 + 1)
    assert net.generative_parameters() == 160 * 512 + 512 + 512 * 1024 + 1024 + 1024 * 784 + 784
    total = convolutions + 1152 * 8 * 160 + net.generative_parameters()
    assert sum(p.numel() for p in net.parameters()) == total == 8_215_568


def test_initial_transformations_have_the_asked_distribution() -> None:
    """Sd 0.1, or a uniform distribution within 1 / sqrt(m): 1152 capsules below have an sd of 0.017, a sixth of it."""
    sizes = {"types": 32, "primary_size": 8, "classes": 10, "class_size": 16, "kernel": 9, "strides": [1, 2]}
    for start, sd, largest in (("normal", 0.1, 0.4), ("uniform", (3 * 1152) ** -0.5, 1152**-0.5)):
        values = CapsNet(params(**sizes, transformations=start), 28).last.transformations.detach()
        assert values.shape == (1152, 8, 10, 16)
        assert values.std().item() == pytest.approx(sd, rel=0.01)
        assert (values.abs().max().item() > largest) == (start == "normal")


def test_layers_are_what_their_equations_say(images: Tensor) -> None:
    net = CapsNet(params(iterations=0, middle=6), SIZE)
    features, primary, middle, last = forward_pass(net.layers(), images)
    kernel = net.first.weight.permute(0, 3, 1, 2)
    torch.testing.assert_close(features, F.conv2d(images, kernel, net.first.bias, 1).relu())
    maps = F.conv2d(features, net.second.weight.permute(0, 3, 1, 2), net.second.bias, 2)  # (7, 6, 4, 4)
    # Capsule 2 p + t is the t-th at position p: its numbers are channels 3 t to 3 t + 2.
    for position, row, column in ((0, 0, 0), (5, 1, 1), (7, 1, 3)):
        for kind in (0, 1):
            numbers = maps[:, 3 * kind : 3 * kind + 3, row, column]
            torch.testing.assert_close(primary[:, 2 * position + kind], squash(numbers))
    assert net.middle is not None
    torch.testing.assert_close(middle, squash(torch.einsum("bid,idjk->bjk", primary, net.middle.transformations)))
    torch.testing.assert_close(last, squash(torch.einsum("bid,idjk->bjk", middle, net.last.transformations)))
    torch.testing.assert_close(net.encode(images), last)


@pytest.mark.parametrize(
    ("iterations", "counting", "sums"), [(1, "sums", 1), (3, "sums", 3), (1, "updates", 2), (3, "updates", 4)]
)
def test_routed_layers_are_what_their_equations_say(images: Tensor, iterations: int, counting: str, sums: int) -> None:
    net = capsnet(iterations=iterations, counting=counting).double()
    assert net.middle is not None
    _, primary, middle, last = forward_pass(net.layers(), images.double())
    torch.testing.assert_close(middle, squash(by_the_letter(primary, net.middle.transformations, sums)))
    torch.testing.assert_close(last, squash(by_the_letter(middle, net.last.transformations, sums)))
    uniform = squash(by_the_letter(middle, net.last.transformations, 1))
    assert (sums == 1) == bool((last - uniform).abs().max() < 1e-9)


@pytest.mark.parametrize(("scaling", "factor"), [("summed", 1.0), ("mean", 1 / SIZE**2), ("none", 0.0)])
def test_the_loss_by_its_terms(images: Tensor, scaling: str, factor: float) -> None:
    net = CapsNet(params(reconstruction=scaling, reconstruction_weight=0.25), SIZE)
    labels = torch.arange(7) % 3
    loss, metrics = net(images, NONE, NOW, labels)
    capsules = net.encode(images)
    lengths = capsules.norm(dim=-1)
    torch.testing.assert_close(metrics["margin_loss"], margin_loss(lengths, labels, 0.9, 0.1, 0.5).mean())
    torch.testing.assert_close(metrics["accuracy"], (lengths.argmax(1) == labels).float().mean())
    torch.testing.assert_close(loss, metrics["margin_loss"] + 0.25 * factor * metrics.get("pixel_error", 0.0))
    if scaling == "none":
        assert net.generative_parameters() == 0
        return
    drawn = net.decode(capsules, labels)
    torch.testing.assert_close(metrics["pixel_error"], ((drawn - images) ** 2).sum((1, 2, 3)).mean())
    # Only the capsule of the image's own class is drawn.
    others = capsules.clone()
    others[torch.arange(7), (labels + 1) % 3] = 5.0
    torch.testing.assert_close(net.decode(others, labels), drawn)


def test_images_too_small_are_refused() -> None:
    with pytest.raises(UserError, match="kernels of 9 pixels leave nothing of 12x12"):
        CapsNet(params(kernel=9), 12)


@pytest.mark.parametrize("middle", [0, 6])
@pytest.mark.parametrize(("counting", "own"), [("updates", 3), ("sums", 2)])
def test_the_last_iteration_is_what_the_network_gives(counting: str, own: int, middle: int) -> None:
    net, images = capsnet(counting=counting, middle=middle).double(), torch.rand(5, 1, SIZE, SIZE, dtype=torch.float64)
    found = follow(net, own + 2, images)
    torch.testing.assert_close(found.activations[:, own - 1], net.encode(images).norm(dim=-1))
    assert not torch.allclose(found.activations[:, own], found.activations[:, own - 1])
    positions, types = (1, 6) if middle else (16, 2)
    assert found.shares.shape == (5, own + 2, 3, positions, types)
    torch.testing.assert_close(found.shares[:, 0], torch.full_like(found.shares[:, 0], 1 / 3))
    torch.testing.assert_close(found.shares.sum(2), torch.ones_like(found.shares[:, :, 0]))


def test_votes_spread_around_their_mean_weighted_by_share_and_length() -> None:
    net, images = capsnet(middle=0).double(), torch.rand(2, 1, SIZE, SIZE, dtype=torch.float64)
    below = net.primary_capsules(net.feature_maps(images))
    found = follow(net, 2, images)
    votes = cast_votes(below, net.last.transformations)
    for image, t, j in ((0, 0, 0), (1, 1, 2)):
        weights = (found.shares[image, t, j].flatten() * below[image].norm(dim=-1)).detach().numpy()
        mean = np.average(votes[image, j].detach(), axis=0, weights=weights)
        square = np.average(((votes[image, j].detach().numpy() - mean) ** 2).sum(-1), weights=weights)
        assert found.spreads[image, t, j].item() == pytest.approx(square**0.5)


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
