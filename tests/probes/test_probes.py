"""Linear probes: what they can read, and that validation alone chooses their strength."""

import numpy as np
import pytest

from pipeline.probes.generalisation import fit_probe

RANDOM = np.random.default_rng(0)


def clusters(count: int, classes: int = 4, spread: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Features `[count, 6]` in well separated clusters of very different scales, and their labels."""
    centres = np.random.default_rng(1).normal(size=(classes, 6))
    labels = RANDOM.integers(0, classes, count)
    features = centres[labels] + RANDOM.normal(0, spread, (count, 6))
    return (features * 10.0 ** np.arange(-3, 3)).astype(np.float32), labels


def test_separable_features_are_read_without_error() -> None:
    probe = fit_probe(clusters(200), clusters(50), [0.01, 0.1, 1.0, 10.0])
    features, labels = clusters(100)
    assert probe.accuracy(features, labels) == 1.0
    assert probe.accuracy(features, (labels + 1) % 4) == 0.0
    assert probe.accuracy(features, np.where(np.arange(100) < 25, labels, -1)) == 0.25


def test_a_feature_next_to_nothing_does_no_harm() -> None:
    """Expected children of an object that owns none: an sd below the least single-precision number, and not zero."""
    features, labels = clusters(400)
    faint = np.zeros((400, 1), np.float32)
    faint[0] = 1e-45
    with_faint = np.concatenate([features, faint], axis=1)
    assert fit_probe((with_faint, labels), (with_faint, labels), [1.0]).accuracy(with_faint, labels) == 1.0


def contradicting(count: int) -> tuple[np.ndarray, np.ndarray]:
    """A feature that tells two classes apart, of which the first has four fifths of the images."""
    labels = (np.arange(count) % 5 == 0).astype(np.int64)
    return (labels[:, None] + RANDOM.normal(0, 0.01, (count, 1))).astype(np.float32), labels


@pytest.mark.parametrize("strengths", [[1e-7, 100.0], [100.0, 1e-7]])
def test_validation_chooses_the_strength_even_where_another_would_do_better_elsewhere(strengths: list[float]) -> None:
    """A probe too weak to use its feature always answers with the larger class: perfect on these validation labels."""
    train, (features, labels) = contradicting(200), contradicting(100)
    probe = fit_probe(train, (features, np.zeros_like(labels)), strengths)
    assert probe.strength == 1e-7
    assert probe.accuracy(features, labels) == 0.8
    assert fit_probe(train, (features, labels), strengths).strength == 100.0


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_a_fit_started_from_a_weaker_one_is_the_optimum(strength: float) -> None:
    """The objective of scikit-learn's own optimum, found by Newton's method in double precision."""
    from sklearn.linear_model import LogisticRegression

    features, labels = clusters(300)
    labels = np.where(RANDOM.random(300) < 0.2, (labels + 1) % 4, labels)  # not separable
    wrong = np.full_like(labels, -1)
    started = fit_probe((features, labels), (features, wrong), [strength, strength / 10, strength / 100])
    assert started.strength == strength  # none is better, the first of equals
    inputs = started.scaler.transform(features.astype(np.float64))
    reference = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-10).fit(inputs, labels)

    def objective(classifier: LogisticRegression) -> float:
        logits = inputs @ classifier.coef_.T + classifier.intercept_
        losses = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(labels)), labels]
        return float(losses.sum() + 0.5 / strength * (classifier.coef_**2).sum())

    assert objective(started.classifier) == pytest.approx(objective(reference), rel=1e-3)
