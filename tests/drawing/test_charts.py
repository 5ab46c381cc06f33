"""Charts: tidy data and what is made of them: files that can be read again, specifications, tables."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline.drawing import charts
from pipeline.drawing.charts import (
    Chart,
    Panel,
    Series,
    chart,
    lines_of_table,
    over_replicas,
    specification,
    symlog_ticks,
)
from pipeline.page import vendor

ROWS = pd.DataFrame(
    {
        "series": ["ours", "ours", "ours", "theirs"],
        "x": [0, 45, 90, 45],
        "y": [96.0, 80.123456, np.nan, 70.0],
        "low": [95.0, 79.0, np.nan, np.nan],
        "high": [97.0, 81.0, np.nan, np.nan],
    }
)
LOOKS = [Series("ours", "#0072B2"), Series("theirs", "#D55E00", "s", "", True), Series("nobody's", "#000000")]


def small(**settings: Any) -> Chart:
    return chart([(Panel("title", "angle", "accuracy", **settings), ROWS)], LOOKS)


def layers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {layer["name"]: layer for layer in spec["layer"]}


def test_series_and_rows_without_a_value_are_left_out() -> None:
    made = small()
    assert [each.name for each in made.series] == ["ours", "theirs"]
    assert len(made.data) == 3


def test_what_is_written_is_read_again() -> None:
    made = small(y_range=(0.0, 102.0))
    again = Chart.read(json.loads(json.dumps(made.to_json())), made.to_csv())
    assert again.panels == made.panels
    assert again.series == made.series
    assert again.to_csv() == made.to_csv()
    assert specification(again, 0) == specification(made, 0)


def test_files_from_before_an_option_was_added_are_read() -> None:
    words = small().to_json()
    for panel in words["panels"]:
        del panel["x_symlog"], panel["y_symlog"]
    assert Chart.read(words, small().to_csv()).panels == small().panels


def test_an_axis_can_be_linear_at_first_and_then_logarithmic() -> None:
    encoding = specification(small(x_symlog=20.0, y_symlog=1.0, y_range=(0.0, 102.0)), 0)["encoding"]
    assert encoding["x"]["scale"] == {"type": "symlog", "constant": 20.0, "zero": False, "nice": False, "padding": 8}
    assert encoding["y"]["scale"] == {"type": "symlog", "constant": 1.0, "domain": [0.0, 102.0], "nice": False}
    assert encoding["y"]["axis"] == {"values": [0, 1, 2, 5, 10, 20, 50], "format": "~g"}
    plain = specification(small(), 0)["encoding"]
    assert "type" not in plain["x"]["scale"]
    assert "axis" not in plain["y"]


def test_ticks_of_an_axis_that_is_linear_at_first() -> None:
    assert symlog_ticks(1.0, 20.0) == [0, 1, 2, 5, 10, 20]
    assert symlog_ticks(0.0025, 0.2, steps=(1,)) == [0, 0.01, 0.1]
    assert symlog_ticks(1.0, 0.0) == [0], "nothing is above"


@pytest.mark.parametrize("csv", ["", "panel,series\n0,a\n"])
def test_other_data_are_refused(csv: str) -> None:
    with pytest.raises(ValueError, match="column"):
        Chart.read(small().to_json(), csv)


def test_no_anchor_of_the_template_is_left() -> None:
    text = charts.TEMPLATE.read_text(encoding="utf-8")
    assert {"<DVC_METRIC_DATA>", "<DVC_METRIC_X>", "<DVC_METRIC_Y>"} <= set(re.findall("<[A-Z_]+>", text))
    assert "<DVC" not in json.dumps(specification(small(), 0))


def test_the_template_is_not_changed_by_a_specification() -> None:
    before = json.dumps(specification(small(), 0))
    specification(small(categories=["0", "45"], y_log=True), 0)
    assert json.dumps(specification(small(), 0)) == before


def test_a_specification_has_the_numbers_with_five_digits() -> None:
    values = specification(small(), 0)["data"]["values"]
    assert values[1] == {"rev": "ours", "x": 45.0, "y": 80.123, "low": 79.0, "high": 81.0}
    assert values[2] == {"rev": "theirs", "x": 45.0, "y": 70.0}


def test_lines_join_only_series_that_have_one() -> None:
    found = layers(specification(small(), 0))
    assert found["line"]["transform"] == [{"filter": {"field": "rev", "oneOf": ["ours"]}}]
    assert found["point"]["encoding"]["fillOpacity"]["condition"]["test"]["oneOf"] == ["theirs"]


def test_layers_without_data_are_left_out() -> None:
    bare = chart([(Panel("", "x", "y"), ROWS.drop(columns=["low", "high"]))], [LOOKS[1]])
    assert list(layers(specification(bare, 0))) == ["point"]


def test_long_lines_are_thinned_evenly_and_keep_their_ends() -> None:
    x = np.arange(1, 1001)
    rows = pd.DataFrame({"series": "ours", "x": x, "y": 1 / x})
    even = chart([(Panel("", "x", "y"), rows)], LOOKS, most=50).data["x"].astype(int).tolist()
    log = chart([(Panel("", "x", "y", x_log=True), rows)], LOOKS, most=50).data["x"].astype(int).tolist()
    assert (even[0], even[-1], len(even)) == (1, 1000, 50)
    assert (log[0], log[-1]) == (1, 1000)
    assert sum(value <= 100 for value in log) > len(log) / 2


def test_a_table_has_a_row_for_each_x_and_a_column_for_each_series() -> None:
    head, rows = lines_of_table(small(), 0)
    assert head == ["angle", "ours", "theirs"]
    assert rows == [["0", "96 ± 1", ""], ["45", "80.12 ± 1", "70"]]


def test_means_over_replicas_end_with_the_shortest() -> None:
    table = pd.DataFrame({"replica": [0, 0, 1], "epoch": [1, 2, 1], "loss": [1.0, 2.0, 3.0]})
    rows = over_replicas(table, "epoch", "loss")
    assert rows["x"].tolist() == [1]
    assert rows["y"].tolist() == [2.0]
    assert rows["high"].tolist() == pytest.approx([2 + 2**0.5])


def test_the_vendored_scripts_are_those_of_the_readme() -> None:
    folder = charts.Path(vendor.__file__).parent
    listed = dict(
        re.findall(r"\| `([\w.-]+)` \|.*`([0-9a-f]{64})`", (folder / "README.md").read_text(encoding="utf-8"))
    )
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in vendor.SCRIPTS}
    assert listed == found
    for script in vendor.vendored():
        assert "</script" not in script.lower()
        assert "sourceMappingURL" not in script
    assert "University of Washington" in vendor.licences()
