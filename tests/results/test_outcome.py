"""How a study's outcome is written: a record with all numbers, a table, headline numbers, arrays."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline.results.outcome import NotFiniteError, Outcome, Places, headlines, mean_at, one, write_outcome

NUMBERS: dict[str, Any] = {
    "test": {"accuracy": {"mean": 0.123456, "sd": 0.1, "n": 2}, "count": 3, "sure": True},
    "value": {"0.05": {"t0": one(0.5)}, "0.1": {"t0": one(0.25)}, "0": {"t0": one(1.0)}},
    "seconds": 12.3456,
}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "r/a.json", tmp_path / "r/a.csv", tmp_path / "m/a.json", tmp_path / "arrays")


def outcome(**changes: Any) -> Outcome:
    table = pd.DataFrame({"replica": [0, 1], "value": [1 / 3, 2.0]})
    values = {"kind": "probes", "table": table, "numbers": NUMBERS, **changes}
    return Outcome(**values)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("test.accuracy", 0.123456),
        ("test.count", 3.0),
        ("seconds", 12.3456),
        ("value.0.05.t0", 0.5),
        ("value.0.t0", 1.0),
        ("test.sure", None),
        ("test", None),
        ("test.other", None),
        ("value.0.2.t0", None),
        ("seconds.mean", None),
        ("", None),
    ],
)
def test_a_number_is_found_by_its_dotted_name(name: str, value: float | None) -> None:
    """Keys may hold dots themselves."""
    assert mean_at(NUMBERS, name) == value


def test_headline_numbers_are_nested_and_rounded() -> None:
    names = ("test.accuracy", "value.0.05.t0", "value.0.1.t0", "not.measured", "test")
    assert headlines(NUMBERS, names) == {
        "test": {"accuracy": 0.1235},
        "value": {"0.05": {"t0": 0.5}, "0.1": {"t0": 0.25}},
    }


def test_four_files_are_written(places: Places) -> None:
    found = outcome(headline=("seconds",), arrays={"a": np.arange(3)}, trained={"run": {"seed": 3}})
    write_outcome(places, found, {"stage": "evaluate", "settings": {"evaluate": {"seed": 0}}})
    record = json.loads(places.record.read_text())
    (provenance,) = record.pop("provenance")
    assert record == {"study": "probes", **NUMBERS}
    assert provenance == {
        "stage": "evaluate",
        "settings": {"evaluate": {"seed": 0}},
        "trained": {"run": {"seed": 3}},
    }
    assert places.table.read_text().splitlines() == ["replica,value", "0,0.3333333", "1,2"], "seven digits"
    assert json.loads(places.metrics.read_text()) == {"seconds": 12.35}
    with np.load(places.arrays / "examples.npz") as arrays:
        assert arrays["a"].tolist() == [0, 1, 2]


def test_a_study_without_arrays_leaves_an_empty_folder(places: Places) -> None:
    write_outcome(places, outcome(), {})
    assert list(places.arrays.iterdir()) == []
    assert json.loads(places.metrics.read_text()) == {}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused_before_anything_is_written(places: Places, value: float) -> None:
    with pytest.raises(NotFiniteError, match="probes"):
        write_outcome(places, outcome(numbers={"test": one(value)}), {})
    assert not places.record.exists()
    assert not places.table.exists()
    assert not places.metrics.exists()
