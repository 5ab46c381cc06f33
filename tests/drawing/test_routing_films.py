"""Films of routing iterations: what a page is given, and the strip of pictures in their place."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
from PIL import Image

from pipeline.drawing.films import RoutingFilm


def film(types: int = 3, positions: int = 4) -> RoutingFilm:
    """Two images, three iterations, two classes; the network's own iterations are two."""
    noise = np.random.default_rng(0)
    one = noise.random((2, 3, 1, positions, types)).astype(np.float32)
    one[:, 0] = 0.5
    return RoutingFilm(
        ("cat", "dog $"),
        2,
        noise.integers(0, 255, (2, 6, 6)).astype(np.uint8),
        np.array([1, 0]),
        noise.random((2, positions, types)).astype(np.float32),
        np.concatenate([one, 1 - one], 2),
        np.array([[[0.2, 0.3], [0.1, 0.9], [0.1, 0.9]], [[0.5, 0.3], [0.4, 0.6], [0.9, 0.1]]], np.float32),
        np.full((2, 3, 2), 0.12345, np.float32),
    )


def test_the_content_is_that_of_every_iteration() -> None:
    given = film()
    content = json.loads(given.to_json())
    assert content["kind"] == "routing"
    assert content["values"] == [1, 2, 3]
    first, last, beyond = content["notes"]
    assert (first, last) == ("equal shares", "after update 1, the network's last")
    assert beyond == "after update 2, beyond the network's"
    assert (content["classes"], content["side"]) == (["cat", "dog $"], 2)
    assert content["most"] == round(100 * given.shares.max())
    first, second = content["images"]
    assert (first["name"], second["name"]) == ("dog $", "cat, taken for dog $"), "after the network's own iterations"
    assert first["shares"][0] == [[50] * 12, [50] * 12]
    assert second["shares"][2][1][3 * 1 + 2] == round(100 * float(given.shares[1, 2, 1, 1, 2]))
    assert first["parts"][3] == np.round(given.parts[0, 3].astype(float), 3).tolist()
    assert first["activations"][1] == [0.1, 0.9]
    assert first["spreads"][0] == [0.123, 0.123]
    with Image.open(io.BytesIO(base64.b64decode(second["picture"]))) as opened:
        np.testing.assert_array_equal(np.asarray(opened), given.images[1])
