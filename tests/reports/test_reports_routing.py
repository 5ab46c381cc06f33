"""Routing in the report: iterations as a figure with its film, and layers."""

from __future__ import annotations

import json
from typing import Any

import made_up_matrix
import pytest
from made_up import Writer, check_drawn, recorded
from made_up_matrix import with_matrix
from records import dump_record, load_record

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
    drawing, _ = routing.draw(routed.results, written)
    assert (drawing.name, drawing.document) == ("routing-matrix-toys", "004")
    assert "runs 3 iterations" in drawing.caption
    assert "25 % in iteration 2, 11 % in iteration 3, 6 % in iteration 4" in drawing.caption
    check_drawn([drawing])
    film = json.loads(drawing.film)
    assert len(film["values"]) == 4
    assert film["classes"] == ["animal", "human", "airplane", "truck", "car"]
    assert [each["name"] for each in film["images"]] == ["human", "car, taken for airplane"]
    assert written.missing == []


def test_every_layer_of_every_network_is_drawn(routed: Writer) -> None:
    _, drawing = routing.draw(routed.results, Written())
    assert drawing.name == "routing-layers"
    assert "matrix-toys 4, 4, 5" in drawing.caption
    check_drawn([drawing])
    entropy, dead, spread = drawing.figure().axes
    for axes, expected in ((entropy, [0.7, 0.5, 0.3]), (dead, [25, 12.5, 25 / 3]), (spread, [0.1, 0.2, 0.3])):
        assert axes.lines[0].get_ydata() == pytest.approx(expected)
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2 below", "1 below", "classes"]


def test_networks_measured_before_layers_were_are_left_out(routed: Writer) -> None:
    (path,) = routed.results.records.glob("routing/*.json")
    record = load_record(path)
    del record["layers"]
    dump_record(path, record)
    assert [each.name for each in routing.draw(routed.results, Written())] == ["routing-matrix-toys"]
