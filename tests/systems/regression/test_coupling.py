"""Pairwise coupling against probabilities that are known, and against a general minimiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from pipeline.systems.regression.model import coupling
from pipeline.systems.regression.model.architectures import (
    build_architecture,
    class_scores,
    coupled_probabilities,
    decision_values,
)
from pipeline.systems.regression.model.capsules import predict_probabilities
from pipeline.systems.regression.model.coupling import couple

DOUBLE = torch.float64


def pairs_of(p: Tensor) -> Tensor:
    """r_ij = p_i / (p_i + p_j) of probabilities `[n, m]`."""
    return p[:, :, None] / (p[:, :, None] + p[:, None, :])


def random_pairs(n: int, m: int) -> Tensor:
    """Probabilities of pairs that contradict each other."""
    r = torch.rand(n, m, m, generator=torch.Generator().manual_seed(1), dtype=DOUBLE).triu(1)
    return r + (1 - r.mT).tril(-1)


@pytest.mark.parametrize("m", [2, 3, 10])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_consistent_pairs_give_their_probabilities_back(m: int, spread: float) -> None:
    noise = torch.randn(50, m, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    p = (spread * noise).softmax(-1)
    torch.testing.assert_close(couple(pairs_of(p)), p, rtol=1e-6, atol=1e-14)
    torch.testing.assert_close(couple(pairs_of(p).float()), p.float(), rtol=1e-3, atol=1e-5)


def test_contradicting_pairs_give_the_minimum() -> None:
    pairs = random_pairs(20, 4)
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


def test_certain_pairs_and_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    wins = torch.tensor([[[0, 1.0, 1], [0, 0, 1], [0, 0, 0]], [[0, 1.0, 0], [0, 0, 1], [1, 0, 0]]], dtype=DOUBLE)
    torch.testing.assert_close(couple(wins), torch.tensor([[1.0, 0, 0], [1 / 3, 1 / 3, 1 / 3]], dtype=DOUBLE))
    pairs = random_pairs(7, 5)
    whole = couple(pairs)
    monkeypatch.setattr(coupling, "ELEMENTS", 80)  # two rows together
    torch.testing.assert_close(couple(pairs), whole)
    assert couple(pairs[:0]).shape == (0, 5)


def test_all_vs_all_is_coupled_from_its_pairs() -> None:
    arc = build_architecture("all-vs-all", 2, 4)
    generator = torch.Generator().manual_seed(0)
    W = torch.randn(6, 2, 2, 3, generator=generator, dtype=DOUBLE)
    X = 2 * torch.randn(200, 3, generator=generator, dtype=DOUBLE)
    answers = [predict_probabilities(W[k], X, torch.tensor([2, 2])) for k in range(6)]
    pairs = torch.zeros(200, 4, 4, dtype=DOUBLE)
    for k, (i, j) in enumerate([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]):
        pairs[:, i, j], pairs[:, j, i] = answers[k].unbind(1)
    found = coupled_probabilities(arc, W, X)
    torch.testing.assert_close(found, couple(pairs))
    decided = class_scores(arc, W, X).argmax(1)
    assert torch.equal(decision_values(arc, W, X).argmax(1), decided)
    differ = (found.argmax(1) != decided).double().mean()
    assert 0 < differ < 0.3, "votes and probabilities are two rules"
