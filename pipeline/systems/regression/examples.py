"""The examples that the estimator of capsule regression is fit to: their weights, and which of them validate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import _check_sample_weight

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WeightedExamples:
    """Examples that an estimator is fit to.

    Attributes:
        X: `[n, features]`.
        y: labels, or numbers of classes, `[n]`.
        weights: `[n]`, positive; None: all 1.
    """

    X: Floats
    y: NDArray[Any]
    weights: Floats | None

    def take(self, rows: NDArray[Any]) -> WeightedExamples:
        """Some of the examples."""
        return WeightedExamples(self.X[rows], self.y[rows], None if self.weights is None else self.weights[rows])

    def distinct(self, seed: int) -> WeightedExamples:
        """Examples without copies, in a random order; the weight of an example is the sum of those of its copies.

        So an example of weight 2 is the same as two copies of it, also where some examples are held out: copies are
        held out together. The order depends on the seed and on the examples' values alone, not on their order.
        """
        X = np.ascontiguousarray(self.X) + 0.0  # -0.0 becomes 0.0
        key = seed.to_bytes(8, "little")
        digests = [
            blake2b(row, digest_size=8, key=key, salt=int(c).to_bytes(8, "little")).digest()
            for row, c in zip(X, self.y, strict=True)
        ]
        keys = np.frombuffer(b"".join(digests), dtype="<u8")
        _, first, copy_of, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        weights = self.weights
        if weights is not None or (copies > 1).any():
            weights = np.bincount(copy_of, weights=weights).astype(np.float64)
        return WeightedExamples(X[first], self.y[first], weights)

    def held_out(self, fraction: float) -> NDArray[np.bool_]:
        """Mask of the validation examples: of each class the first ones, with about this share of its weight. One
        example at least is left to train on.
        """
        weights = np.ones(len(self.X)) if self.weights is None else self.weights
        held = np.zeros(len(self.X), bool)
        for c in np.unique(self.y):
            rows = np.flatnonzero(self.y == c)
            sums = np.concatenate([[0.0], np.cumsum(weights[rows])])
            held[rows[: np.abs(sums[:-1] - fraction * sums[-1]).argmin()]] = True
        return held


def weighted(
    X: Floats,
    y: NDArray[Any],
    sample_weight: ArrayLike | None,
    class_weight: Mapping[Any, float] | Literal["balanced"] | None,
    classes: NDArray[Any] | None = None,
) -> WeightedExamples:
    """The examples of positive weight: their sample weights times those of their classes.

    As in scikit-learn, "balanced" gives all classes the same sum of weights without changing the whole sum, and a class
    without an entry in a dictionary has weight 1.

    Args:
        classes: all classes, sorted; None: those of `y`.

    Raises:
        ValueError: weights of another shape, negative, not finite, or all 0; or a dictionary that lacks a class,
            although it has an entry for something else.
    """
    if sample_weight is None and class_weight is None:
        return WeightedExamples(X, y, None)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    examples = WeightedExamples(X, y, weights).take(weights > 0)
    if class_weight is None:
        return examples
    known = np.unique(examples.y) if classes is None else classes
    of_class = compute_class_weight(class_weight, classes=known, y=examples.y, sample_weight=examples.weights)
    weights = examples.weights * of_class[np.searchsorted(known, examples.y)]
    if not (weights >= 0).all() or not weights.any():
        raise ValueError("class_weight needs numbers of at least 0, and a positive one for some example")
    return WeightedExamples(examples.X, examples.y, weights).take(weights > 0)
