"""The stacked capsule autoencoder's two likelihoods, penalties and stop-gradients, each against a plain form of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import SCAE_SIZE, SMALL_SCAE
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal

from pipeline.layers import poses
from pipeline.layers.rendering import warp_templates
from pipeline.systems.scae.equivariance import read
from pipeline.systems.scae.evaluation import bernoulli_information
from pipeline.systems.scae.model.scae import (
    SCAE,
    Attention,
    Objects,
    PartCapsules,
    SelfAttention,
    constrained_pose,
    entropy_sparsity,
    squared_sparsity,
)
from pipeline.systems.scae.settings import SCAEModelParams

EPOCH = torch.tensor(0.0)
IMAGES, PARTS, OBJECTS = 2, 4, 3


@pytest.fixture(autouse=True)
def in_double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def model() -> SCAE:
    """A small model whose constants have left their symmetric start."""
    model = SCAE(SCAEModelParams.model_validate(SMALL_SCAE), SCAE_SIZE)
    with torch.no_grad():
        for parameter in (model.mixing_logits, model.background, model.background_mixing, model.output_bias):
            parameter.add_(torch.randn_like(parameter))
    return model


@pytest.fixture
def images() -> Tensor:
    return torch.rand(IMAGES, 1, SCAE_SIZE, SCAE_SIZE)


# ---- poses


def test_a_constrained_pose_is_a_product_of_scale_shear_turn_and_shift() -> None:
    """Worked out with matrices: [[sx, h sy], [0, sy]] times the turn, each number from its own range."""
    free = torch.randn(50, 6)
    found = poses.to_matrix(constrained_pose(free))
    for numbers, matrix in zip(free.tolist(), found, strict=True):
        sx, sy = (1 / (1 + math.exp(-raw)) + 0.01 for raw in numbers[:2])
        turn, (shear, x, y) = 2 * math.pi * numbers[2], (math.tanh(5 * raw) for raw in numbers[3:])
        stretch = torch.tensor([[sx, shear * sy], [0.0, sy]])
        rotation = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]])
        torch.testing.assert_close(matrix[:, :2], stretch @ rotation)
        torch.testing.assert_close(matrix[:, 2], torch.tensor([x, y]))


# ---- likelihoods


@torch.no_grad()
def test_pixels_are_a_mixture_of_warped_templates_and_a_background(model: SCAE, images: Tensor) -> None:
    parts = model.encode_parts(images)
    found, drawn = model.explain_pixels(images, parts)
    means = warp_templates(model.coloured_templates(parts).unsqueeze(2), parts.poses, SCAE_SIZE)[:, :, 0]
    alphas = warp_templates(model.mixing_logits.unsqueeze(1), parts.poses, SCAE_SIZE)[:, :, 0]
    last = torch.ones_like(means[:, :1])  # the background
    weights = [parts.presence[..., None, None] * alphas.exp(), last * F.softplus(model.background_mixing).exp()]
    centres = torch.cat([means, last * model.background.sigmoid()], dim=1).movedim(1, -1)
    mixture = MixtureSameFamily(Categorical(torch.cat(weights, dim=1).movedim(1, -1)), Normal(centres, 1.0))
    torch.testing.assert_close(found, mixture.log_prob(images[:, 0]).sum((1, 2)))
    torch.testing.assert_close(drawn, mixture.mean)


def test_parts_are_a_mixture_of_votes_and_a_dummy_which_share_out_every_part(model: SCAE) -> None:
    """Of parts with poses near what some objects vote for."""
    parts = PartCapsules(torch.rand(IMAGES, PARTS), torch.randn(IMAGES, PARTS, 6), torch.randn(IMAGES, PARTS, 2))
    votes = parts.poses.unsqueeze(1) + 0.5 * torch.randn(IMAGES, OBJECTS, PARTS, 6)
    presence, sd = torch.rand(IMAGES, OBJECTS, PARTS), 0.2 + torch.rand(IMAGES, OBJECTS, PARTS)
    objects = Objects(votes, presence, sd, torch.zeros(IMAGES, OBJECTS, PARTS, 6))
    found = model.part_explanations(parts, objects)
    densities = Normal(votes, sd.unsqueeze(-1)).log_prob(parts.poses.unsqueeze(1)).sum(-1)
    torch.testing.assert_close(found[:, :OBJECTS], presence.log() + densities)
    dummy = torch.full((IMAGES, PARTS), 1e-4)
    torch.testing.assert_close(found[:, OBJECTS].exp(), dummy, msg="weight and density of 1/100 each")
    share = found.exp() / found.exp().sum(1, keepdim=True)
    torch.testing.assert_close(model.posterior_presence(found), share[:, :OBJECTS].sum(-1))
    far = replace(objects, votes=objects.votes + 100)
    assert model.posterior_presence(model.part_explanations(parts, far)).max() < 1e-9


def test_the_loss_is_made_of_its_terms(model: SCAE, images: Tensor) -> None:
    noise = 2 * torch.rand(IMAGES, model.noise_size) - 1
    loss, terms = model(images, noise, EPOCH)
    made = -terms["log_pixels"] - terms["log_parts"] + 10 * terms["deformation"] + terms["sparsity"]
    torch.testing.assert_close(loss.detach(), made)
    parts = model.encode_parts(images, noise[:, :PARTS])
    objects = model.encode_objects(parts, noise[:, PARTS:])
    explained = model.part_explanations(parts, objects)
    per_part = torch.stack([explained[:, k] for k in range(OBJECTS + 1)]).exp().sum(0).log()
    torch.testing.assert_close(terms["log_parts"], (per_part * parts.presence).sum(1).mean().detach())
    torch.testing.assert_close(terms["deformation"], (objects.deformation**2).sum().detach() / 2 / IMAGES)
    within, between = entropy_sparsity(model.posterior_presence(explained))
    squared, squared_between = squared_sparsity(objects.presence, 1.2, 3)
    made = 0.7 * within - 0.2 * between + 2 * squared + 0.35 * squared_between
    torch.testing.assert_close(terms["sparsity"], made.detach())
    # And so are its gradients: presences of parts do not learn from the likelihood of poses.
    log_parts = (per_part * parts.presence.detach()).sum(1).mean()
    log_pixels = model.explain_pixels(images, parts)[0].mean()
    made = made - log_pixels - log_parts + 10 * 0.5 * (objects.deformation**2).sum() / IMAGES
    parameters = list(model.parameters())
    gradients = (torch.autograd.grad(each, parameters, retain_graph=True) for each in (loss, made))
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


# ---- objects


@torch.no_grad()
def test_votes_presences_and_sds_by_hand(model: SCAE, images: Tensor) -> None:
    """An object's pose V_k times that of the part in it; its presence times that of the vote; softplus(. + 0.5) + 0.01.

    Without the weights of all outputs but the deformations, what objects predict is in their biases: six numbers for
    the pose, one for the presence, then presences and sds by part.
    """
    model.outputs[..., 6 * PARTS :] = 0
    found = model.encode_objects(model.encode_parts(images))
    assert found.deformation.min() < -0.01 < 0.01 < found.deformation.max(), "no ReLU after the last layer"
    assert (model.summarise(torch.randn(9, OBJECTS, 5)) < 0).any(), "nor here"
    pose, own, each, sds = model.output_bias.split([6, 1, PARTS, PARTS], dim=1)
    in_object = poses.homogeneous(constrained_pose(model.static_poses + found.deformation))
    expected = poses.homogeneous(constrained_pose(pose)).unsqueeze(1) @ in_object
    torch.testing.assert_close(poses.homogeneous(found.votes), expected)
    torch.testing.assert_close(found.vote_presence, (own.sigmoid() * each.sigmoid()).expand_as(found.vote_presence))
    torch.testing.assert_close(found.vote_sd, (F.softplus(sds + 0.5) + 0.01).expand_as(found.vote_sd))


@torch.no_grad()
def test_the_measures_of_equivariance_read_votes_with_their_own_presences(model: SCAE, images: Tensor) -> None:
    """Object by object, part by part, as the poses; an object's mean presence would let absent votes count."""
    layer, objects = read(model, images)["objects"], model.encode_objects(model.encode_parts(images))
    torch.testing.assert_close(layer.numbers.view(IMAGES, OBJECTS, PARTS, 6), objects.votes)
    torch.testing.assert_close(layer.weights.view(IMAGES, OBJECTS, PARTS), objects.vote_presence)


def test_an_object_is_as_present_as_the_most_present_of_its_votes(model: SCAE) -> None:
    presence, nothing = torch.rand(IMAGES, OBJECTS, PARTS), torch.zeros(IMAGES, OBJECTS, PARTS, 6)
    found = Objects(nothing, presence, presence, nothing).presence
    torch.testing.assert_close(found, torch.stack([presence[..., m] for m in range(PARTS)]).max(0).values)


@torch.no_grad()
def test_noise_is_uniform_within_its_half_width(model: SCAE, images: Tensor) -> None:
    noise = model.draw_noise((2000,), torch.Generator().manual_seed(0))
    assert noise.shape == (2000, model.noise_size)
    assert (noise.min().item(), noise.max().item()) == (pytest.approx(-1, abs=0.01), pytest.approx(1, abs=0.01))
    assert noise.mean().item() == pytest.approx(0, abs=0.02)
    assert noise.std().item() == pytest.approx(3**-0.5, rel=0.02)
    own = noise[:IMAGES, :PARTS].double()
    noisy, plain = (model.encode_parts(images, each).presence.logit() for each in (own, None))
    torch.testing.assert_close(noisy - plain, 2 * own)


# ---- penalties


def test_entropies_of_shares_by_hand() -> None:
    """Image 1: shares 1/2, 1/2; image 2: all in one object. Over both, the objects have 3/4 and 1/4."""
    within, between = entropy_sparsity(torch.tensor([[0.5, 0.5], [3.0, 0.0]]))
    assert within.item() == pytest.approx(math.log(2) / 2)
    share = 3.5 / 4
    assert between.item() == pytest.approx(-share * math.log(share) - (1 - share) * math.log(1 - share))


def test_squared_distances_by_hand() -> None:
    """Sums per image 1.5 and 0.5 against 1; sums per object 1, 0.75, 0.25 against 2 images / 4 classes."""
    presence = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.25, 0.25]])
    within, between = squared_sparsity(presence, 1.0, 4)
    assert within.item() == pytest.approx((0.25 + 0.25) / 2)
    assert between.item() == pytest.approx((0.25 + 0.0625 + 0.0625) / 3)


# ---- attention


def test_the_published_mask_leaves_the_most_present_part_and_the_other_weighs_all() -> None:
    queries, parts = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    presence = torch.tensor([[0.2, 0.9, 0.5, 0.1, 0.8], [0.7, 0.1, 0.6, 0.6, 0.2]])
    layer = Attention(4, "published")
    winners = torch.stack([parts[0, 1], parts[1, 0]]).unsqueeze(1)
    torch.testing.assert_close(layer(queries, parts, presence), layer.out(layer.value(winners)).expand(2, 3, 4))
    layer.mask = "presence"
    scores = (layer.query(queries) @ layer.key(parts).mT / 2).exp() * presence.unsqueeze(1)
    weights = scores / scores.sum(-1, keepdim=True)
    torch.testing.assert_close(layer(queries, parts, presence), layer.out(weights @ layer.value(parts)))


@torch.no_grad()
def test_a_block_adds_attention_to_parts_scaled_by_presence_then_a_map_through_twice_the_width() -> None:
    block, x, presence = SelfAttention(4, "presence"), torch.randn(2, 5, 4), 0.01 + 0.1 * torch.rand(2, 5)
    # LayerNorm undoes the scale up to its epsilon, which shows with presences as small as these.
    y = F.layer_norm((x + block.attention(x, x, presence)) * presence.unsqueeze(-1), (4,))
    inner, inner_bias, outer, outer_bias = block.feed.parameters()
    assert inner.shape == (8, 4)
    mapped = (y @ inner.T + inner_bias).clamp_min(0) @ outer.T + outer_bias
    torch.testing.assert_close(block(x, presence), F.layer_norm(y + mapped, (4,)))


# ---- what gradients reach


def test_objects_learn_from_parts_that_do_not_learn_from_them(model: SCAE, images: Tensor) -> None:
    """The parts' likelihood moves neither poses nor presences nor templates; what objects see of a part's features,
    it does.
    """
    parts = model.encode_parts(images)
    leaves = [tensor.detach().requires_grad_() for tensor in (parts.presence, parts.poses, parts.features)]
    seen = PartCapsules(*leaves)
    explanations = model.part_explanations(seen, model.encode_objects(seen))
    model.zero_grad()
    explanations.logsumexp(1).sum().backward()
    presence, pose, features = leaves
    assert all(each.grad is None for each in (presence, pose, model.template_logits, model.colour[0].weight))
    assert features.grad is not None
    assert features.grad.abs().max() > 0
    for name in ("static_poses", "outputs", "seeds"):
        assert getattr(model, name).grad.abs().max() > 0, name


def test_every_parameter_is_reached_by_the_loss(model: SCAE, images: Tensor) -> None:
    noise = 2 * torch.rand(IMAGES, model.noise_size) - 1
    model(images, noise, EPOCH)[0].backward()
    still = {name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()}
    assert still == set()


# ---- learning


def test_information_of_binary_presences_in_closed_form() -> None:
    """Never depending on the image: nothing; on in one half of the images: log 2; in between: less."""
    half = np.repeat([0.0, 1.0], 8)
    found = bernoulli_information(np.stack([np.full(16, 0.3), half, 0.25 + 0.5 * half], axis=1))
    between = math.log(2) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75)
    np.testing.assert_allclose(found, [0.0, math.log(2), between], atol=1e-12)
