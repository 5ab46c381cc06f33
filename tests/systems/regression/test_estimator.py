"""The estimator: scikit-learn's own checks, its rules of decision, its probabilities, and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from planted import planted
from sklearn.utils.estimator_checks import parametrize_with_checks

from pipeline.systems.regression.estimator import CapsuleRegression, held_out
from pipeline.systems.regression.model.capsules import predict_probabilities

DECISIONS = ("multiclass", "one-vs-all", "all-vs-all")
RULES = ("multiclass", "all-vs-all")
"""The most probable class, or that with the most votes."""


def not_passed(estimator: Any) -> dict[str, str]:
    """scikit-learn's checks that do not hold for an estimator, and why."""
    if estimator.decision == "all-vs-all":
        return {"check_classifiers_train": "the most probable class need not be the one with the most votes"}
    return {}


@parametrize_with_checks(
    [CapsuleRegression(decision=decision, thresholds=(0.5, 0.0), patience=(8, 4)) for decision in RULES],  # type: ignore[arg-type]
    expected_failed_checks=not_passed,
)
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
    likeliest = model.classes_[proba.argmax(axis=1)]
    assert (likeliest == y[100:]).mean() > 0.85
    if decision != "all-vs-all":
        assert (likeliest == model.predict(X[100:])).all()


def test_pairs_of_rare_classes_are_trained(example: tuple[Any, Any]) -> None:
    """No example of two of the classes is held out, so nothing but training examples can choose their weights."""
    centres = np.array([[0, 0], [3, 0], [0, 3]])
    y = np.repeat([0, 1, 2], [200, 5, 5])
    X = centres[y] + 0.3 * np.random.default_rng(0).normal(size=(210, 2))
    model = CapsuleRegression(1, decision="all-vs-all", random_state=0).fit(X, y)
    assert not held_out(y, model.validation_fraction, np.random.RandomState(0))[200:].any()
    assert (model.predict(X) == y)[200:].mean() > 0.8


def test_probabilities_are_the_models(example: tuple[Any, Any]) -> None:
    X, y = example
    model = CapsuleRegression(2, random_state=0).fit(X, y)
    inputs = torch.from_numpy(np.column_stack([X, np.ones(len(X))]))
    exact = predict_probabilities(torch.from_numpy(model.capsules_)[0], inputs)
    np.testing.assert_allclose(model.predict_proba(X), exact.numpy())


def test_a_share_of_every_class_is_held_out() -> None:
    classes = np.repeat([0, 1, 2], [40, 20, 1])
    held = held_out(classes, 0.3, np.random.RandomState(0))
    assert [int(held[classes == c].sum()) for c in range(3)] == [12, 6, 0]
    assert held_out(classes, 0.9, np.random.RandomState(0))[-1] == 0, "one of each class remains"
    assert not held_out(classes, 0, np.random.RandomState(0)).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decision": "some-vs-all"}, "'decision' parameter"),
        ({"momentum": 1.0}, "momentum"),
        ({"thresholds": [0.5]}, "patience must have an entry"),
        ({"thresholds": [2.0], "patience": [3]}, "thresholds"),
    ],
)
def test_parameters_out_of_range_are_named(example: tuple[Any, Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CapsuleRegression(**settings).fit(*example)


def test_inputs_of_no_use_are_named(example: tuple[Any, Any]) -> None:
    X, y = example
    model = CapsuleRegression(4, fit_intercept=False, random_state=0)
    few = np.concatenate([np.flatnonzero(y != "cat"), np.flatnonzero(y == "cat")[:3]])
    with pytest.raises(ValueError, match=r"class 2: the inputs span 3 dimensions.*2: cat"):
        model.fit(X[few], y[few])
    with pytest.raises(ValueError, match="all inputs are zero"):
        model.fit(X * 0, y)
    with pytest.raises(ValueError, match=r"one class only \(ape\)"):
        model.fit(X[y == "ape"], y[y == "ape"])
