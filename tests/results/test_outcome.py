"""What a study found, as files: the record, the table, the headline numbers, the arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline.errors import UserError
from pipeline.results.outcome import RECORD, NotFiniteError, Outcome, Places, headlines, one, write_outcome
from pipeline.results.reading import Measured, Results

NUMBERS = {
    "probe": {"t0": {"refit": {"rotated_0": {"mean": 0.9512345, "sd": 0.01, "n": 2}}}},
    "bound": one(-1234.5678),
    "seconds": 171.0,
    "parameters": 24_816,
}
TABLE = pd.DataFrame({"test": ["rotated_0", "affine"], "accuracy": [0.123456789, 2.0]})


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(
        record=tmp_path / "results" / "evaluate" / "a.json",
        table=tmp_path / "results" / "evaluate" / "a.csv",
        arrays=tmp_path / "arrays" / "evaluate" / "a",
    )


def outcome(**changes: Any) -> Outcome:
    return Outcome(**({"kind": "evaluation", "table": TABLE, "numbers": NUMBERS} | changes))


def test_headlines_are_rounded_to_four_digits_and_nested() -> None:
    names = ("probe.t0.refit.rotated_0", "bound", "parameters", "seconds")
    assert headlines(NUMBERS, names) == {
        "probe": {"t0": {"refit": {"rotated_0": 0.9512}}},
        "bound": -1235.0,
        "parameters": 24_820.0,
        "seconds": 171.0,
    }


def test_headlines_of_one_section_stand_together() -> None:
    numbers = {"validation": {"bound": one(1.0), "loss": one(0.000123456), "other": one(3.0)}}
    assert headlines(numbers, ("validation.loss", "validation.bound")) == {
        "validation": {"loss": 0.0001235, "bound": 1.0}
    }


def test_headlines_that_were_not_measured_are_left_out() -> None:
    numbers = {"a": one(1.0), "b": None, "c": "text", "d": {"sd": 1.0}, "e": True}
    assert headlines(numbers, ("a.mean.deeper", "b", "c", "d", "e", "x.y", "a")) == {"a": 1.0}
    assert headlines(numbers, ()) == {}


def test_keys_of_headlines_may_hold_dots() -> None:
    numbers = {"value": {"0.05": {"t0": one(0.5)}, "0.1": {"t0": one(0.25)}, "0": {"t0": one(1.0)}}}
    names = ("value.0.05.t0", "value.0.1.t0", "value.0.t0", "value.0.2.t0")
    assert headlines(numbers, names) == {"value": {"0.05": {"t0": 0.5}, "0.1": {"t0": 0.25}, "0": {"t0": 1.0}}}


def test_an_outcome_is_read_back_as_it_was_found(places: Places, tmp_path: Path) -> None:
    arrays = {"images": np.arange(8.0).reshape(2, 2, 2)}
    settings = {"runs": {"a": {"training": {"epochs": 25}}}}
    found = outcome(arrays=arrays, trained={"run": {"seed": 3}})
    write_outcome(places, found, {"stage": "evaluate", "item": "a", "settings": settings})
    results = Results(tmp_path / "results", tmp_path / "arrays")
    numbers = results.numbers("evaluate", "a")
    assert numbers is not None
    assert numbers.at("study") == "evaluation"
    assert numbers.measured("probe", "t0", "refit", "rotated_0") == Measured(0.9512345, 0.01, 2)
    assert numbers.measured("bound") == Measured(-1234.5678, 0.0, 1)
    assert numbers.settings == settings
    assert numbers.trained == {"run": {"seed": 3}}
    table = results.table("evaluate", "a", ["test", "accuracy"])
    assert table is not None
    pd.testing.assert_frame_equal(table, TABLE.assign(accuracy=[0.1234568, 2.0]))
    examples = results.examples("evaluate", "a", ["images"])
    assert examples is not None
    np.testing.assert_array_equal(examples["images"], arrays["images"])


def test_headlines_stand_beside_the_record(places: Places) -> None:
    write_outcome(places, outcome(headline=("bound", "missing.name")), {"stage": "evaluate"})
    content = json.loads(places.record.read_text())
    (record,) = content.pop(RECORD)
    assert content == {"bound": -1235.0}
    assert record["bound"]["mean"] == -1234.5678


def compared_by_dvc(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The names under which DVC finds something to compare: it looks into objects, never into lists."""
    if isinstance(value, dict):
        return {name for key, each in value.items() for name in compared_by_dvc(each, (*path, key))}
    return set() if isinstance(value, list) else {path}


def test_dvc_compares_headlines_alone(places: Places) -> None:
    settings = {"runs": {"a": {"training": {"epochs": 25}}}}
    found = outcome(headline=("probe.t0.refit.rotated_0", "bound"), trained={"run": {"seed": 3}})
    write_outcome(places, found, {"stage": "evaluate", "settings": settings})
    content = json.loads(places.record.read_text())
    (record,) = content[RECORD]
    assert record["provenance"] == [{"stage": "evaluate", "settings": settings, "trained": {"run": {"seed": 3}}}]
    assert compared_by_dvc(content) == {("probe", "t0", "refit", "rotated_0"), ("bound",)}


def test_a_study_without_arrays_has_an_empty_folder(places: Places) -> None:
    write_outcome(places, outcome(), {})
    assert list(places.arrays.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), one(float("-inf"))])
def test_a_number_that_is_not_finite_is_refused_before_anything_is_written(
    places: Places, tmp_path: Path, value: object
) -> None:
    with pytest.raises(NotFiniteError, match="evaluation") as error:
        write_outcome(places, outcome(numbers={"deep": {"bound": value}}), {})
    assert isinstance(error.value, UserError)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
