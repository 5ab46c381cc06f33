"""Figures as images inside the page: data URIs, and small ones for the first screen."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from PIL import Image

from pipeline.drawing.drawings import Picture
from pipeline.drawing.style import DPI

_PIXELS_PER_INCH = 96  # by the definition of a CSS pixel

FRONT = ("objects-", "scenes-", "planes-", "equivariance-summary", "matrix-votes-")
"""How the names of the figures begin that stand on the first screen, one for each document."""
FRONT_SIZE = (640, 320)
"""Most pixels of such a picture: twice what the page shows, for dense screens. Of a taller figure, the top is shown."""
FRONT_QUALITY = 85
_UNSEEN = re.compile(r"<!--.*?-->|<\?xml.*?\?>|<!DOCTYPE.*?>|<metadata>.*?</metadata>", re.DOTALL)
_PLAIN = " /:=,.;()'!*-_+?@[]{}|~$<>"
"""Characters that need no encoding in a data URI, beside letters and digits."""


@dataclass(frozen=True)
class Shown:
    """A figure on the page: what was drawn, the image as a data URI, its width in CSS pixels."""

    drawing: Picture
    uri: str
    width: int


def load_figures(folder: Path, drawings: Iterable[Picture]) -> list[Shown]:
    """Load the image files of the figures from `folder`."""
    return [_load_figure(folder / drawing.file, drawing) for drawing in drawings]


def _load_figure(path: Path, drawing: Picture) -> Shown:
    if drawing.kind == "png":
        with Image.open(path) as picture:
            return Shown(drawing, webp_uri(picture, lossless=True), round(picture.width / DPI * _PIXELS_PER_INCH))
    content = path.read_text(encoding="utf-8")
    points = re.search(r'<svg[^>]* width="([\d.]+)pt"', content)
    assert points is not None, f"{path} has no width"
    return Shown(drawing, vector_uri(content), round(float(points[1]) / 72 * _PIXELS_PER_INCH))


def webp_uri(picture: Image.Image, **options: Any) -> str:
    """An image inside a page, as WebP: without loss it takes three quarters of the length of PNG."""
    written = io.BytesIO()
    picture.convert("RGB").save(written, "webp", **options)
    return f"data:image/webp;base64,{base64.b64encode(written.getvalue()).decode()}"


def vector_uri(svg: str) -> str:
    """A drawing inside a page, shorter than as base64: only characters that a URI cannot have are encoded, and comments
    and most white space are gone.
    """
    svg = re.sub(r"\s+", " ", _UNSEEN.sub("", svg)).replace("'", "&#39;").replace('"', "'")
    return "data:image/svg+xml," + quote(svg, safe=_PLAIN)


def front_picture(figures: Iterable[Shown]) -> dict[str, str] | None:
    """A document's picture on the first screen: `uri` and `alt` of a figure, made smaller. None if it has none."""
    shown = next((each for each in figures if each.drawing.kind == "png" and each.drawing.name.startswith(FRONT)), None)
    if shown is None:
        return None
    with Image.open(io.BytesIO(base64.b64decode(shown.uri.partition(",")[2]))) as picture:
        width, height = FRONT_SIZE
        top = picture.crop((0, 0, picture.width, min(picture.height, picture.width * height // width)))
        top.thumbnail(FRONT_SIZE, Image.Resampling.LANCZOS)
        return {"uri": webp_uri(top, quality=FRONT_QUALITY), "alt": shown.drawing.title}
