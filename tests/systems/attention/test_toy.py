"""The toy network against its minimisers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.systems.attention.experiments.toy import infer, run
from pipeline.systems.attention.settings import ToyStudy


@pytest.mark.parametrize(
    ("reading", "penalty", "expected"),
    [
        ("output", "none", [-7 / 3, 11 / 3, 2 / 3]),  # the same step for all from the start: x + (t - sum x) / 3
        ("output", "L1", [0.0, 1.5, 0.0]),  # t - sum h = 1/2, and only the largest input survives
        ("output", "L2", [0.5, 0.5, 0.5]),  # (t - 3 h) = h
        ("two-sided", "none", [-2.0, 4.0, 1.0]),  # h = x + e, e = t - sum h
        ("two-sided", "L1", [-0.75, 3.25, 0.25]),  # h = x + e - sign h: no single winner
        ("two-sided", "L2", [-0.7, 2.3, 0.8]),  # 2 h = x + e
    ],
)
def test_minimisers(reading: str, penalty: str, expected: list[float]) -> None:
    found = infer(reading, penalty, 1.0, 0.02, 2000)
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_study_tells_a_single_winner() -> None:
    study = ToyStudy(study="toy", weights=[1.0, 1.6, 1.7, 6.9], rate=0.02, steps=2000)
    found = run(study).numbers
    assert found["single_winner_from"] == pytest.approx(5 / 3, abs=1e-5)
    numbers = found["end"]
    assert numbers["output"]["1"]["L1"]["effective_number"]["mean"] == pytest.approx(1, abs=0.05)
    assert numbers["output"]["1"]["L2"]["effective_number"]["mean"] == pytest.approx(3, abs=0.01)
    # With all errors from 5/3 on, until at 7 nothing is left.
    units = {weight: at["L1"]["effective_number"]["mean"] for weight, at in numbers["two-sided"].items()}
    assert units["1"] > 1.5
    assert units["1.6"] > 1.05
    assert units["1.7"] == units["6.9"] == 1
