"""EM against its equations written out, against gradients, and against itself in other forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from planted import fixed_point, planted, step
from torch import Tensor

from pipeline.systems.regression.model import expectation_maximisation as em
from pipeline.systems.regression.model.architectures import build_architecture
from pipeline.systems.regression.model.capsules import class_probabilities, posterior_means, predict_probabilities
from pipeline.systems.regression.model.expectation_maximisation import Problems

DOUBLE = torch.float64
DECISIONS = ("multiclass", "one-vs-all", "all-vs-all")


def naive_step(W: Tensor, X: Tensor, y: Tensor, threshold: float, ridge: float = 0.0) -> Tensor:
    """Equations 22 and 26 for one problem, weights `[C, d, p]`, example by example."""
    targets = []
    for x, label in zip(X, y, strict=True):
        P = predict_probabilities(W, x[None])[0]
        rival = max(float(P[j]) for j in range(len(P)) if j != int(label))
        if rival / float(P[label]) <= threshold:
            targets.append(W @ x)
        else:
            targets.append(posterior_means(W, x[None], label[None])[0])
    power = float(X.square().sum()) / X.shape[1]
    gram = X.T @ X + ridge * power * torch.eye(X.shape[1], dtype=X.dtype)
    return torch.einsum("ncd,np->cdp", torch.stack(targets), X) @ torch.linalg.inv(gram)


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("threshold", "ridge"), [(0.0, 0.0), (0.6, 0.05)])
def test_a_step_is_the_equations_written_out_for_each_problem_by_itself(
    decision: Any, size: int, threshold: float, ridge: float
) -> None:
    X, y = planted()
    arc = build_architecture(decision, size, 3)
    problems = Problems(X, y, arc, ridge=ridge, dtype=DOUBLE)
    W = problems.subspace_start() * 1.5
    ours = problems.own_coordinates(step(problems, W, threshold)[0])
    before = problems.own_coordinates(W)
    for k, capsules in enumerate(arc.capsules):
        seen = capsules[y] >= 0
        expected = naive_step(before[k], X[seen], capsules[y][seen], threshold, ridge)
        torch.testing.assert_close(ours[k], expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("decision", DECISIONS)
def test_likelihood_and_errors_are_those_of_the_probabilities(decision: Any) -> None:
    X, y = planted()
    arc = build_architecture(decision, 2, 3)
    problems = Problems(X, y, arc, dtype=DOUBLE)
    W = problems.subspace_start()
    found = problems.passed(W, torch.arange(len(W)), None, problems.sort(X[:40], y[:40]))
    for k, capsules in enumerate(arc.capsules):
        label = capsules[y[:40]]
        P = predict_probabilities(problems.own_coordinates(W)[k], X[:40][label >= 0])
        own = P.gather(1, label[label >= 0, None])[:, 0]
        assert found.log_likelihood[k].item() == pytest.approx(own.log().sum().item(), abs=1e-6)
        assert found.errors[k].item() == int((P.argmax(1) != label[label >= 0]).sum())


@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("seed", range(8))
def test_plain_em_never_lowers_the_likelihood(seed: int, decision: Any) -> None:
    random = np.random.default_rng(seed)
    classes, size, p = (int(random.integers(least, most + 1)) for least, most in ((2, 4), (1, 4), (1, 6)))
    scale = float(random.uniform(0.05, 5))
    X, y = planted(40, p, classes, noise=0.5, seed=seed)
    problems = Problems(X, y, build_architecture(decision, size, classes), dtype=DOUBLE)
    W = problems.random_start(scale, torch.Generator().manual_seed(seed))
    last = torch.full((len(W),), -math.inf, dtype=DOUBLE)
    for _ in range(12):
        W, likelihood = step(problems, W)
        assert (likelihood >= last - 1e-6).all()  # the table's error, summed over 40 examples
        last = likelihood


def test_a_fixed_point_with_a_ridge_is_a_stationary_point_of_the_penalised_likelihood() -> None:
    """d/dW (L - penalty / 2 ||W||^2) = 0, by automatic differentiation of the exact probabilities."""
    X, y = planted(60, 4, 3, noise=1.0)
    ridge = 0.02
    problems = Problems(X, y, build_architecture("multiclass", 2, 3), ridge=ridge, dtype=DOUBLE)
    own = problems.own_coordinates(fixed_point(problems, problems.subspace_start()))[0].requires_grad_()
    lengths = (X @ own.flatten(0, 1).T).unflatten(1, (3, 2)).square().sum(-1)
    beta = lengths.sum(-1) / 2
    rho = (torch.arange(4000, dtype=DOUBLE) + 0.5) / 4000  # the midpoint rule: error 1e-7 here
    l0 = beta * (rho**3 * ((rho - 1) * beta.unsqueeze(-1)).exp()).mean(-1)
    P = class_probabilities(lengths, 2, l0)
    penalty = ridge * float(X.square().sum()) / 4
    objective = P.gather(1, y[:, None]).log().sum() - penalty / 2 * own.square().sum()
    (slope,) = torch.autograd.grad(objective, own)
    assert slope.abs().max() < 1e-3
    assert (penalty * own).abs().max() > 0.1, "the penalty is no trifle here"


def test_inputs_may_be_scaled_turned_and_sheared() -> None:
    """EM is equivariant under linear maps: from the same start the same probabilities come out."""
    X, y = planted()
    A = torch.randn(5, 5, generator=torch.Generator().manual_seed(5), dtype=DOUBLE) * 30
    arc = build_architecture("all-vs-all", 2, 3)
    plain, mapped = Problems(X, y, arc, dtype=DOUBLE), Problems(X @ A, y, arc, dtype=DOUBLE)
    W = plain.subspace_start()
    V = mapped.whitened(plain.own_coordinates(W) @ torch.linalg.inv(A).T)
    for _ in range(5):
        W, V = step(plain, W, 0.3)[0], step(mapped, V, 0.3)[0]
    torch.testing.assert_close(mapped.own_coordinates(V) @ A.T, plain.own_coordinates(W), rtol=1e-6, atol=1e-8)


def test_features_without_variety_change_nothing() -> None:
    """A copy of a feature and one of zeros: the same likelihood, and weights that ignore the zeros."""
    X, y = planted()
    more = torch.cat([X, X[:, :1], torch.zeros(len(X), 1, dtype=DOUBLE)], dim=1)
    arc = build_architecture("multiclass", 2, 3)
    plain, wide = Problems(X, y, arc, dtype=DOUBLE), Problems(more, y, arc, dtype=DOUBLE)
    assert wide.whitener.shape == (7, 5)
    W = wide.subspace_start()
    V = plain.whitened(
        wide.own_coordinates(W)[..., :5] + torch.nn.functional.pad(wide.own_coordinates(W)[..., 5:6], (0, 4))
    )
    torch.testing.assert_close(step(wide, W)[1], step(plain, V)[1])
    assert wide.own_coordinates(W)[..., 6].abs().max() < 1e-12


def test_chunks_and_single_precision_change_little(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = planted()
    arc = build_architecture("one-vs-all", 2, 3)
    whole = Problems(X, y, arc, dtype=DOUBLE)
    W = whole.subspace_start()
    expected = step(whole, W, 0.2)
    monkeypatch.setattr(em, "CHUNK", 7)
    monkeypatch.setattr(em, "BLOCK", 100)
    chunked = step(Problems(X, y, arc, dtype=DOUBLE), W, 0.2)
    torch.testing.assert_close(chunked, expected)
    single = step(Problems(X, y, arc), W.float(), 0.2)
    torch.testing.assert_close(single[0].double(), expected[0], rtol=1e-4, atol=1e-5)


def test_starts() -> None:
    X, y = planted()
    arc = build_architecture("one-vs-all", 2, 3)
    problems = Problems(X, y, arc, dtype=DOUBLE)
    W = problems.own_coordinates(problems.subspace_start())
    moment = X[y == 1].T @ X[y == 1] / 30
    torch.testing.assert_close(W[1, 0] @ moment @ W[1, 0].T, torch.eye(2, dtype=DOUBLE) / 2)
    rest = X[y != 1].T @ X[y != 1] / 60
    torch.testing.assert_close(W[1, 1] @ rest @ W[1, 1].T, torch.eye(2, dtype=DOUBLE) / 2)
    noise = problems.own_coordinates(problems.random_start(0.1, torch.Generator().manual_seed(0)))
    expected = 0.1 * torch.randn(3, 2, 2, 5, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    torch.testing.assert_close(noise, expected)


def test_a_class_without_examples_is_named() -> None:
    X, y = planted()
    with pytest.raises(ValueError, match="class 2 has no examples"):
        Problems(X, y.clamp_max(1), build_architecture("multiclass", 2, 3))
