"""Routing in the report: iterations as a figure with its film, and layers as a table."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import made_up_matrix
import numpy as np
import pytest
from made_up import Writer, check_drawn, recorded
from made_up_matrix import with_matrix
from PIL import Image

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
    assert written.missing == []
    film = json.loads(drawing.film)
    assert film["values"] == [1, 2, 3, 4]
    assert film["notes"][0] == "equal shares"
    assert film["notes"][2:] == ["after update 2, the network's last", "after update 3, beyond the network's"]
    assert film["classes"] == ["animal", "human", "airplane", "truck", "car"]
    assert [each["name"] for each in film["images"]] == ["human", "car, taken for airplane"]
    arrays = routed.results.examples("routing", "matrix-toys", ["images", "parts", "shares", "activations"])
    assert arrays is not None
    second = film["images"][1]
    assert second["shares"] == (100 * arrays["shares"][1]).round().astype(int).reshape(4, 5, 12).tolist()
    assert second["parts"] == arrays["parts"][1].astype(float).round(3).tolist()
    assert second["activations"] == arrays["activations"][1].astype(float).round(3).tolist()
    with Image.open(io.BytesIO(base64.b64decode(second["picture"]))) as opened:
        np.testing.assert_array_equal(np.asarray(opened), arrays["images"][1])


def test_every_layer_of_every_network_has_a_row(routed: Writer) -> None:
    layers = routing.build(routed.results)[1]
    assert (layers.name, layers.document) == ("routing-layers-004", "004")
    found = layers.shown.set_index("layer")
    assert list(found.index) == ["2 below", "1 below", "classes"]
    assert found["entropy of routing"].tolist() == ["0.700 ± 0.010", "0.500 ± 0.010", "0.300 ± 0.010"]
    assert found["dead types (%)"].tolist() == ["25.0 ± 1.0", "12.5 ± 1.0", "8.3 ± 1.0"]
    assert found["types"].tolist() == ["4 ± 0", "4 ± 0", "5 ± 0"]
