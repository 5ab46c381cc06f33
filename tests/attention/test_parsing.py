"""Who finds planted parents: inversion, routing, and what they stand on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from pipeline.attention.inversion import Settings, invert, starts
from pipeline.attention.routing import dynamic_routing, em_routing, k_means
from pipeline.attention.scenes import Scenes, orthogonal_transforms, plant, votes
from pipeline.attention.studies.parsing import shapes
from pipeline.attention.top_down import Hierarchy

SETTINGS = Settings(steps=150, rate=0.05, starts=6, samples=2, widest=2.0)


def hierarchy(sigma: float, objects: int = 3, parts: int = 10) -> Hierarchy:
    W = orthogonal_transforms(parts, objects, 4, np.random.default_rng(0))
    return Hierarchy(W, torch.tensor([10.0]), torch.tensor([sigma]), 0.1, 1.0, 1.0)


def found(parents: torch.Tensor, scenes: Scenes) -> float:
    real = scenes.parents < parents.shape[-1]
    return float((parents.argmax(-1) == scenes.parents)[real].float().mean())


def test_planted_parents_are_found_at_low_noise() -> None:
    model = hierarchy(0.02)
    scenes = plant(model, 40, 2, 0.0, 0.02, np.random.default_rng(1))
    inverted = invert(model, scenes.parts, None, SETTINGS, torch.Generator().manual_seed(0))
    assert found(inverted.parse.parents, scenes) > 0.97
    shown = scenes.present & torch.stack([(scenes.parents == j).sum(1) >= 2 for j in range(3)], dim=1)
    assert float((inverted.parse.poses - scenes.poses).square().mean(-1).sqrt()[shown].median()) < 0.05
    at = votes(model.W, scenes.parts)
    for parse in (dynamic_routing(at, 10), em_routing(at, 20, 0.02), k_means(at, 20)):
        assert found(parse.parents, scenes) > 0.85


def test_one_object_alone_is_a_linear_gaussian_model() -> None:
    """With one object and no clutter the posterior is Gaussian and known: mean, sd and evidence."""
    model = hierarchy(0.3, objects=1, parts=5)
    model = Hierarchy(model.W, model.kappa, model.sigma, 1e-12, 1.0, 1.0)
    scenes = plant(model, 3, 1, 0.0, 0.3, np.random.default_rng(2))
    settings = Settings(steps=600, rate=0.02, starts=2, samples=8, widest=1.0)
    inverted = invert(model, scenes.parts, None, settings, torch.Generator().manual_seed(0))
    precision = 1 + 5 / 0.3**2  # orthogonal transformations
    mean = votes(model.W, scenes.parts)[:, :, 0].sum(1) / 0.3**2 / precision
    torch.testing.assert_close(inverted.parse.poses[:, 0], mean, rtol=0, atol=0.05)
    assert float(inverted.sds.mean()) == pytest.approx(precision**-0.5, rel=0.1)
    for scene, bound in zip(scenes.parts, inverted.bound, strict=True):
        design = model.W[:, 0].reshape(20, 4)
        covariance = 0.3**2 * torch.eye(20) + design @ design.T
        evidence = torch.distributions.MultivariateNormal(torch.zeros(20), covariance).log_prob(scene.flatten())
        assert float(bound) == pytest.approx(float(evidence), abs=0.5)


def test_scales_are_learned() -> None:
    model = hierarchy(0.15)
    scenes = plant(model, 100, 1, 0.0, 0.15, np.random.default_rng(3))
    wrong = Hierarchy(model.W, model.kappa * 3, model.sigma * 3, 0.1, 1.0, 1.0)
    settings = Settings(steps=300, rate=0.05, starts=3, samples=2, widest=1.0)
    inverted = invert(wrong, scenes.parts, scenes.cues, settings, torch.Generator().manual_seed(0), learn=True)
    assert inverted.sigma == pytest.approx(0.15, rel=0.15)
    assert inverted.kappa == pytest.approx(10, rel=0.15)


def test_clutter_is_no_ones() -> None:
    model = hierarchy(0.05)
    scenes = plant(model, 40, 1, 0.4, 0.05, np.random.default_rng(4))
    inverted = invert(model, scenes.parts, None, SETTINGS, torch.Generator().manual_seed(0))
    nobody = 1 - inverted.parse.parents.sum(-1)
    assert float(nobody[scenes.parents == 3].mean()) > 0.5 > float(nobody[scenes.parents < 3].mean())


def test_the_first_start_is_where_most_votes_agree() -> None:
    model = hierarchy(0.01)
    scenes = plant(model, 5, 1, 0.0, 0.01, np.random.default_rng(5))
    begun = starts(model, scenes.parts, 2, torch.Generator().manual_seed(0)).view(5, 2, 3, 4)
    assert float((begun[:, 0] - scenes.poses).abs().amax(-1)[scenes.present].max()) < 0.1


def test_the_bound_lies_below_what_it_bounds_and_near_it() -> None:
    """The evidence of tiny scenes by averaging over the prior, which the posterior is not much narrower than."""
    model = hierarchy(1.0, objects=2, parts=3)
    scenes = plant(model, 4, 2, 0.0, 1.0, np.random.default_rng(6))
    settings = Settings(steps=300, rate=0.05, starts=4, samples=64, widest=1.0)
    inverted = invert(model, scenes.parts, None, settings, torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    prior = torch.randn(400_000, 2, 4)
    for scene, bound in zip(scenes.parts, inverted.bound, strict=True):
        components = model.components(prior)
        log_likelihood = (components.log_weights(None) + components.log_poses(scene)).logsumexp(-1).sum(-1)
        evidence = float(log_likelihood.logsumexp(0)) - math.log(len(prior))
        assert evidence - 1.5 < float(bound) < evidence + 0.1


def test_routing_against_a_loop() -> None:
    torch.manual_seed(0)
    at = torch.randn(1, 5, 3, 4).double()
    logits = torch.zeros(5, 3).double()
    for _ in range(3):
        weights = logits.softmax(1)
        for j in range(3):
            s = sum(weights[i, j] * at[0, i, j] for i in range(5))
            norm = s.norm()
            v = norm**2 / (1 + norm**2) * s / norm
            logits[:, j] += torch.stack([at[0, i, j] @ v for i in range(5)])
    torch.testing.assert_close(dynamic_routing(at, 3).parents[0], logits.softmax(1))


def test_em_routing_never_lowers_the_likelihood() -> None:
    """Of votes under a mixture whose proportions, means and variances follow from the parents, worked out here."""
    torch.manual_seed(0)
    at = torch.randn(1, 30, 4, 3).double()

    def log_likelihood(parents: torch.Tensor) -> float:
        total = 0.0
        shares, means, variances = [], [], []
        for j in range(4):
            weights = parents[0, :, j, None]
            shares.append(float(weights.mean()))
            means.append((weights * at[0, :, j]).sum(0) / weights.sum())
            variances.append((weights * (at[0, :, j] - means[j]) ** 2).sum(0) / weights.sum())
        for i in range(30):
            densities = [
                share * float(torch.distributions.Normal(mean, variance.sqrt()).log_prob(at[0, i, j]).sum().exp())
                for j, (share, mean, variance) in enumerate(zip(shares, means, variances, strict=True))
            ]
            total += math.log(sum(densities))
        return total

    reached = [log_likelihood(em_routing(at, k, 1e-9).parents) for k in range(12)]
    assert np.diff(reached).min() > -1e-9
    assert reached[-1] > reached[0] + 1


def test_the_shapes_outlines_move_with_their_pose() -> None:
    W = shapes(12)
    assert W.shape == (12, 3, 4, 4)
    still, turned = (
        torch.tensor([0.0, 0.0, 1.0, 0.0]),
        torch.tensor([2.0, 1.0, 0.0, 2.0]),
    )  # moved, turned by 90, doubled
    a, b = W @ still, W @ turned
    torch.testing.assert_close(b[..., 0] - 2, -2 * a[..., 1])
    torch.testing.assert_close(b[..., 1] - 1, 2 * a[..., 0])
    torch.testing.assert_close(b[..., 2:].norm(dim=-1), 2 * a[..., 2:].norm(dim=-1))
