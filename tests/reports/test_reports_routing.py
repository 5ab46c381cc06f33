"""Routing iterations in the report: the figure with its film, and the table."""

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
