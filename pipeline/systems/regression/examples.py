"""The examples that the estimator of capsule regression is fit to: their weights, and which of them validate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def check_sample_weight(sample_weight: Any, count: int) -> Floats | None:
    """Sample weights as an array `[count]`; None stays None.

    Raises:
        ValueError: they are of another shape, negative, not finite, or all 0.
    """
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (count,):
        raise ValueError(f"sample_weight has the shape {weights.shape}: ({count},) is needed, one for each example")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("sample_weight holds negative numbers, NaN or infinity: each must be a number of at least 0")
    if not weights.any():
        raise ValueError("sample_weight is zero for every example: one positive weight at least is needed")
    return weights


def with_class_weight(
    weights: Floats | None,
    y: NDArray[Any],
    class_weight: Mapping[Any, float] | Literal["balanced"] | None,
    known: NDArray[Any] | None = None,
) -> Floats | None:
    """Sample weights `[n]` (None: all 1) multiplied by the weight of each example's class.

    As in scikit-learn, "balanced" gives all classes the same sum of weights without changing the whole sum, and a class
    without an entry in a dictionary has weight 1.

    Args:
        known: all classes; None: those of `y`.

    Raises:
        ValueError: the dictionary lacks a class, although it has an entry for something else.
    """
    if class_weight is None:
        return weights
    weights = np.ones(len(y)) if weights is None else weights
    classes, numbers = np.unique(y, return_inverse=True)
    if isinstance(class_weight, str):
        sums = np.bincount(numbers, weights=weights)
        there = np.count_nonzero(sums)
        factors = np.divide(weights.sum(), there * sums, out=np.zeros_like(sums), where=sums > 0)
    else:
        labels = (classes if known is None else known).tolist()
        missing = [label for label in labels if label not in class_weight]
        unknown = [label for label in class_weight if label not in labels]
        if missing and unknown:
            raise ValueError(f"class_weight has no entry for {missing}, but for {unknown}, which are not classes")
        factors = np.array([class_weight.get(label, 1.0) for label in classes.tolist()], dtype=np.float64)
    weighted = weights * factors[numbers]
    if not weighted.any():
        raise ValueError("class_weight and sample_weight leave no example with a positive weight")
    return weighted


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
    keys = _hashes(X, classes, seed)
    _, first, copy_of, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if weights is not None or (copies > 1).any():
        weights = np.bincount(copy_of, weights=weights).astype(np.float64)
    return Distinct(X[first], classes[first], weights)


def _hashes(X: Floats, classes: NDArray[np.intp], seed: int) -> NDArray[np.uint64]:
    key = seed.to_bytes(8, "little")
    digests = [
        blake2b(row, digest_size=8, key=key, salt=int(c).to_bytes(8, "little")).digest()
        for row, c in zip(X, classes, strict=True)
    ]
    return np.frombuffer(b"".join(digests), dtype="<u8")
