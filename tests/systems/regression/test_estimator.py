"""The estimator: scikit-learn's own checks, its two ways to learn, and what it says to bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from planted import planted
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pipeline.systems.regression.estimator import CapsuleRegression
from pipeline.systems.regression.model.capsules import predict_probabilities

DECISIONS = ("multiclass", "one-vs-all", "all-vs-all")


@parametrize_with_checks([CapsuleRegression(decision=decision) for decision in DECISIONS])  # type: ignore[arg-type]
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def example() -> tuple[Any, Any]:
    X, y = planted(150, 5, 3, noise=0.2)
    return X.numpy(), np.array(["ape", "bee", "cat"])[y.numpy()]


@pytest.mark.parametrize("decision", DECISIONS)
def test_classes_in_subspaces_are_told_apart(example: tuple[Any, Any], decision: Any) -> None:
    X, y = example
    model = CapsuleRegression(2, decision=decision, random_state=0).fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.85
    proba = model.predict_proba(X[100:])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert (model.classes_[proba.argmax(axis=1)] == model.predict(X[100:])).all()


def test_probabilities_are_the_models(example: tuple[Any, Any]) -> None:
    X, y = example
    model = CapsuleRegression(2, random_state=0).fit(X, y)
    inputs = torch.from_numpy(np.column_stack([X, np.ones(len(X))]))
    exact = predict_probabilities(torch.from_numpy(model.capsules_)[0], inputs, torch.tensor([2, 2, 2]))
    np.testing.assert_allclose(model.predict_proba(X), exact.numpy())
    lengths = (model.hidden_means(X)[:, 0] ** 2).sum(axis=-1)
    assert (lengths.argmax(axis=1) == exact.numpy().argmax(axis=1)).all()


def test_the_sign_of_inputs_counts_only_with_an_intercept(example: tuple[Any, Any]) -> None:
    X, y = example
    even = CapsuleRegression(fit_intercept=False, random_state=0).fit(X, y)
    np.testing.assert_allclose(even.predict_proba(X), even.predict_proba(-X))
    odd = CapsuleRegression(random_state=0).fit(X, y)
    assert np.abs(odd.predict_proba(X) - odd.predict_proba(-X)).max() > 0.01


def test_capsules_of_one_number_tell_what_a_line_tells() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 2))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0.3).astype(int)
    assert CapsuleRegression(1, random_state=0).fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.95


def test_the_seed_decides(example: tuple[Any, Any]) -> None:
    X, y = example
    settings = {"start": "random", "start_sd": 0.1, "max_iter": 30}
    first, again, other = (CapsuleRegression(random_state=seed, **settings).fit(X, y) for seed in (0, 0, 1))  # type: ignore[arg-type]
    assert np.array_equal(first.capsules_, again.capsules_)
    assert not np.array_equal(first.capsules_, other.capsules_)


@pytest.mark.parametrize("sizes", [[1, 3, 2], {"ape": 1, "cat": 2, "bee": 3, "dog": 9}])
def test_sizes_by_class(example: tuple[Any, Any], sizes: Any) -> None:
    X, y = example
    model = CapsuleRegression(sizes, random_state=0).fit(X, y)
    used = (np.abs(model.capsules_[0]).max(axis=-1) > 0).sum(axis=-1)
    assert used.tolist() == [1, 3, 2]


def test_it_works_in_pipelines_and_searches() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), CapsuleRegression(max_iter=60, random_state=0)),
        {"capsuleregression__capsule_size": [1, 2], "capsuleregression__ridge": [0.001]},
        cv=2,
    ).fit(X, y)
    assert search.best_score_ > 0.8
    assert clone(search.best_estimator_).get_params()["capsuleregression__ridge"] == 0.001


# ---- learning batch by batch


@pytest.mark.parametrize("decision", DECISIONS)
def test_batches_teach_as_much(example: tuple[Any, Any], decision: Any) -> None:
    X, y = example
    model = CapsuleRegression(2, decision=decision, ridge=1e-3, random_state=0)
    for _ in range(30):
        for rows in np.array_split(np.arange(100), 4):
            model.partial_fit(X[rows], y[rows], classes=["cat", "bee", "ape"])
    assert model.score(X[100:], y[100:]) > 0.85
    assert model.n_iter_ == 120


def test_a_first_batch_may_lack_a_class(example: tuple[Any, Any]) -> None:
    X, y = example
    model = CapsuleRegression(2, ridge=1e-2, random_state=0)
    model.partial_fit(X[y == "ape"], y[y == "ape"], classes=["ape", "bee", "cat"])
    for _ in range(60):
        model.partial_fit(X[:100], y[:100])
    assert model.score(X[100:], y[100:]) > 0.8


def test_batches_after_a_fit_go_on_from_it(example: tuple[Any, Any]) -> None:
    X, y = example
    model = CapsuleRegression(2, ridge=1e-3, random_state=0).fit(X[:100], y[:100])
    before = model.capsules_.copy()
    model.partial_fit(X[:10], y[:10])
    moved = np.abs(model.capsules_ - before).max() / np.abs(before).max()
    assert 0 < moved < 0.7, "not forgotten"
    assert model.score(X[100:], y[100:]) > 0.8


# ---- bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decision": "some-vs-all"}, "decision is 'some-vs-all'"),
        ({"start": "zero"}, "start is 'zero'"),
        ({"dtype": "float16"}, "dtype is 'float16'"),
        ({"ridge": -1.0}, "ridge is -1"),
        ({"momentum": 1.0}, "momentum is 1"),
        ({"max_iter": 0}, "max_iter is 0"),
        ({"validation_fraction": 1.0}, "validation_fraction is 1"),
        ({"thresholds": [0.5]}, "thresholds and patience"),
        ({"thresholds": [2.0], "patience": [3]}, "each from 0 to 1"),
        ({"thresholds": [0.5], "patience": [0]}, "each 1 or more"),
        ({"online_rate": 0.2}, "online_rate is 0.2"),
        ({"capsule_size": 0}, "one positive size"),
        ({"capsule_size": [1, 2]}, "capsule sizes"),
        ({"capsule_size": {"ape": 2}}, r"no entry for \['bee', 'cat'\]"),
    ],
)
def test_parameters_out_of_range_are_named(example: tuple[Any, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CapsuleRegression(**settings).fit(*example)


def test_inputs_of_no_use_are_named(example: tuple[Any, Any]) -> None:
    X, y = example
    model = CapsuleRegression(4, fit_intercept=False, random_state=0)
    few = np.concatenate([np.flatnonzero(y != "cat"), np.flatnonzero(y == "cat")[:3]])
    with pytest.raises(ValueError, match=r"class 2: 3 examples, fewer than the 4 numbers.*2: cat"):
        model.fit(X[few], y[few])
    with pytest.raises(ValueError, match="all inputs are zero"):
        model.fit(X * 0, y)
    with pytest.raises(ValueError, match="span 2 dimensions, fewer than the capsule's size 4"):
        model.fit(X[:, :2], y)
    with pytest.raises(ValueError, match=r"one class only \(ape\)"):
        model.fit(X[y == "ape"], y[y == "ape"])
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 2, np.nan, X), y)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        model.fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        model.fit(X, X[:, 0])


def test_constant_features_are_taken(example: tuple[Any, Any]) -> None:
    X, y = example
    constant = np.column_stack([X, np.full(len(X), 1.5), np.zeros(len(X))])
    model = CapsuleRegression(2, random_state=0).fit(constant[:100], y[:100])
    assert model.score(constant[100:], y[100:]) > 0.7


def test_what_does_not_fit_the_fit_is_refused(example: tuple[Any, Any]) -> None:
    X, y = example
    model = CapsuleRegression(2, random_state=0)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.hidden_means(X)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    model.fit(X, y)
    with pytest.raises(ValueError, match=r"4 features.*expecting 5"):
        model.predict(X[:, :4])
    with pytest.raises(ValueError, match=r"not in classes: \['dog'\]"):
        model.partial_fit(X[:2], np.array(["ape", "dog"]))
    with pytest.raises(ValueError, match="differ from those of the first call"):
        model.partial_fit(X, y, classes=["ape", "bee"])
    assert model.score(X[:3], np.array(["dog", "dog", "dog"])) == 0, "labels never seen are never right"
