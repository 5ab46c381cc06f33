"""What a study found, as files: the record, the table, the headline numbers, the arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline.errors import UserError
from pipeline.results.measured import Measured
from pipeline.results.outcome import RECORD, Outcome, combined, one, write_outcome
from pipeline.results.reading import ResultError, Results, studies_of

NUMBERS = {
    "probe": {"t0": {"refit": {"rotated_0": {"mean": 0.9512345, "sd": 0.01, "n": 2}}}},
    "bound": one(-1234.5678),
    "seconds": 171.0,
    "parameters": 24_816,
}
TABLE = pd.DataFrame({"test": ["rotated_0", "affine"], "accuracy": [0.123456789, 2.0]})


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "results" / "evaluate" / "a.json", tmp_path / "arrays" / "evaluate" / "a"


def outcome(**changes: Any) -> Outcome:
    return Outcome(**({"kind": "evaluation", "table": TABLE, "numbers": NUMBERS} | changes))


def read(table: pd.DataFrame | None) -> pd.DataFrame:
    assert table is not None
    return table


def test_an_outcome_is_read_back_as_it_was_found(places: tuple[Path, Path], tmp_path: Path) -> None:
    arrays = {"images": np.arange(8.0).reshape(2, 2, 2)}
    settings = {"runs": {"a": {"training": {"epochs": 25}}}}
    write_outcome(*places, outcome(arrays=arrays), {"settings": settings, "trained": {"run": {"seed": 3}}})
    results = Results(tmp_path / "results", tmp_path / "arrays")
    numbers = results.numbers("evaluate", "a")
    assert numbers is not None
    assert numbers.at("study") == "evaluation"
    assert numbers.measured("probe", "t0", "refit", "rotated_0") == Measured(0.9512345, 0.01, 2)
    assert numbers.measured("bound") == Measured(-1234.5678, 0.0, 1)
    assert numbers.measured("bound", "deeper") is numbers.measured("nothing") is None
    assert numbers.number("seconds") == 171.0
    assert numbers.settings == settings
    assert numbers.trained == {"run": {"seed": 3}}
    table = read(results.table("evaluate", "a", ["test", "accuracy"]))
    pd.testing.assert_frame_equal(table, TABLE.assign(accuracy=[0.1234568, 2.0]))
    examples = results.examples("evaluate", "a", ["images"])
    assert examples is not None
    np.testing.assert_array_equal(examples["images"], arrays["images"])


# ---- several studies together


def test_studies_of_a_set_are_read_as_if_each_were_alone(tmp_path: Path) -> None:
    """Two studies with one column of the same name and other content, written together and read again."""
    sizes = pd.DataFrame({"size": [1, 2], "error": [0.5, 0.25], "empty": [np.nan, np.nan]})
    words = pd.DataFrame({"size": ["4 4", "3 5"], "count": [7, 8]})
    both = {
        "first": Outcome("grid", sizes, {"error": one(0.25)}, ("error",), {"x": np.arange(3)}),
        "second": Outcome("sizes", words, {"error": one(0.125)}, ("error",)),
    }
    settings = {"studies": {"first": {"study": "grid"}, "second": {"study": "sizes"}}}
    places = tmp_path / "made_up_sets/a.json", tmp_path / "made_up_sets/a"
    datasets = dict.fromkeys(both, "all data")
    write_outcome(*places, combined(both, datasets), {"settings": {"made_up_sets": {"a": settings}}})
    found = {study.name: study for study in studies_of(Results(tmp_path, tmp_path), "made_up")}
    assert [(study.name, study.item, study.kind) for study in found.values()] == [
        ("first", "a", "grid"),
        ("second", "a", "sizes"),
    ]
    first, second = found["first"], found["second"]
    assert first.numbers.measured("error") == Measured(0.25, 0.0, 1)
    assert second.numbers.measured("error") == Measured(0.125, 0.0, 1)
    table = read(first.table(("size", "error")))
    pd.testing.assert_frame_equal(table, pd.DataFrame({"size": [1, 2], "error": [0.5, 0.25]}))
    assert read(second.table(("size",))).to_dict("list") == {"size": ["4 4", "3 5"], "count": [7, 8]}
    assert read(first.table(("empty",)))["empty"].isna().all(), "a column without a value is there for who asks for it"
    with pytest.raises(ResultError, match="lacks the column nothing"):
        first.table(("size", "nothing"))
    arrays = first.results.examples("made_up_sets", "a", ("x",), "first")
    assert arrays is not None
    assert arrays["x"].tolist() == [0, 1, 2]
    assert first.results.examples("made_up_sets", "a", ("x",), "second") is None
    with pytest.raises(ResultError, match="lacks the array y"):
        first.results.examples("made_up_sets", "a", ("x", "y"), "first")


def test_headlines_alone_stand_beside_the_record_rounded(places: tuple[Path, Path]) -> None:
    """DVC compares what stands in objects, never what stands in lists, such as the record."""
    numbers = NUMBERS | {"value": {"0.05": one(0.123456)}}
    names = ("probe.t0.refit.rotated_0", "bound", "value.0.05", "missing.name")
    write_outcome(*places, outcome(numbers=numbers, headline=names), {"stage": "evaluate"})
    content = json.loads(places[0].read_text())
    (record,) = content.pop(RECORD)
    rotated = {"t0": {"refit": {"rotated_0": 0.9512}}}
    assert content == {"probe": rotated, "bound": -1235.0, "value": {"0.05": 0.1235}}
    assert record["bound"]["mean"] == -1234.5678
    before = places[0].read_text().splitlines()
    write_outcome(*places, outcome(numbers=numbers, headline=names), {"stage": "evaluate", "seconds": 2})
    after = places[0].read_text().splitlines()
    assert sum(one != other for one, other in zip(before, after, strict=True)) == 1, "a diff of equal results"


def test_a_number_that_is_not_finite_is_refused_before_anything_is_written(
    places: tuple[Path, Path], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"not finite: deep\.bound"):
        write_outcome(*places, outcome(numbers={"deep": {"bound": one(float("nan"))}}), {})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
