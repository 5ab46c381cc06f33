"""Routing iterations in the report: the figure with its film, and the table."""

from __future__ import annotations

import json
from typing import Any

import made_up_matrix
import pytest
from made_up import Writer, check_drawn, recorded
from made_up_matrix import with_matrix
from small import run_on

from pipeline.drawing.drawings import Written
from pipeline.params import parse_params
from pipeline.report import routing


@pytest.fixture
def routed(writer: Writer, values: dict[str, Any]) -> Writer:
    made_up_matrix.routed(writer, "matrix-toys")
    recorded(writer.results, parse_params(with_matrix(values)))
    return writer


def test_the_figure_has_its_words_and_its_film(routed: Writer) -> None:
    written = Written()
    (drawing,) = routing.draw(routed.results, written)
    assert (drawing.name, drawing.document) == ("routing-matrix-toys", "004")
    assert "runs 3 iterations" in drawing.caption
    assert "25 % in iteration 2, 11 % in iteration 3, 6 % in iteration 4" in drawing.caption
    check_drawn([drawing])
    film = json.loads(drawing.film)
    assert len(film["values"]) == 4
    assert film["classes"] == ["animal", "human", "airplane", "truck", "car"]
    assert [each["name"] for each in film["images"]] == ["human", "car, taken for airplane"]
    assert written.missing == []


def test_the_table_has_a_row_for_each_iteration(routed: Writer) -> None:
    (table,) = routing.build(routed.results)
    assert (table.name, table.document) == ("routing-004", "004")
    shown = table.shown.set_index("iteration")
    assert shown["the network's own"].tolist() == ["yes", "yes", "yes", "no"]
    assert shown["test error (%)"]["2"] == "25.0 ± 1.0"
    assert shown["moved (%)"].tolist() == ["", "25.0 ± 1.0", "11.1 ± 1.0", "6.2 ± 1.0"]
    assert shown["activation, right class"]["4"] == "0.875 ± 0.010"
    assert table.data["spread_others"].tolist() == [3, 1.5, 1, 0.75]
    assert table.data["moved"].tolist()[1] == 25


def test_a_capsnet_belongs_to_its_own_document(routed: Writer, values: dict[str, Any]) -> None:
    values = with_matrix(values)
    values["runs"]["capsnet-digits"] = run_on("capsnet", "digits")
    values["routing"]["capsnet-digits"] = {"run": "capsnet-digits", "images": 9, "iterations": 4}
    made_up_matrix.routed(routed, "capsnet-digits", classes=10)
    results = recorded(routed.results, parse_params(values))
    drawings = {drawing.name: drawing for drawing in routing.draw(results, Written())}
    assert drawings["routing-capsnet-digits"].document == "001"
    assert json.loads(drawings["routing-capsnet-digits"].film)["classes"] == [str(n) for n in range(10)]
    assert [table.name for table in routing.build(results)] == ["routing-001", "routing-004"]
