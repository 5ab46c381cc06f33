"""The mixture of affine arrangements: its closed forms, its EM, and what a model makes of it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from small import SMALL
from torch import Tensor

from pipeline.layers import poses
from pipeline.systems.generative.model.arrangements import Arrangements, explain, fit_arrangements, object_errors
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeModelParams

O, P = 3, 5


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def arrangements(generator: torch.Generator, spread: float = 0.6) -> Arrangements:
    linear = 0.4 * torch.eye(2) + 0.1 * torch.randn(O, P, 2, 2, generator=generator)
    places = spread * torch.randn(O, P, 2, 1, generator=generator)
    M = poses.to_offset(torch.cat([linear, places], dim=-1))
    return Arrangements(
        M.double(),
        torch.rand(O, P, generator=generator).double() * 0.1 + 0.05,
        torch.randn(O, P, generator=generator).double(),
    )


def planted(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Presences and poses of parts of n images, each an affine map of one of O arrangements, and which."""
    planned, which = arrangements(generator), torch.randint(O, (n,), generator=generator)
    moved = 0.15 * torch.randn(n, 1, poses.POSE_SIZE, generator=generator).double()
    voted = poses.compose(poses.to_matrix(moved), poses.to_matrix(planned.M[which]))
    A = poses.to_offset(voted) + 0.02 * torch.randn(n, P, poses.POSE_SIZE, generator=generator)
    return torch.rand(n, P, generator=generator).double() * 0.2 + 0.8, A, which


def test_the_best_object_pose_and_its_log_probability_are_those_of_a_numerical_optimiser(
    generator: torch.Generator,
) -> None:
    given, (t, A, _) = arrangements(generator), planted(2, generator)
    t[0, 1] = 0.1  # a part that hardly counts
    found = explain(t, A, given)
    for n in range(2):
        for i in range(O):

            def negative(flat: np.ndarray, n: int = n, i: int = i) -> float:
                A0 = torch.from_numpy(flat)
                voted = poses.to_offset(poses.compose(poses.to_matrix(A0), poses.to_matrix(given.M[i])))
                near = torch.distributions.Normal(voted, given.c[i, :, None]).log_prob(A[n]).sum(-1)
                gamma = given.gamma[i]
                on, off = torch.nn.functional.logsigmoid(gamma), torch.nn.functional.logsigmoid(-gamma)
                log_prob = (t[n] * (near + on) + (1 - t[n]) * off).sum() - 0.5 * (A0**2).sum()
                return -float(log_prob)

            best = minimize(negative, np.zeros(poses.POSE_SIZE), tol=1e-10)
            assert float(found.log_probs[n, i]) == pytest.approx(-best.fun, rel=1e-7)
            np.testing.assert_allclose(found.object_poses[n, i].numpy(), best.x, atol=1e-4)
    voted = poses.compose(poses.to_matrix(found.object_poses).unsqueeze(2), poses.to_matrix(given.M))
    expected = ((A.unsqueeze(1) - poses.to_offset(voted)) ** 2).sum(-1)
    torch.testing.assert_close(found.squared, expected)


def test_em_finds_planted_arrangements_and_its_objective_never_falls(generator: torch.Generator) -> None:
    """The objective is that of equally likely objects, as they are planted."""
    t, A, which = planted(300, generator)

    def objective(fit: Arrangements) -> float:
        return float(explain(t, A, fit).log_probs.logsumexp(-1).mean())

    last = []
    for seed in range(3):
        fits = [fit_arrangements(t, A, O, count, torch.Generator().manual_seed(seed)) for count in (0, 1, 2, 3, 25)]
        objectives = [objective(fit) for fit in fits]
        assert all(after > before for before, after in pairwise(objectives))
        last.append(fits[-1])
    best = max(last, key=objective)
    found = explain(t, A, best).log_probs.argmax(-1)
    purity = sum(int(torch.bincount(which[found == i], minlength=O).max()) for i in range(O)) / len(which)
    assert purity > 0.98
    assert float(best.c[0, 0]) == pytest.approx(0.02, rel=0.25)


SEEDED: dict[str, Any] = SMALL | {
    "seeding": {"images": 40, "iterations": 5, "teaching_epochs": 1},
    "seeding_epoch": 1,
    "early_coupling": 0.0,
    "pose_sd_floor": 0.02,
}


@pytest.fixture
def model() -> GenerativeModel:
    return GenerativeModel(GenerativeModelParams.model_validate(SEEDED), 12).train()


def test_seeding_sets_the_generative_model_of_the_objects_and_nothing_else(model: GenerativeModel) -> None:
    images = torch.rand(40, 1, 12, 12)
    before = {name: value.clone() for name, value in model.named_parameters()}
    model.begin_epoch(images)
    changed = {name for name, value in model.named_parameters() if not torch.equal(before[name], value)}
    assert changed == {"M", "gamma", "c_excess"}
    assert torch.equal(before["gamma"][:, 0], model.gamma[:, 0].detach())  # the dummy's
    assert [model.beginning_images(epoch) for epoch in range(3)] == [0, 40, 0]
    with torch.no_grad():
        y1, A1 = model.encode_parts(images)
    fit = fit_arrangements(y1.sigmoid(), A1, 3, 5, torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.M, fit.M)
    torch.testing.assert_close(model.gamma[:, 1:], fit.gamma.T)
    torch.testing.assert_close(model.c[:, 1:], fit.c.T.clamp_min(0.022), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seeding", [SEEDED["seeding"], None])
def test_the_mean_inactive_pose_is_that_of_the_parts_that_are_present_and_is_not_trained(
    seeding: dict[str, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = GenerativeModelParams.model_validate(SEEDED | {"inactive_pose": "mean", "seeding": seeding})
    model = GenerativeModel(params, 12).train()
    assert torch.equal(model.inactive_pose, model.initial_pose)
    images = torch.rand(40, 1, 12, 12)
    y1, A1 = torch.randn(40, params.parts), 0.3 * torch.randn(40, params.parts, poses.POSE_SIZE)
    monkeypatch.setattr(model, "encode_parts", lambda images: (y1[: len(images)], A1[: len(images)]))
    model.begin_epoch(images)
    for part in range(params.parts):
        expected = np.average(A1[:, part].numpy(), axis=0, weights=y1[:, part].sigmoid().numpy())
        assert model.inactive_pose[part].numpy() == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert model.inactive_pose[part].numpy() != pytest.approx(A1[:, part].mean(0).numpy(), rel=1e-3), "weighted"
    assert not model.inactive_pose.requires_grad
    layer = model.parts_given_objects(*model.encode_objects(y1, A1))
    assert torch.equal(layer.inactive_pose, model.inactive_pose)


def test_while_objects_are_taught_their_encoder_learns_from_the_mixture_and_parts_from_the_pixels(
    model: GenerativeModel,
) -> None:
    images, noise = torch.rand(8, 1, 12, 12), model.draw_noise((8,), torch.Generator().manual_seed(0))

    def gradients(loss: Tensor) -> dict[str, Tensor]:
        names = dict(model.named_parameters())
        found = torch.autograd.grad(loss, list(names.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(names, found, strict=True))

    taught = gradients(model(images, noise, torch.tensor(1.5))[0])
    trace = model.trace_bound(images, noise, 0.0, temperature=model.temperature_at(torch.tensor(1.5)))
    pixels = gradients(-trace.log_pixels.mean())
    of_objects = {"embed", "part_identity", "set_transformer", "object_head"}
    for name, gradient in taught.items():
        if name.partition(".")[0] in of_objects:
            assert float(gradient.abs().sum()) > 0, name
        else:
            torch.testing.assert_close(gradient, pixels[name], rtol=1e-4, atol=1e-5)
    # Before and after, the loss is the bound's.
    for epoch in (0.5, 2.0):
        loss, metrics = model(images, noise, torch.tensor(epoch))
        assert float(loss.detach()) == pytest.approx(-float(metrics["bound"]), rel=1e-6)


@torch.no_grad()
def test_errors_of_taught_objects_by_hand(model: GenerativeModel) -> None:
    """Cross-entropy of presences; poses are drawn to the best one, in units of the mean c, or to 0, as by the prior."""
    model.gamma.add_(torch.randn_like(model.gamma))
    model.c_excess.add_(torch.randn_like(model.c_excess))
    model.double()
    noise = model.draw_noise((4,), torch.Generator().manual_seed(0)).double()
    trace = model.trace_bound(torch.rand(4, 1, 12, 12).double(), noise)
    c = model.c[:, 1:].T
    arrangements = Arrangements(model.M, c, model.gamma[:, 1:].T)
    found = explain(trace.parts[..., 0].sigmoid(), trace.parts[..., 1:], arrangements)
    posterior = found.log_probs.softmax(-1)
    for n, error in enumerate(object_errors(arrangements, trace).tolist()):
        total = 0.0
        for i in range(O):
            share = posterior[n, i].item()
            presence = 1 / (1 + math.exp(-trace.object_logits[n, i].item()))
            total -= share * math.log(presence) + (1 - share) * math.log(1 - presence)
            A0 = trace.object_poses[n, i]
            near, size = float(((A0 - found.object_poses[n, i]) ** 2).sum()), float((A0**2).sum())
            total += share * near / (2 * c.mean().item() ** 2) + (1 - share) * size / 2
        assert error == pytest.approx(total, rel=1e-6)


def test_any_slot_has_no_arrangement() -> None:
    with pytest.raises(ValueError, match="seeding needs slots: own"):
        GenerativeModelParams.model_validate(SEEDED | {"slots": "any"})
