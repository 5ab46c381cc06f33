"""Means, spreads and nested tables."""

import pandas as pd
import pytest

from pipeline.results.spread import flat, nest, spread, stack_replicas


def test_spread_is_mean_and_sample_deviation() -> None:
    assert spread([1.0, 2.0, 4.0]) == {"mean": pytest.approx(7 / 3), "sd": pytest.approx((7 / 3) ** 0.5), "n": 3}
    assert spread(value for value in (0.5, 0.7)) == {"mean": 0.6, "sd": pytest.approx(0.02**0.5), "n": 2}


TABLE = stack_replicas(
    [
        pd.DataFrame({"features": ["t0", "t0", "mu"], "test": ["a", "b", "a"], "accuracy": [0.5, 0.25, 1.0]}),
        pd.DataFrame({"features": ["t0", "t0", "mu"], "test": ["a", "b", "a"], "accuracy": [0.7, 0.25, 0.0]}),
    ]
)


def test_nested_tables_have_a_level_for_each_key() -> None:
    nested = nest(TABLE, ["features", "test"], "accuracy")
    assert nested.keys() == {"t0", "mu"}
    assert nested["t0"]["b"] == {"mean": 0.25, "sd": 0.0, "n": 2}
    assert nest(TABLE, ["test"], "accuracy")["b"] == {"mean": 0.25, "sd": 0.0, "n": 2}


def test_flat_names_lead_to_means_and_leave_out_lists_and_text() -> None:
    numbers = {
        "probe": nest(TABLE, ["features", "test"], "accuracy"),
        "seconds": 2,
        "provenance": [{"stage": "train"}],
        "label": "digits",
    }
    assert flat(numbers) == {
        "probe.t0.a": pytest.approx(0.6),
        "probe.t0.b": 0.25,
        "probe.mu.a": 0.5,
        "seconds": 2.0,
    }
