"""Linear probes: the accuracy of a linear classifier on a model's features (document 000, section 5.1)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Probe:
    """A fitted probe: standardised features into a logistic regression of inverse regularisation `strength`."""

    classifier: Any
    strength: float

    def accuracy(self, features: Array, labels: NDArray[np.int64]) -> float:
        """Share of `features [N, d]` classified as in `labels [N]`."""
        # As it was fit: the sd of a feature that is next to nothing would be zero in single precision.
        return float(self.classifier.score(features.astype(np.float64), labels))


def fit_probe(
    train: tuple[Array, NDArray[np.int64]],
    validation: tuple[Array, NDArray[np.int64]],
    strengths: Sequence[float],
) -> Probe:
    """Fit a probe per strength on `train` (features, labels); keep the best on `validation`, the first of equals."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    best: tuple[float, Probe] | None = None
    for strength in strengths:
        classifier = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=300))
        # The products are small: several threads wait for each other more than they work, a hundred times more where
        # a core is busy with something else.
        with warnings.catch_warnings(), threadpool_limits(limits=1, user_api="blas"):
            # 300 steps leave the accuracy settled even where the weights still move; validation judges the result.
            warnings.simplefilter("ignore", ConvergenceWarning)
            classifier.fit(train[0].astype(np.float64), train[1])
        probe = Probe(classifier, strength)
        accuracy = probe.accuracy(*validation)
        if best is None or accuracy > best[0]:
            best = (accuracy, probe)
    if best is None:
        raise ValueError("strengths must not be empty")
    return best[1]
