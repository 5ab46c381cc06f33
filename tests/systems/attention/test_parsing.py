"""Who finds planted parents: inversion, routing, and what they stand on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small import ATTENTION

from pipeline.systems.attention.experiments import parsing
from pipeline.systems.attention.experiments.parsing import found, shapes
from pipeline.systems.attention.model.inversion import invert, starts
from pipeline.systems.attention.model.routing import Parse, dynamic_routing, em_routing, k_means
from pipeline.systems.attention.model.top_down import Hierarchy, Scenes, orthogonal_transforms, plant
from pipeline.systems.attention.settings import ParsingStudy


def settings_of(**changes: float) -> ParsingStudy:
    inversion = {"steps": 150, "rate": 0.05, "starts": 6, "kept": 3, "samples": 2, "judging": 16, "widest": 2.0}
    return ParsingStudy(**ATTENTION["parsing"] | inversion | changes)


def hierarchy(sigma: float, objects: int = 3, parts: int = 10, clutter: float = 0.1) -> Hierarchy:
    W = orthogonal_transforms(parts, objects, 4, np.random.default_rng(0))
    return Hierarchy(W, torch.tensor([10.0]), torch.tensor([sigma]), clutter, 1.0, 1.0)


def test_planted_parents_are_found_at_low_noise() -> None:
    model = hierarchy(0.02, clutter=0.0)
    scenes = plant(model, 40, 2, np.random.default_rng(1))
    inverted = invert(model, scenes.parts, None, settings_of())
    assert found(inverted.parse, scenes).mean() > 0.97
    shown = scenes.present & torch.stack([(scenes.parents == j).sum(1) >= 2 for j in range(3)], dim=1)
    assert float((inverted.parse.poses - scenes.poses).square().mean(-1).sqrt()[shown].median()) < 0.05
    at = model.votes(scenes.parts)
    several = em_routing(at, 20, 0.02, 0, 4)
    for parse in (dynamic_routing(at, 10), em_routing(at, 20, 0.02, 0), several, k_means(at, 20)):
        assert found(parse, scenes).mean() > 0.85


def test_one_object_alone_is_a_linear_gaussian_model() -> None:
    """With one object and no clutter the posterior is Gaussian and known: mean, sd and evidence."""
    model = hierarchy(0.3, objects=1, parts=5, clutter=0.0)
    scenes = plant(model, 3, 1, np.random.default_rng(2))
    settings = settings_of(steps=600, rate=0.02, starts=2, kept=1, samples=8, judging=64, widest=1.0)
    inverted = invert(model, scenes.parts, None, settings)
    precision = 1 + 5 / 0.3**2  # orthogonal transformations
    mean = model.votes(scenes.parts)[:, :, 0].sum(1) / 0.3**2 / precision
    torch.testing.assert_close(inverted.parse.poses[:, 0], mean, rtol=0, atol=0.05)
    assert float(inverted.sds.mean()) == pytest.approx(precision**-0.5, rel=0.1)
    for scene, bound in zip(scenes.parts, inverted.bound, strict=True):
        design = model.W[:, 0].reshape(20, 4)
        covariance = 0.3**2 * torch.eye(20) + design @ design.T
        evidence = torch.distributions.MultivariateNormal(torch.zeros(20), covariance).log_prob(scene.flatten())
        assert float(bound) == pytest.approx(float(evidence), abs=0.5)


def test_scales_are_learned() -> None:
    model = hierarchy(0.15, clutter=0.0)
    scenes = plant(model, 60, 1, np.random.default_rng(3))
    wrong = replace(model, kappa=model.kappa * 3, sigma=model.sigma * 3, clutter=0.1)
    settings = settings_of(steps=200, starts=3, kept=2)
    inverted = invert(wrong, scenes.parts, scenes.cues, settings, learn=True)
    assert float(inverted.hierarchy.sigma) == pytest.approx(0.15, rel=0.15)
    assert float(inverted.hierarchy.kappa) == pytest.approx(10, rel=0.15)


def test_a_part_that_is_called_clutter_is_not_found() -> None:
    parents = torch.tensor([[[0.3, 0.1], [0.6, 0.2], [0.1, 0.9], [0.5, 0.1]]])
    zeros = torch.zeros(1, 2, 4)
    scenes = Scenes(zeros, zeros, torch.tensor([[0, 0, 0, 2]]), zeros, torch.ones(1, 2, dtype=torch.bool))
    assert found(Parse(parents, zeros), scenes).tolist() == pytest.approx([2 / 3])
    knows = Parse(torch.cat([parents, 1 - parents.sum(-1, keepdim=True)], dim=-1), torch.zeros(1, 2, 4))
    assert knows.chosen.tolist() == [[2, 0, 1, 0]]
    assert found(knows, scenes).tolist() == pytest.approx([1 / 3])
    assert found(knows, Scenes(zeros, zeros, torch.full((1, 4), 2), zeros, scenes.present)).tolist() == []


def test_what_is_measured_of_two_scenes_by_hand() -> None:
    """Three parts of objects and one of clutter: in one scene two parents are found, in the other all and clutter.
    The first object is shown and off by 1 in every number, the second absent and off by 5.
    """
    chosen, truth = torch.tensor([[2, 0, 1, 0], [0, 0, 1, 2]]), torch.tensor([[0, 0, 1, 2]] * 2)
    zeros, poses = torch.zeros(2, 2, 4), torch.tensor([1.0, 5.0]).view(1, 2, 1).expand(2, 2, 4)
    scenes = Scenes(zeros, zeros, truth, zeros, torch.tensor([[True, False]] * 2))
    measures = parsing.measured(Parse(torch.eye(3)[chosen], poses), scenes)
    expected = {"found": 5 / 6, "standard_error": 1 / 6, "clutter_found": 0.5, "pose_error": 1}
    assert measures == pytest.approx(expected)


def test_routing_is_told_how_wide_clutter_is() -> None:
    study, model = ParsingStudy(**ATTENTION["parsing"]), replace(hierarchy(0.3, clutter=0.4), clutter_sd=2.0)
    scenes = plant(model, 5, 2, np.random.default_rng(0))
    density = torch.distributions.Normal(0.0, 2.0).log_prob(scenes.parts).sum(-1)
    at = model.votes(scenes.parts)
    expected = em_routing(at, study.long_iterations, 0.3, study.seed, study.routing_starts, density)
    found = parsing.route(model, scenes, study)["EM routing, several starts, clutter"]
    torch.testing.assert_close(found.parents, expected.parents)


def test_inversion_sees_cues_only_where_its_name_says_so() -> None:
    """Routing sees no cues. Inversion is compared with it: with other cues for the same parts it must find the same."""
    study = ParsingStudy(**ATTENTION["parsing"] | {"steps": 10})
    model = hierarchy(0.3)
    scenes = plant(model, study.scenes, 2, np.random.default_rng(10))
    others = replace(scenes, cues=scenes.cues.roll(1, dims=0))
    inverted, again = (parsing.invert_with_and_without(model, each, study) for each in (scenes, others))
    alike = {method for method in inverted if torch.equal(inverted[method].parents, again[method].parents)}
    assert alike == {parsing.INVERSION}
    assert inverted.keys() == {parsing.INVERSION, "inversion, cues", "inversion, cues, scales learned"}


def test_the_lead_is_that_of_pairs() -> None:
    """Two settings whose scenes differ in nothing else: the spread of scenes themselves is not in it."""
    one, other = torch.tensor([0.1, 0.3, 0.2, 0.2]), torch.tensor([0.0, 0.0, 0.0, 0.0])
    lead = parsing.lead_of([one, other])
    assert lead["mean"] == pytest.approx(0.1)
    assert lead["standard_error"] == pytest.approx(float(one.std()) / 2 / 2)
    assert (lead["scenes"], lead["more"], lead["as_many"]) == (8, 1, 1)


def test_what_is_told_as_the_bound_did_not_choose() -> None:
    """Of many starts at the same place, judged by one sample, the luckiest would tell too high a bound."""
    model = hierarchy(0.3, objects=1, parts=5, clutter=0.0)
    scenes = plant(model, 60, 1, np.random.default_rng(8))
    few, many = (
        settings_of(steps=200, rate=0.02, starts=starts, kept=starts, judging=1, widest=1.0) for starts in (1, 16)
    )
    a, b = (invert(model, scenes.parts, None, each).bound for each in (few, many))
    assert float(b.mean()) == pytest.approx(float(a.mean()), abs=4 * float((b - a).std()) / math.sqrt(60))


def test_the_first_start_is_where_most_votes_agree() -> None:
    model = hierarchy(0.01)
    scenes = plant(model, 5, 1, np.random.default_rng(5))
    begun = starts(model, scenes.parts, 2, torch.Generator().manual_seed(0))
    assert float((begun[:, 0] - scenes.poses).abs().amax(-1)[scenes.present].max()) < 0.1


def log_likelihood(at: torch.Tensor, parents: torch.Tensor, least: float) -> torch.Tensor:
    """Of votes `[B, m, n, d]`, by scene, under a mixture whose proportions, means and sds follow from the parents."""
    weights = parents.unsqueeze(-1) / parents.sum(1).clamp_min(1e-9)[:, None, :, None]
    mean = (weights * at).sum(1, keepdim=True)
    sd = (weights * (at - mean).square()).sum(1, keepdim=True).sqrt().clamp_min(least)
    density = torch.distributions.Normal(mean, sd).log_prob(at).sum(-1)
    return (density + parents.mean(1, keepdim=True).clamp_min(1e-9).log()).logsumexp(-1).sum(1)


def test_em_routing_never_lowers_the_likelihood_and_keeps_the_most_likely_start() -> None:
    noise = torch.randn(1, 30, 4, 3).double()
    reached = [float(log_likelihood(noise, em_routing(noise, k, 1e-9, 0).parents, 1e-9)) for k in range(12)]
    assert np.diff(reached).min() > -1e-9
    assert reached[-1] > reached[0] + 1
    model = hierarchy(0.2, clutter=0.3)
    at = model.votes(plant(model, 50, 2, np.random.default_rng(9)).parts)
    single, several = (log_likelihood(at, em_routing(at, 60, 0.2, 0, starts).parents, 0.2) for starts in (1, 8))
    assert bool((several > single - 0.05).all())
    assert bool((several > single + 0.1).any())


def test_clutter_has_a_share_like_every_object() -> None:
    """One E-step by hand. Both objects have mean 0, sd 1 and one third of the two parts, and so has clutter: its
    density of exp(-2) counts by this third, too.
    """
    at = torch.tensor([[[-1.0], [-1.0]], [[1.0], [1.0]]]).unsqueeze(0)  # (1, 2, 2, 1)
    parse = em_routing(at, 1, 1.0, 0, 1, torch.full((1, 2), -2.0))
    of_object = math.exp(-0.5) / math.sqrt(2 * math.pi) / 3
    of_clutter = math.exp(-2.0) / 3
    expected = of_clutter / (2 * of_object + of_clutter)
    assert parse.parents[..., 2].tolist() == [pytest.approx([expected] * 2, rel=1e-5)]


def test_the_shapes_outlines_move_with_their_pose() -> None:
    W = shapes(12)
    assert W.shape == (12, 3, 4, 4)
    still, turned = torch.tensor([[0.0, 0, 1, 0], [2, 1, 0, 2]])  # moved, turned by 90, doubled
    a, b = W @ still, W @ turned
    torch.testing.assert_close(b[..., 0] - 2, -2 * a[..., 1])
    torch.testing.assert_close(b[..., 1] - 1, 2 * a[..., 0])
    torch.testing.assert_close(b[..., 2:].norm(dim=-1), 2 * a[..., 2:].norm(dim=-1))
