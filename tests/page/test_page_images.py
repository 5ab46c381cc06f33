"""Pictures of the first screen: the part of a figure that shows something, without the words around it."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image, ImageDraw

from pipeline.drawing.drawings import Picture
from pipeline.page.images import FRONT_HEIGHT, Shown, data_uri, front_picture


def shown(name: str, picture: Image.Image) -> Shown:
    written = io.BytesIO()
    picture.save(written, "png")
    drawing = Picture(name, "png", "title", "caption", "alt", [])
    return Shown(drawing, data_uri("png", written.getvalue()), picture.width)


def pixels(uri: str) -> np.ndarray:
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as opened:
        return np.asarray(opened.convert("L")).astype(int)


def test_images_on_black_are_cut_out_of_their_words() -> None:
    picture = Image.new("RGB", (700, 300), "white")
    draw = ImageDraw.Draw(picture)
    draw.text((150, 20), "most common class, its share of the images, the share of all images", fill="black")
    draw.text((5, 150), "its images", fill="black")
    for i in range(5):
        draw.rectangle((110 + 110 * i, 80, 210 + 110 * i, 280), fill="black")
    found = front_picture("000", [shown("objects-x", picture)])
    assert found is not None
    cut = pixels(found[0])
    assert cut.shape[0] == FRONT_HEIGHT
    assert abs(cut.shape[1] / cut.shape[0] - 541 / 201) < 0.03
    assert (cut[:, :5] < 60).all()


def test_another_documents_figure_gives_no_picture() -> None:
    picture = Image.new("RGB", (70, 30), "white")
    assert front_picture("003", [shown("objects-x", picture)]) is None
    assert front_picture("000", [shown("prototypes-x", picture)]) is None
    assert front_picture("000", [shown("objects-x", picture)]) is not None, "even an empty one does not fail"
