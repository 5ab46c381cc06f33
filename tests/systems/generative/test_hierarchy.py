"""One layer of the hierarchy against sums over every assignment of parents, against quadrature, and by sampling.

The formulas of document 000 (equations 3 to 6) are written out here with Python loops and scipy's densities, sharing
nothing with the code under test.
"""

import math
from itertools import product
from typing import Literal

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit
from torch import Tensor

from pipeline.systems.generative.model.distributions import join
from pipeline.systems.generative.model.hierarchy import ChildrenGivenParents, log_parent_probabilities, votes

Slots = Literal["own", "any"]
SLOTS: list[Slots] = ["own", "any"]
N, M = 2, 3
"""Parents (without the dummy) and children."""
TEMPERATURE, OFF_SD = 0.8, 0.3


class Example:
    """Random parents and parameters, and the layer they make."""

    def __init__(self, batch: int = 2, seed: int = 0, spread: float = 0.3) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=random, dtype=torch.float64)

        self.y0 = normal(batch, N)
        self.A0 = normal(batch, N, 6) * spread
        self.log_rho = normal(M, 1 + N) * 0.7
        self.gamma = normal(M, 1 + N)
        self.M = normal(N, M, 6) * spread
        self.dummy = normal(M, 6) * spread
        self.c = 0.1 + normal(M, 1 + N).abs() * 0.3
        self.off_pose = normal(M, 6) * spread
        self.value = join(normal(batch, M) * 1.5, normal(batch, M, 6) * spread)

    def layer(self, slots: Slots = "own") -> ChildrenGivenParents:
        log_pi, where = log_parent_probabilities(self.y0, self.log_rho), votes(self.A0, self.M, self.dummy)
        return ChildrenGivenParents(log_pi, self.gamma, where, self.c, self.off_pose, OFF_SD, TEMPERATURE, slots=slots)

    def pi(self, image: int) -> np.ndarray:
        """Equation 3: `[M, 1 + N]`."""
        weights = np.exp(self.log_rho.numpy()) * [1.0, *expit(self.y0[image].numpy())]
        return weights / weights.sum(axis=1, keepdims=True)

    def vote(self, image: int, i: int, j: int) -> np.ndarray:
        """The pose that parent i (0 the dummy) expects of child j, as an offset: (I + A_i) M_ij by 3x3 matrices."""
        if i == 0:
            return self.dummy[j].numpy()

        def full(A: Tensor) -> np.ndarray:
            return np.vstack([A.numpy().reshape(2, 3) + np.eye(2, 3), [0, 0, 1]])

        matrix = full(self.A0[image, i - 1]) @ full(self.M[i - 1, j])
        return (matrix[:2] - np.eye(2, 3)).ravel()

    def child_log_prob(self, image: int, i: int, j: int, place: int | None = None) -> float:
        """log p(y_j, A_j | s_j = i) of the image's value, without the choice of i; in place j unless one is given."""
        k = j if place is None else place
        y, A = self.value[image, j, 0].item(), self.value[image, j, 1:].numpy()
        t = expit(y)
        present = stats.logistic.logpdf(y, self.gamma[k, i].item() / TEMPERATURE, 1 / TEMPERATURE)
        on = stats.norm.logpdf(A, self.vote(image, i, k), self.c[k, i].item()).sum()
        off = stats.norm.logpdf(A, self.off_pose[k].numpy(), OFF_SD).sum()
        return float(present + t * on + (1 - t) * off)

    def joint(self, image: int, j: int, slots: Slots) -> np.ndarray:
        """p(child j, place k, parent i), `[M, 1 + N]`; all in its own place where that is the only one."""
        pi = self.pi(image)
        places = range(M) if slots == "any" else [j]
        table = np.zeros((M, 1 + N))
        for k, i in product(places, range(1 + N)):
            table[k, i] = pi[k, i] / len(places) * math.exp(self.child_log_prob(image, i, j, k))
        return table


@pytest.mark.parametrize("slots", SLOTS)
def test_log_prob_is_the_sum_over_all_assignments_of_all_children_and_routing_sums_the_places_out(slots: Slots) -> None:
    """Of every joint assignment of places k and parents s, not child by child: the sum over
    (k, s) in ({0..m-1} x {0..n})^m of prod_j p(k_j) pi(s_j | k_j) p(child j | k_j, s_j).
    """
    example = Example()
    layer = example.layer(slots=slots)
    log_prob, routing, joint = (
        function(example.value) for function in (layer.log_prob, layer.parent_posterior, layer.joint_log_prob)
    )
    assert log_prob.shape == (2,)
    assert routing.shape == joint.shape == (2, M, 1 + N)
    for image in range(2):
        tables = [example.joint(image, j, slots) for j in range(M)]
        total = sum(math.prod(terms) for terms in product(*(table.ravel() for table in tables)))
        assert log_prob[image].item() == pytest.approx(math.log(total), rel=1e-10)
        of_parents = np.stack([table.sum(0) for table in tables])
        np.testing.assert_allclose(joint[image].exp().numpy(), of_parents, rtol=1e-9)
        expected = of_parents / of_parents.sum(-1, keepdims=True)
        np.testing.assert_allclose(routing[image].numpy(), expected, rtol=1e-9)


def test_log_normaliser_is_the_integral_over_the_pose() -> None:
    """The six numbers of a pose factorise, so that six 1-d quadratures are the whole integral."""
    example = Example(batch=1)
    layer = example.layer()
    y = torch.tensor([[-3.0, 0.2, 4.0]], dtype=torch.float64)
    ours = layer.log_normaliser(y, layer.votes)
    assert ours.shape == (1, M, 1 + N)
    grid = np.linspace(-6, 6, 12_001)
    for j, i in product(range(M), range(1 + N)):
        t = expit(y[0, j].item())
        vote, sd = example.vote(0, i, j), example.c[j, i].item()
        total = 0.0
        for k in range(6):
            on = stats.norm.logpdf(grid, vote[k], sd)
            off = stats.norm.logpdf(grid, example.off_pose[j, k].item(), OFF_SD)
            total += math.log(np.trapezoid(np.exp(t * on + (1 - t) * off), grid))
        assert ours[0, j, i].item() == pytest.approx(total, abs=1e-6)


# ---- sampling

DRAWS = 20_000
WITHIN = 4.5
"""Standard errors allowed. Chance exceeds them once in 147,000 comparisons; each test below makes fewer than 15, so
that it fails by chance in fewer than 1 of 9,800 runs (the seeds are fixed: it either always passes or never)."""


def close_in_mean(first: Tensor, second: Tensor | float, standard_error: Tensor) -> None:
    assert ((first - second).abs() < WITHIN * standard_error).all(), (first, second, standard_error)


def test_samples_weighted_by_the_density_count_what_they_cover() -> None:
    """E_sample[r(x) / p(x)] = 1 for any normalised density r: holds only where samples come from exactly that p.

    p is log_prob with every parent's term divided by its normaliser.
    """
    torch.manual_seed(1)
    layer = Example(batch=1).layer()
    value = layer.sample(torch.Size([DRAWS]))[:, 0]
    log_p = layer.joint_log_prob(value, normalised=True).logsumexp(-1)  # (DRAWS, M)
    y, A = value[..., 0], value[..., 1:]
    # r: each child's own logistic and a narrow Gaussian at its first vote, inside of what p covers
    log_r = torch.distributions.Normal(0.0, 1.0).log_prob(y - 1.0)
    t = y.sigmoid()
    on, off = (t / layer.c[:, 1] ** 2)[..., None], ((1 - t) / OFF_SD**2)[..., None]
    centre = (on * layer.votes[0, :, 1] + off * layer.inactive_pose) / (on + off)
    log_r = log_r + torch.distributions.Normal(centre, (on + off).rsqrt()).log_prob(A).sum(-1)
    ratio = (log_r - log_p).exp()
    close_in_mean(ratio.mean(0), 1.0, ratio.std(0) / DRAWS**0.5)


def test_samples_in_any_place_are_alike_and_have_the_moments_of_the_mixture() -> None:
    """Every child's share of present ones and mean pose are those of the mixture over places and parents."""
    torch.manual_seed(3)
    example = Example(batch=1)
    layer = example.layer(slots="any")
    value = layer.sample(torch.Size([DRAWS]))[:, 0]
    assert layer.log_prob(value).isfinite().all()
    mixture = torch.from_numpy(example.pi(0)) / M  # (M places, 1 + N)
    present = (mixture * layer.gamma.sigmoid()).sum()
    share = (value[..., 0] > 0).double().mean(0)
    close_in_mean(share, present, (present * (1 - present) / DRAWS).sqrt().expand(M))
    # Where presences are nearly certain, poses are at the votes.
    example.gamma[:] = 40.0
    A = example.layer(slots="any").sample(torch.Size([DRAWS]))[:, 0, :, 1:]
    mean = (mixture[..., None] * layer.votes[0]).sum((0, 1))
    close_in_mean(A.mean(0), mean.expand(M, 6), A.std(0) / DRAWS**0.5)


# ---- gradients


@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("name", ["y0", "A0", "log_rho", "gamma", "M", "c", "value"])
def test_gradients_agree_with_finite_differences(name: str, slots: Slots) -> None:
    example = Example()
    before = getattr(example, name).clone().requires_grad_()

    def log_prob(value: Tensor) -> Tensor:
        setattr(example, name, value)
        return example.layer(slots=slots).log_prob(example.value)

    assert torch.autograd.gradcheck(log_prob, (before,), eps=1e-6, atol=1e-5, rtol=1e-4)
