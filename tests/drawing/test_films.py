"""Films: the pictures of a slider as one image, in JSON."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
from PIL import Image

from pipeline.drawing.films import Film


def test_a_film_is_one_image_with_a_row_for_each_strip_and_a_column_for_each_value() -> None:
    grey = np.stack([np.full((4, 4), value, dtype=np.uint8) for value in (0, 100, 200)])
    red = np.zeros((3, 4, 4, 3), dtype=np.uint8)
    red[..., 0] = 250
    frames = np.arange(3 * 2 * 8, dtype=np.float32).reshape(3, 2, 4, 2) / 7
    film = Film(
        "rotation", "°", np.array([-5, 0, 5], np.float32), [("grey", grey), ("red", red)], frames,
        np.full((3, 2), 1 / 3, np.float32), np.array([[1, 0, 0], [0, 0.5, 1]], np.float32),
    )  # fmt: skip
    content = json.loads(film.to_json())
    assert content["values"] == [-5, 0, 5]
    assert content["strips"] == ["grey", "red"]
    assert content["colours"] == ["#ff0000", "#0080ff"]
    assert content["presences"][0] == [0.333, 0.333]
    assert content["frames"][2][1] == [round(float(value), 3) for value in frames[2, 1].ravel()]
    with Image.open(io.BytesIO(base64.b64decode(content["picture"]))) as opened:
        picture = np.asarray(opened.convert("RGB")).astype(int)
    assert picture.shape == (8, 12, 3)
    assert abs(picture[1, [1, 5, 9], 0] - [0, 100, 200]).max() <= 3
    assert abs(picture[6, 6] - [250, 0, 0]).max() <= 3
