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


def test_few_coloured_marks_keep_their_colours_among_many_greys() -> None:
    """A picture of a chart: a median cut to few colours would spend them on the shades of its letters."""
    noise = np.random.default_rng(0).integers(60, 250, (240, 600, 1))
    levels = np.repeat(noise, 3, axis=-1).astype(np.uint8)
    colours = [(0, 114, 178), (204, 121, 167), (0, 158, 115), (86, 180, 233), (230, 159, 0), (213, 94, 0)]
    for place, colour in enumerate(colours):
        levels[100:114, 50 + 90 * place : 64 + 90 * place] = colour
    found = front_picture("003", [shown("equivariance-summary", Image.fromarray(levels))])
    assert found is not None
    with Image.open(io.BytesIO(base64.b64decode(found[0].partition(",")[2]))) as opened:
        kept = np.asarray(opened.convert("RGB")).astype(int)
    for place, colour in enumerate(colours):
        assert np.abs(kept[107, 57 + 90 * place] - colour).max() < 20


def test_a_grey_picture_has_few_levels() -> None:
    levels = np.repeat(np.random.default_rng(0).integers(0, 250, (240, 600, 1)), 3, axis=-1).astype(np.uint8)
    found = front_picture("003", [shown("equivariance-summary", Image.fromarray(levels))])
    assert found is not None
    assert len(np.unique(pixels(found[0]))) <= 64
