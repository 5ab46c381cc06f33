"""Routing in the report: iterations as a figure with its film, and layers as a table."""

from __future__ import annotations

import json
from typing import Any

import made_up_matrix
import pytest
from made_up import Writer, check_drawn, recorded
from made_up_matrix import with_matrix

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


def test_every_layer_of_every_network_has_a_row(routed: Writer) -> None:
    layers = routing.build(routed.results)[1]
    assert (layers.name, layers.document) == ("routing-layers-004", "004")
    found = layers.shown.set_index("layer")
    assert list(found.index) == ["2 below", "1 below", "classes"]
    assert found["entropy of routing"].tolist() == ["0.700 ± 0.010", "0.500 ± 0.010", "0.300 ± 0.010"]
    assert found["dead types (%)"].tolist() == ["25.0 ± 1.0", "12.5 ± 1.0", "8.3 ± 1.0"]
    assert found["types"].tolist() == ["4 ± 0", "4 ± 0", "5 ± 0"]
