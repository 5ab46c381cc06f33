"""The examples that the estimator of capsule regression is fit to: their weights, and which of them validate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.class_weight import compute_class_weight

Floats = NDArray[np.float64]


def weights_of(
    y: NDArray[Any],
    sample_weight: ArrayLike | None,
    class_weight: Mapping[Any, float] | Literal["balanced"] | None,
    classes: NDArray[Any] | None = None,
) -> Floats | None:
    """Sample weights `[n]` multiplied by the weight of each example's class; None if neither is given: all are 1.

    As in scikit-learn, "balanced" gives all classes the same sum of weights without changing the whole sum, and a class
    without an entry in a dictionary has weight 1.

    Args:
        y: labels `[n]`.
        classes: all classes; None: those of `y`.

    Raises:
        ValueError: weights of another shape, negative, not finite, or all 0; or a dictionary that lacks a class,
            although it has an entry for something else.
    """
    if sample_weight is None and class_weight is None:
        return None
    weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != y.shape:
        raise ValueError(f"sample_weight has the shape {weights.shape}: {y.shape} is needed, one for each example")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight holds negative numbers, NaN or infinity: each must be a number of at least 0")
    known, numbers = np.unique(y, return_inverse=True)
    if class_weight == "balanced":
        sums = np.bincount(numbers, weights=weights)
        factors = np.divide(weights.sum(), np.count_nonzero(sums) * sums, out=np.zeros_like(sums), where=sums > 0)
        weights = weights * factors[numbers]
    elif class_weight is not None:
        compute_class_weight(class_weight, classes=known if classes is None else classes, y=y)  # entries for nobody
        weights = weights * np.array([class_weight.get(label, 1.0) for label in known.tolist()])[numbers]
    if not weights.any():
        raise ValueError("sample_weight or class_weight is zero for every example: one positive weight is needed")
    return weights


@dataclass(frozen=True)
class Distinct:
    """Different examples, in a random order that depends on the seed and their values alone.

    Attributes:
        X: `[n, features]`.
        classes: numbers of their classes, `[n]`.
        weights: `[n]`; None: all 1.
    """

    X: Floats
    classes: NDArray[np.intp]
    weights: Floats | None

    def held_out(self, fraction: float) -> NDArray[np.bool_]:
        """Mask of the validation examples: of each class the first ones, with about this share of its weight. One
        example at least is left to train on.
        """
        weights = np.ones(len(self.X)) if self.weights is None else self.weights
        held = np.zeros(len(self.X), bool)
        for c in range(self.classes.max() + 1):
            rows = np.flatnonzero(self.classes == c)
            sums = np.concatenate([[0.0], np.cumsum(weights[rows])])
            count = np.abs(sums[:-1] - fraction * sums[-1]).argmin()
            held[rows[:count]] = True
        return held


def distinct(X: Floats, classes: NDArray[np.intp], weights: Floats | None, seed: int) -> Distinct:
    """Examples without copies, in random order; the weight of an example is the sum of those of its copies.

    So an example of weight 2 is the same as two copies of it, also where some examples are held out: copies are held
    out together. Nothing depends on the order in which the examples are given.
    """
    X = np.ascontiguousarray(X) + 0.0  # -0.0 becomes 0.0
    key = seed.to_bytes(8, "little")
    digests = [
        blake2b(row, digest_size=8, key=key, salt=int(c).to_bytes(8, "little")).digest()
        for row, c in zip(X, classes, strict=True)
    ]
    keys = np.frombuffer(b"".join(digests), dtype="<u8")
    _, first, copy_of, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if weights is not None or (copies > 1).any():
        weights = np.bincount(copy_of, weights=weights).astype(np.float64)
    return Distinct(X[first], classes[first], weights)
