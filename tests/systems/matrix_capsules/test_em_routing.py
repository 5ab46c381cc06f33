"""EM routing against a loop written from the equations, its gradient against finite differences, and what must hold."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from em_loop import PARAMS, PUBLISHED, by_the_letter, routing
from gradients import with_gradients
from scipy import stats
from small import BAYES
from torch import Tensor

from pipeline.systems.matrix_capsules.model import em_routing
from pipeline.systems.matrix_capsules.model.em_routing import (
    Moments,
    Step,
    cast_votes,
    history,
    images_at_once,
    m_step,
    route,
)
from pipeline.systems.matrix_capsules.model.matrix_capsules import of_whole_poses
from pipeline.systems.matrix_capsules.model.receptive_fields import ReceptiveFields
from pipeline.systems.matrix_capsules.settings import BayesParams

ACTIVATIONS = ("mdl", "mixing", "bayes")
COMPETITIONS = ("all", "position")
Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def some(height: int, kernel: int, c: int = 2, D: int = 3, P: int = 4, B: int = 2, seed: int = 0) -> Inputs:
    """Capsules, transformations and betas, whose votes differ enough for every assignment to matter."""
    torch.manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64)

    active = torch.rand(B, height**2, c, dtype=torch.float64) * 0.9 + 0.05
    return normal(B, height**2, c, P), active, 0.5 * normal(kernel**2, c, P, D, P), normal(D), normal(D) * 0.3 + 0.5


@pytest.mark.parametrize("first", [{}, PUBLISHED])
@pytest.mark.parametrize("competition", COMPETITIONS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(
    ("height", "kernel", "stride", "offsets"),
    [(4, 3, 1, None), (6, 3, 2, None), (3, 3, 1, torch.randn(9, 4).double())],
    ids=["overlapping", "strided, an edge unseen", "class layer"],
)
def test_routing_does_what_the_equations_say(
    height: int,
    kernel: int,
    stride: int,
    offsets: Tensor | None,
    activation: str,
    competition: str,
    first: dict[str, Any],
) -> None:
    inputs = some(height, kernel)
    how = routing(height, kernel, stride, offsets=offsets, activation=activation, competition=competition, **first)
    poses, activations = route(*inputs, how)
    steps = history(*inputs, how)
    for image in range(2):
        expected, active, assignments = by_the_letter(inputs, image, how, stride)
        # Both add next to nothing to the mass that means are divided by, or do not.
        np.testing.assert_allclose(poses[image], expected, rtol=2e-5, atol=2e-6)
        np.testing.assert_allclose(activations[image], active, rtol=2e-5)
        found = steps[-1].assignments[image]  # (p, D, N)
        children = how.fields.children
        for ((x, i), (p, d)), value in assignments[-1].items():
            k = children[p].tolist().index(x)
            assert found[p, d, k * 2 + i].item() == pytest.approx(value, rel=1e-4, abs=1e-7)


PRIORS = [
    BayesParams.model_validate({**BAYES, **changes})
    for changes in (
        {},
        {"alpha0": 0.3, "kappa0": 2.5, "nu0": 5.0, "psi0": 0.4},
        {"nu0": 4.0, "precisions": "wishart", "shares_of": "position"},
        {"alpha0": 2.0, "kappa0": 0.2, "nu0": 6.5, "psi0": 3.0, "precisions": "wishart"},
    )
]
WAYS: list[dict[str, Any]] = [
    *({"activation": activation, **first} for activation in ACTIVATIONS for first in ({}, PUBLISHED)),
    *({"activation": "bayes", "bayes": priors, "batch_norm": True} for priors in PRIORS[1:]),
]


@pytest.mark.parametrize("changes", WAYS)
@pytest.mark.parametrize("competition", COMPETITIONS)
@pytest.mark.parametrize(("height", "kernel", "stride", "iterations"), [(3, 2, 1, 3), (4, 3, 1, 1), (6, 3, 2, 2)])
def test_gradients_flow_through_every_iteration(
    height: int, kernel: int, stride: int, iterations: int, competition: str, changes: dict[str, Any]
) -> None:
    inputs = [each.requires_grad_() for each in some(height, kernel, P=3, D=2, B=1)]
    how = routing(height, kernel, stride, iterations, competition=competition, **changes)
    torch.autograd.gradcheck(lambda *each: route(*each, how), inputs, eps=1e-6, atol=1e-6, fast_mode=True)


def test_a_few_images_at_a_time_give_what_fewer_at_once_give() -> None:
    how, inputs = routing(4, 3), [each.requires_grad_() for each in some(4, 3, B=1300)]
    assert 650 < images_at_once(inputs[0], inputs[2], how) < 1300
    poses, active, *others = inputs
    halves = [route(poses[part], active[part], *others, how) for part in (slice(650), slice(650, None))]
    parts = [torch.cat(each) for each in zip(*halves, strict=True)]
    torch.testing.assert_close(with_gradients(route(*inputs, how), inputs), with_gradients(parts, inputs))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_one_graph_has_the_whole_routing(activation: str) -> None:
    """Compiled for a GPU, it has no part that runs in Python."""
    inputs = [each.requires_grad_() for each in some(4, 3)]
    how = routing(4, 3, iterations=2, activation=activation)
    graph = torch.compile(em_routing._last, fullgraph=True, dynamic=False, backend="aot_eager")
    expected = with_gradients(route(*inputs, how), inputs)
    torch.testing.assert_close(with_gradients(graph(*inputs, how), inputs), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # of torch's compiler: full float32
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_gpu_routes_as_the_processor_does(activation: str) -> None:
    inputs = [each.requires_grad_() for each in some(4, 3, P=16)]
    how = routing(4, 3, activation=activation)
    expected = with_gradients(route(*inputs, how), inputs)
    there = [each.detach().float().cuda().requires_grad_() for each in inputs]
    how = replace(how, fields=how.fields.to(torch.device("cuda")))
    found = with_gradients(route(*there, how), there)
    with torch.no_grad():
        unfused = route(*there, how)
    for value, right in zip([*found, *unfused], [*expected, *expected[:2]], strict=True):
        torch.testing.assert_close(value.cpu().double(), right, rtol=1e-4, atol=1e-5)


def free_energy(step: Step, shares: Tensor, votes: Tensor, active: Tensor) -> Tensor:
    """Energies minus entropies of each image: sum over i, j of a_i R_ij (ln R_ij - ln share_j - ln N(V_ij))."""
    parents = step.parents
    variance = (-0.5 / parents.quadratic).unsqueeze(-2)
    densities = torch.distributions.Normal(parents.poses.unsqueeze(-2), variance.sqrt()).log_prob(votes).sum(-1)
    each = step.assignments * (step.assignments.clamp_min(1e-300).log() - shares.log().unsqueeze(-1) - densities)
    return (active.unsqueeze(2) * each).sum((1, 2, 3))


@pytest.mark.parametrize("seed", range(3))
def test_the_free_energy_never_rises_over_iterations(seed: int) -> None:
    """With shares as activations this is EM for a mixture of Gaussians; without damping or a floor, to the letter."""
    inputs = some(4, 3, seed=seed)
    how = routing(4, 3, iterations=12, activation="mixing", damping=0.0, variance_floor=1e-12)
    votes = cast_votes(inputs[0], inputs[2], how)
    active = how.fields.gather(inputs[1]).flatten(2)
    steps = history(*inputs, how)
    energies = torch.stack([free_energy(step, step.parents.activations, votes, active) for step in steps])
    assert (energies.diff(dim=0) < 1e-5).all()
    assert (energies[0] - energies[-1] > 1).all()


def turned(inputs: Inputs, T: Tensor) -> Inputs:
    """All poses, read as matrices, seen by another viewer: T times the pose."""
    poses = (T @ inputs[0].unflatten(-1, (2, 2))).flatten(-2)
    return poses, *inputs[1:]


def test_any_view_of_agreeing_parts_turns_the_whole_along() -> None:
    """Votes that agree exactly for one parent stay in agreement from everywhere: the equivariance that routing is for.

    Children see a whole of pose S as M_i = S inv(W_i); the other parent gets votes that agree on nothing.
    """
    generator = torch.Generator().manual_seed(3)
    W = torch.randn(9, 1, 2, 2, 2, dtype=torch.float64, generator=generator)  # (k, c, i, D, j)
    S = torch.tensor([[1.0, 0.3], [-0.2, 0.8]], dtype=torch.float64)
    poses = (S @ torch.linalg.inv(W[:, 0, :, 0])).flatten(-2)[None, :, None]  # (1, 9, 1, 4)
    full = of_whole_poses(W, 9, 4)
    inputs = (poses, torch.ones(1, 9, 1, dtype=torch.float64), full, torch.zeros(2).double(), torch.zeros(2).double())
    how = routing(3, 3, variance_floor=1e-4)
    for angle in torch.linspace(0, 2 * math.pi, 7, dtype=torch.float64):
        view = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
        found, active = route(*turned(inputs, view), how)
        torch.testing.assert_close(found[0, 0, 0].view(2, 2), view @ S, rtol=1e-5, atol=1e-5)
        assert active[0, 0, 0] > 0.9
        assert active[0, 0, 1] < 0.51  # nobody's: neither costs nor savings
        assert history(*turned(inputs, view), how)[-1].assignments[0, 0, 0].min() > 0.99


@pytest.mark.parametrize("priors", PRIORS)
def test_posteriors_of_variational_bayes_by_sampling(priors: BayesParams) -> None:
    """The E-step's coefficients are the mean, over the posterior of shares, means and precisions, of log densities.

    Of two positions with two types, one of which is looked at. Precisions by whole matrices in Wishart's case.
    """
    random = np.random.default_rng(0)
    votes = torch.randn(6, 3, dtype=torch.float64) * 0.5 + 1
    weights = torch.rand(2, 2, 6, dtype=torch.float64)
    moments = Moments(weights.sum(-1)[None], (weights @ votes)[None], (weights @ votes.square())[None])
    betas = torch.tensor([0.4, -0.2]).double(), torch.tensor([0.1, -0.3]).double()
    params, origin = PARAMS.model_copy(update={"bayes": priors}), torch.zeros(1, 2, 2, 3).double()
    found, before = (
        m_step(
            moments, None, *betas, 1.0, origin, params.model_copy(update={"activation": "bayes", "batch_norm": norm})
        )
        for norm in (False, True)
    )
    n, p, d = 100_000, 0, 1
    mass, first, second = (each[0, p, d].numpy() for each in (moments.mass, moments.first, moments.second))
    kappa, nu = priors.kappa0 + mass, priors.nu0 + mass
    centre = first / kappa
    inverse_scale = 1 / priors.psi0 + second - kappa * centre**2  # of the posterior, its diagonal
    if priors.precisions == "wishart":
        precision = stats.wishart(df=nu, scale=np.diag(1 / inverse_scale)).rvs(n, random)
    else:
        precision = random.gamma(nu / 2, 2 / inverse_scale, (n, 3))[:, :, None] * np.eye(3)
    root = np.linalg.cholesky(np.linalg.inv(precision) / kappa)
    mean = centre + np.einsum("nij,nj->ni", root, random.normal(size=(n, 3)))
    all_shares = priors.alpha0 + moments.mass[0].numpy()
    if priors.shares_of == "position":
        shares = random.dirichlet(all_shares[p], n)[:, d]
    else:
        shares = random.dirichlet(all_shares.flatten(), n)[:, 2 * p + d]
    vote = np.array([0.3, 1.5, -0.2])
    log_determinant = np.linalg.slogdet(precision)[1]
    squares = np.einsum("ni,nij,nj->n", vote - mean, precision, vote - mean)
    densities = np.log(shares) + 0.5 * (log_determinant - 3 * math.log(2 * math.pi) - squares)
    constant, linear, quadratic = (each[0, p, d].numpy() for each in (found.constant, found.linear, found.quadratic))
    value = constant + linear @ vote + quadratic @ vote**2
    assert value == pytest.approx(densities.mean(), abs=5 * densities.std() / n**0.5)
    # The activation: the share's geometric mean, times the expected entropy of a vote and beta_u for each number of it.
    entropies = 1.5 * math.log(2 * math.pi * math.e) - 0.5 * log_determinant
    logit = betas[0][d] - math.exp(np.log(shares).mean()) * (3 * betas[1][d] + entropies.mean())
    error = abs(entropies.mean()) * np.log(shares).std() / n**0.5 + entropies.std() / n**0.5
    assert found.activations[0, p, d].logit().item() == pytest.approx(logit.item(), abs=5 * error)
    torch.testing.assert_close(before.activations.sigmoid(), found.activations)
    torch.testing.assert_close(before.constant, found.constant)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_single_precision_is_enough_for_votes_that_agree_far_from_the_origin(activation: str) -> None:
    """At the published floor: sds of 0.02 around poses of size 10, which routing is to find among others."""
    close = 10 + 0.02 * torch.randn(1, 25, 2, 4, dtype=torch.float64)
    close[:, ::3] += 0.3 * torch.randn(1, 9, 2, 4, dtype=torch.float64)
    active = torch.rand(1, 25, 2, dtype=torch.float64)
    same = torch.eye(4, dtype=torch.float64)[:, None].expand(9, 2, 4, 3, 4).contiguous()
    same = same + 0.001 * torch.randn(3, 4, dtype=torch.float64)
    inputs = (close, active, same, torch.zeros(3).double(), torch.zeros(3).double())
    how = routing(5, 3, variance_floor=5e-4, activation=activation, inverse_temperature=0.1)
    for exact, found in zip(history(*inputs, how), history(*(each.float() for each in inputs), how), strict=True):
        torch.testing.assert_close(found.assignments.double(), exact.assignments, rtol=0, atol=2e-3)
        torch.testing.assert_close(found.parents.quadratic.double(), exact.parents.quadratic, rtol=2e-3, atol=1e-3)
        torch.testing.assert_close(found.parents.poses.double(), exact.parents.poses, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.parents.activations.double(), exact.parents.activations, rtol=0, atol=1e-3)


@pytest.mark.parametrize("mass", [0.0, 1e-9, 1e-7, 1e-3, 2.0])
def test_a_parent_that_gets_next_to_nothing_has_moments_by_the_letter(mass: float) -> None:
    """Sums over votes divided by the mass plus 1e-7; about the mean damped by the pose before."""
    votes, weights = torch.tensor([0.5, 1.5, 3.0]).double(), mass * torch.tensor([0.2, 0.3, 0.5]).double()
    moments = Moments(weights.sum().view(1, 1), *((weights * votes**n).sum().view(1, 1, 1) for n in (1, 2)))
    before, nothing = torch.full((1, 1, 1), 0.8).double(), torch.zeros(1).double()
    params = PARAMS.model_copy(update={"variance_floor": 1e-3})
    found = m_step(moments, before, nothing, nothing, 1.0, torch.zeros(1, 1, 1).double(), params)
    mean = 0.9 * (weights * votes).sum() / (mass + 1e-7) + 0.1 * 0.8
    variance = 1e-3 + (weights * (votes - mean) ** 2).sum() / (mass + 1e-7)
    assert found.poses.item() == pytest.approx(mean.item())
    assert (-0.5 / found.quadratic).item() == pytest.approx(variance.item(), rel=1e-6)
    assert all(each.isfinite().all() for each in vars(found).values())


@pytest.mark.parametrize(("height", "kernel", "stride"), [(14, 3, 2), (6, 3, 1), (4, 4, 1), (5, 1, 2)])
def test_receptive_fields_by_hand(height: int, kernel: int, stride: int) -> None:
    fields = ReceptiveFields(height, kernel, stride)
    for p, (row, column) in enumerate(itertools.product(range(fields.side), repeat=2)):
        places = [
            (row * stride + r) * height + column * stride + c for r, c in itertools.product(range(kernel), repeat=2)
        ]
        assert fields.children[p].tolist() == places
    seen = torch.nn.functional.one_hot(fields.children, height**2).unsqueeze(-1)  # (p, k, X, 1)
    values = torch.randn(1, fields.side**2, kernel**2, 2)
    each = values[0].unsqueeze(2)
    assert fields.counts.tolist() == seen.sum((0, 1)).flatten().tolist()
    torch.testing.assert_close(fields.sum(values)[0], (seen * each).sum((0, 1)))
    torch.testing.assert_close(fields.amax(values)[0], torch.where(seen > 0, each, -torch.inf).amax((0, 1)))


def test_lambda_rises_to_its_limit_and_that_of_class_capsules_is_another() -> None:
    how = routing(3, 3, inverse_temperature_rate=0.9, class_inverse_temperature=0.25)  # lambda 0.3
    expected = [0.3 * (1 - 0.9), 0.3 * (1 - 0.9**2)]
    assert [how.inverse_temperature(index) for index in range(2)] == pytest.approx(expected)
    last = replace(how, last=True)
    assert [last.inverse_temperature(index) for index in range(2)] == pytest.approx([each / 4 for each in expected])
