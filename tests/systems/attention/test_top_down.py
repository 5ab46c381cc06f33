"""The top-down model: densities that sum to one and that samples follow, and attention as equation 6 has it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import entropy, norm, vonmises
from small import ATTENTION
from torch import Tensor

from pipeline.systems.attention.experiments import density, iterated
from pipeline.systems.attention.experiments.density import scores_of_cues, scores_of_poses
from pipeline.systems.attention.model import von_mises_fisher
from pipeline.systems.attention.model.top_down import (
    Components,
    Hierarchy,
    iterate_attention,
    literal_mass,
    orthogonal_transforms,
    plant,
)
from pipeline.systems.attention.settings import DensityStudy, IteratedStudy

FAILURE_RATE = 1e-4
"""Of every statistical test here, for right code, were the seed not fixed."""


@pytest.fixture
def components() -> Components:
    U = torch.tensor([[1.0, 0.5], [-0.8, 0.9], [0.3, -1.2]], dtype=torch.float64)
    kappa, sigma, prior = torch.tensor([[2, 6, 0.5], [0.3, 0.5, 0.4], [0.5, 0.3, 0.2]], dtype=torch.float64)
    return Components(U, kappa, sigma, prior.log())


def grid(half: float, cells: int) -> tuple[Tensor, float]:
    """Middles of square cells `[cells^2, 2]`, and the area of one."""
    step = 2 * half / cells
    middles = -half + step * (torch.arange(cells, dtype=torch.float64) + 0.5)
    return torch.cartesian_prod(middles, middles), step**2


def test_poses_and_cues_have_densities_that_sum_to_one(components: Components) -> None:
    points, area = grid(4.5, 400)
    for cue in (None, torch.tensor([0.6, 0.8], dtype=torch.float64)):
        assert float((components.log_pose_density(points, cue).exp() * area).sum()) == pytest.approx(1, abs=1e-6)
    angles = 2 * math.pi * torch.arange(720, dtype=torch.float64) / 720
    density = components.log_cue_density(torch.stack([angles.cos(), angles.sin()], dim=-1)).exp()
    assert float(density.mean() * 2 * math.pi) == pytest.approx(1, abs=1e-9)


def test_a_pose_as_its_own_cue_is_no_density(components: Components) -> None:
    """Equation 7 as it is written, on a grid and by Monte Carlo: far predictions count whole, every one of them."""
    points, area = grid(4.5, 400)
    own = torch.nn.functional.normalize(points, dim=-1)
    mass = float((components.log_pose_density(points, own).exp() * area).sum())
    assert mass > 1.2
    weights = von_mises_fisher_densities(components, own).softmax(-1)
    printed_mass = float(((weights * components.log_poses(points).exp()).sum(-1) * area).sum())
    assert literal_mass(components, 20_000) == pytest.approx({"literal": mass, "printed": printed_mass}, rel=0.02)
    assert abs(printed_mass - mass) > 0.1
    far = replace(components, predictions=100 * components.predictions, kappa=torch.full((3,), 1000.0).double())
    assert literal_mass(far, 100) == pytest.approx({"literal": 3, "printed": 3}, abs=1e-3)


def von_mises_fisher_densities(components: Components, cues: Tensor) -> Tensor:
    """Of directions `[K, 2]` on the circle, `[K, n]`, by SciPy."""
    at = torch.atan2(components.predictions[:, 1], components.predictions[:, 0])
    angles = torch.atan2(cues[:, 1], cues[:, 0])
    each = [vonmises(float(kappa)).pdf(angles - mean) for kappa, mean in zip(components.kappa, at, strict=True)]
    return torch.from_numpy(np.stack(each, axis=-1))


def test_printed_weights_hold_where_densities_overflow(components: Components) -> None:
    steep = replace(components, predictions=torch.eye(256, dtype=torch.float64)[:3], kappa=components.kappa * 1e6)
    weights = steep.log_printed_weights(torch.eye(256, dtype=torch.float64)[:3]).exp()
    torch.testing.assert_close(weights, torch.eye(3, dtype=torch.float64))


def test_samples_are_good_within_every_component(components: Components) -> None:
    """Unequal concentrations, sds and shares; against each component by itself, for poses and for cues."""
    torch.manual_seed(2)
    cues = components.sample_cues(40_000)
    torch.testing.assert_close(cues.norm(dim=-1), torch.ones(40_000, dtype=torch.float64))
    poses = components.sample_poses(40_000, cues[0])
    scores = [*scores_of_cues(components, cues), *scores_of_poses(components, cues[0], poses)]
    limit = norm.isf(FAILURE_RATE / len(scores) / 2)
    assert len(scores) >= 5
    assert max(map(abs, scores)) < limit
    # Another's concentration or sd would not pass.
    mixed = replace(components, kappa=components.kappa.roll(1), sigma=components.sigma.roll(1))
    assert max(map(abs, scores_of_cues(mixed, cues))) > 2 * limit
    assert max(map(abs, scores_of_poses(mixed, cues[0], poses))) > 2 * limit


def test_a_wrong_normalising_constant_is_seen(components: Components, monkeypatch: pytest.MonkeyPatch) -> None:
    cues, right = components.sample_cues(2_000), von_mises_fisher.scaled_log_normaliser
    poses = components.sample_poses(2_000, cues[0])
    before = scores_of_poses(components, cues[0], poses)
    monkeypatch.setattr(von_mises_fisher, "scaled_log_normaliser", lambda kappa, d: right(kappa, d) + 1)
    assert scores_of_poses(components, cues[0], poses) == pytest.approx(before), "weights are ratios of densities"
    assert min(map(abs, scores_of_cues(components, cues))) > 10
    density = Components.log_poses
    monkeypatch.setattr(Components, "log_poses", lambda self, parts: density(self, parts) + 1)
    assert min(map(abs, scores_of_poses(components, cues[0], poses))) > 10


def test_the_largest_deviation_may_be_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(density, "scores_of_cues", lambda *_: [1.0, -9.0])
    study = DensityStudy(**ATTENTION["density"] | {"dimensions": [2], "kappas": [1.0]})
    assert density.run(study).numbers["largest_z"]["mean"] == 9


def test_planted_scenes_follow_the_density_of_their_model() -> None:
    """With all objects shown a scene is a sample of the model: E[q / p] is one for poses and cues of one part.

    Concentrations and sds differ between objects: with another's, or with the largest, it would not be.
    """
    W = orthogonal_transforms(1, 3, 3, np.random.default_rng(3)).double()
    kappa, sigma = (torch.tensor(each, dtype=torch.float64) for each in ([2.0, 30.0, 8.0], [0.2, 0.5, 0.3]))
    model = Hierarchy(W, kappa, sigma, 0.2, 1.5, 1.0)
    # Poses given cues differ by scene; a quotient whose q is the narrowed joint of an object is bounded all the same.
    scenes = plant(model, 60_000, 3, np.random.default_rng(4))

    def scores(truth: Hierarchy) -> Tensor:
        components = truth.components(scenes.poses)
        joint = components.log_cue_density(scenes.cues) + components.log_pose_density(scenes.parts, scenes.cues)
        narrow = replace(components, kappa=2 * components.kappa, sigma=0.8 * components.sigma)
        inside = narrow.log_cues(scenes.cues) + narrow.log_poses(scenes.parts)
        ratios = (inside - joint.unsqueeze(-1))[:, 0].exp()  # (B, n + 1)
        return (ratios.mean(0) - 1) / (ratios.std(0) / math.sqrt(len(ratios)))

    limit = norm.isf(FAILURE_RATE / 4 / 2)
    assert float(scores(model).abs().max()) < limit
    for wrong in (replace(model, kappa=kappa.max().expand(3)), replace(model, sigma=sigma.roll(1))):
        assert float(scores(wrong).abs().max()) > 2 * limit


def test_parents_are_bayes_rule(components: Components) -> None:
    pose, cue = torch.tensor([0.2, 0.7], dtype=torch.float64), torch.tensor([0.0, 1.0], dtype=torch.float64)
    joint = (components.log_prior + components.log_cues(cue) + components.log_poses(pose)).exp()
    torch.testing.assert_close(components.parents(pose, cue), joint / joint.sum())
    both = components.log_cue_density(cue) + components.log_pose_density(pose, cue)
    assert float(both) == pytest.approx(math.log(float(joint.sum())))


def test_the_joint_density_is_the_sum_over_parse_trees() -> None:
    """That of a whole scene against brute force over every assignment of parts to objects and clutter."""
    W = orthogonal_transforms(4, 3, 3, np.random.default_rng(0)).double()
    kappa, sigma = torch.tensor([[5.0], [0.3]], dtype=torch.float64)
    hierarchy = Hierarchy(W, kappa, sigma, 0.2, 1.5, 1.0)
    torch.manual_seed(1)
    poses, parts = torch.randn(1, 3, 3).double(), torch.randn(1, 4, 3).double()
    cues = torch.nn.functional.normalize(torch.randn(1, 4, 3).double(), dim=-1)
    total = float(hierarchy.log_joint(poses, parts, cues))
    components = hierarchy.components(poses)
    prior, by_cue, by_pose = components.log_prior, components.log_cues(cues)[0], components.log_poses(parts)[0]
    sums = [
        sum(float(prior[s] + by_cue[i, s] + by_pose[i, s]) for i, s in enumerate(parents))
        for parents in np.ndindex(4, 4, 4, 4)
    ]
    brute = float(np.logaddexp.reduce(sums))
    brute += float(torch.distributions.Normal(0.0, 1.0).log_prob(poses).sum())
    assert total == pytest.approx(brute, rel=1e-9)


def test_attention_against_a_loop() -> None:
    parts, U = torch.randn(5, 3).double(), torch.randn(5, 4, 3).double()
    found = iterate_attention(parts, U, 3, 0.7)
    for i in range(5):
        V = parts[i]
        for step in range(3):
            scores = torch.stack([0.7 * (V @ U[i, j]) for j in range(4)]).exp()
            weights = scores / scores.sum()
            torch.testing.assert_close(found[step, i], weights)
            V = sum(weights[j] * U[i, j] for j in range(4))


def test_the_study_of_iterated_attention_tells_of_its_scenes() -> None:
    """On the same scenes, each iteration with its own entropies and parents; numbers of the first and the last."""
    study = IteratedStudy(**ATTENTION["iterated"] | {"sigmas": [0.5], "iterations": 4, "scales": [1.0]})
    found = iterated.run(study)
    random = np.random.default_rng(study.seed)
    W = orthogonal_transforms(study.parts, study.objects, study.dimensions, random)
    model = Hierarchy(W, torch.ones(1), torch.tensor([0.5]), 0.0, 1.0, 1.0)
    scenes = plant(model, study.scenes, study.objects, random)
    shares = iterate_attention(scenes.parts, model.predictions(scenes.poses), 4, 1.0).flatten(1, 2).numpy()
    right = (shares.argmax(-1) == scenes.parents.flatten().numpy()).mean(1)
    expected = np.stack([entropy(shares, axis=-1).mean(1), (shares.max(-1) > 0.99).mean(1), right], axis=1)
    np.testing.assert_allclose(found.table[["entropy", "single", "right"]], expected, rtol=1e-4)
    assert found.table["right"].nunique() > 1, "attention moves on"
    for name, step in (("first", 0), ("last", 3)):
        measured = [each["mean"] for each in found.numbers[name]["1"].values()]
        assert measured == pytest.approx(expected[step], rel=1e-4)


def test_planted_scenes_have_parts_of_the_objects_shown_alone() -> None:
    W = orthogonal_transforms(4, 3, 3, np.random.default_rng(0))
    model = Hierarchy(W, torch.tensor([5.0]), torch.tensor([0.1]), 0.25, 1.5, 1.0)
    scenes = plant(model, 4000, 2, np.random.default_rng(0))
    assert bool((scenes.present.sum(1) == 2).all())
    real = scenes.parents < 3
    assert abs(float((~real).float().mean()) - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 16_000)
    assert bool(scenes.present.gather(1, scenes.parents.clamp_max(2))[real].all())
    shares = model.components(scenes.poses, scenes.present).log_prior.exp()
    assert float(shares[..., :3].sum(1)[~scenes.present].max()) == 0, "who knows what is shown gives nothing to others"
