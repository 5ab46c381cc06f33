"""Figures inside the page are smaller than their files, and show the same."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from pipeline.drawing.drawings import Picture
from pipeline.drawing.style import in_house_style, to_bytes
from pipeline.page.figures import front_picture, load_figure, vector_uri


@in_house_style
def curves() -> Figure:
    """Lines, markers, a filled area, an image and letters, some of them cut by the axes."""
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    x = np.linspace(0, 1, 9)
    axes.plot(x, np.sin(9 * x), "o-", label="sine")
    axes.fill_between(x, x, 2 * x)
    axes.imshow(np.random.default_rng(0).random((4, 4)), extent=(0, 0.5, 0, 0.5))
    axes.set(title="Title", xlabel="$x^2$", ylim=(0, 0.7))
    axes.legend()
    return figure


def test_a_drawing_inside_the_page_draws_the_same() -> None:
    svg = to_bytes(curves(), "svg").decode()
    uri = vector_uri(svg)
    assert len(uri) < 1.2 * len(svg)
    assert not set('"#') & set(uri)
    before, after = (
        [
            (each.tag, *each.keys(), *" ".join(each.attrib.values()).split())
            for each in ElementTree.fromstring(of).iter()
        ]
        for of in (svg, unquote(uri).partition(",")[2])
    )
    assert after == [each for each in before if "metadata" not in each[0]]


def test_an_image_inside_the_page_has_the_same_pixels(tmp_path: Path) -> None:
    content = to_bytes(curves(), "png")
    (tmp_path / "drawn.png").write_bytes(content)
    shown = load_figure(tmp_path, Picture("drawn", "png", "Title", "Caption.", "Drawn.", []))
    inside = base64.b64decode(shown.uri.partition(",")[2])
    assert len(inside) < len(content)
    with Image.open(io.BytesIO(inside)) as after, Image.open(io.BytesIO(content)) as before:
        assert np.array_equal(after.convert("RGB"), before.convert("RGB"))
    assert shown.width == 3 * 96


def test_the_first_screen_shows_the_top_of_a_tall_figure(tmp_path: Path) -> None:
    tall = Image.new("L", (400, 1000), "black")
    tall.paste("white", (0, 0, 400, 200))
    tall.save(tmp_path / "scenes-tall.png")
    shown = load_figure(tmp_path, Picture("scenes-tall", "png", "Title", "Caption.", "Drawn.", []))
    front = front_picture([shown])
    assert front is not None
    with Image.open(io.BytesIO(base64.b64decode(front["uri"].partition(",")[2]))) as small:
        assert small.size == (400, 200)
        assert np.asarray(small).min() > 250
