"""Indices of sparsity on cases that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.probes.sparsity import effective_number, entropy_of_shares, hoyer


def test_indices_of_sparsity() -> None:
    alike, single, two, none = np.ones(5), np.eye(5)[2], np.array([1.0, 1, 0, 0, 0]), np.zeros(5)
    np.testing.assert_allclose(hoyer(np.stack([alike, single, none])), [0, 1, 0], atol=1e-12)
    assert hoyer(two) == pytest.approx((math.sqrt(5) - math.sqrt(2)) / (math.sqrt(5) - 1))
    np.testing.assert_allclose(
        entropy_of_shares(np.stack([alike, single, two])), [math.log(5), 0, math.log(2)], atol=1e-12
    )
    np.testing.assert_allclose(effective_number(np.stack([alike, single, two, none])), [5, 1, 2, 5])
    np.testing.assert_allclose(hoyer(7 * two), hoyer(-two))
