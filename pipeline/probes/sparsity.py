"""Three measures of sparsity (document 001 shows sparsity in pictures only)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import entropy


def hoyer(sizes: ArrayLike) -> NDArray[np.float64]:
    """Hoyer's index of sizes `[..., n]`: (sqrt n - l1 / l2) / (sqrt n - 1), where l1 and l2 are norms. It ranges from 0
    (all sizes are equal, or all are 0) to 1 (only one size is not 0).
    """
    values = np.abs(np.asarray(sizes, dtype=np.float64))
    n = values.shape[-1]
    first, second = values.sum(-1), np.sqrt((values**2).sum(-1))
    ratio = np.divide(first, second, out=np.full_like(first, np.sqrt(n)), where=second > 0)
    return np.asarray((np.sqrt(n) - ratio) / (np.sqrt(n) - 1))


def entropy_of_shares(sizes: ArrayLike) -> NDArray[np.float64]:
    """Entropy (nats) of sizes `[..., n]` over their sum: 0 if all but one are 0, log n if all are equal (or all 0)."""
    values = np.abs(np.asarray(sizes, dtype=np.float64))
    return np.asarray(entropy(np.where(values.any(-1, keepdims=True), values, 1.0), axis=-1))


def effective_number(sizes: ArrayLike) -> NDArray[np.float64]:
    """The number of equal sizes that have the same `entropy_of_shares` as `sizes`: exp of this entropy, from 1 to n."""
    return np.asarray(np.exp(entropy_of_shares(sizes)))
