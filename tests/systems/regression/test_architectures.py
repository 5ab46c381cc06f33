"""Which problems an architecture has, and how their answers become one; pairwise coupling against a minimiser."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from pipeline.systems.regression.model.architectures import (
    build_architecture,
    class_scores,
    couple,
    coupled_probabilities,
)
from pipeline.systems.regression.model.capsules import predict_probabilities
from pipeline.systems.regression.settings import Decision

DOUBLE = torch.float64


def test_problems_and_capsules() -> None:
    whole = build_architecture("multiclass", 2, 3)
    assert (whole.capsules.tolist(), whole.shape) == ([[0, 1, 2]], (1, 3, 2))
    against = build_architecture("one-vs-all", 4, 3)
    assert (against.capsules.tolist(), against.shape) == ([[0, 1, 1], [1, 0, 1], [1, 1, 0]], (3, 2, 4))
    pairs = build_architecture("all-vs-all", 4, 3)
    assert (pairs.capsules.tolist(), pairs.shape) == ([[0, 1, -1], [0, -1, 1], [-1, 0, 1]], (3, 2, 4))
    assert all(build_architecture(decision, 3, 2).capsules.tolist() == [[0, 1]] for decision in get_args(Decision))


def random_model(problems: int) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Weights of problems with two capsules, inputs, and each problem's answers `[n, 2]`."""
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(problems, 2, 2, 3, generator=generator, dtype=DOUBLE)
    X = 2 * torch.randn(200, 3, generator=generator, dtype=DOUBLE)
    return W, X, [predict_probabilities(weights, X) for weights in W]


def test_one_vs_all_takes_the_most_certain() -> None:
    arc = build_architecture("one-vs-all", 2, 4)
    W, X, answers = random_model(4)
    own = torch.stack([answer[:, 0] for answer in answers], dim=1)
    torch.testing.assert_close(class_scores(arc, W, X), own / own.sum(1, keepdim=True))
    torch.testing.assert_close(coupled_probabilities(arc, W, X), own / own.sum(1, keepdim=True))


def test_all_vs_all_takes_the_majority_breaks_ties_by_probability_and_couples_the_pairs() -> None:
    arc = build_architecture("all-vs-all", 2, 4)
    W, X, answers = random_model(6)
    votes, support, pairs = (torch.zeros(200, *shape, dtype=DOUBLE) for shape in ((4,), (4,), (4, 4)))
    for answer, (i, j) in zip(answers, combinations(range(4), 2), strict=True):
        for row, (first, second) in enumerate(answer.tolist()):
            votes[row, i if first >= second else j] += 1
            support[row, i] += first
            support[row, j] += second
        pairs[:, i, j], pairs[:, j, i] = answer.unbind(1)
    decided = torch.tensor(
        [max(range(4), key=lambda c, v=v, s=s: (v[c], s[c])) for v, s in zip(votes, support, strict=True)]
    )
    assert (votes.sort(1).values[:, -1] == votes.sort(1).values[:, -2]).any(), "ties are among them"
    assert torch.equal(class_scores(arc, W, X).argmax(1), decided)
    found = coupled_probabilities(arc, W, X)
    torch.testing.assert_close(found, couple(pairs))
    assert 0 < (found.argmax(1) != decided).double().mean() < 0.3, "votes and probabilities are two rules"


@pytest.mark.parametrize("m", [2, 3, 10])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_consistent_pairs_give_their_probabilities_back(m: int, spread: float) -> None:
    noise = torch.randn(50, m, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    p = (spread * noise).softmax(-1)
    pairs = p[:, :, None] / (p[:, :, None] + p[:, None, :])
    torch.testing.assert_close(couple(pairs), p, rtol=1e-6, atol=1e-14)
    torch.testing.assert_close(couple(pairs.float()), p.float(), rtol=1e-3, atol=1e-5)


def test_contradicting_pairs_give_the_minimum() -> None:
    r = torch.rand(20, 4, 4, generator=torch.Generator().manual_seed(1), dtype=DOUBLE).triu(1)
    pairs = r + (1 - r.mT).tril(-1)
    found = couple(pairs).numpy()
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found > 0).all()

    def loss(p: np.ndarray, r: np.ndarray) -> float:
        return float(np.square((r.T * p[:, None] - r * p[None, :])[~np.eye(4, dtype=bool)]).sum())

    for p, r in zip(found, pairs.numpy(), strict=True):
        best = minimize(
            loss, np.full(4, 0.25), (r,), method="SLSQP", bounds=[(0, 1)] * 4, options={"ftol": 1e-14},
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        )  # fmt: skip
        np.testing.assert_allclose(p, best.x, atol=1e-5)


def test_certain_pairs() -> None:
    wins = torch.tensor([[[0, 1.0, 1], [0, 0, 1], [0, 0, 0]], [[0, 1.0, 0], [0, 0, 1], [1, 0, 0]]], dtype=DOUBLE)
    torch.testing.assert_close(couple(wins), torch.tensor([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3]], dtype=DOUBLE))
