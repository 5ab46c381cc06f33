"""Figures as images inside the page: data URIs, and small ones for the first screen."""

from __future__ import annotations

import base64
import io
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from pipeline.drawing.drawings import Picture
from pipeline.drawing.style import DPI
from pipeline.results.reading import ResultError

_PIXELS_PER_INCH = 96  # by the definition of a CSS pixel

FRONT = ("objects-", "scenes-", "planes-", "equivariance-summary", "matrix-votes-")
"""How the names of the figures begin that stand on the first screen, one for each document."""
FRONT_SIZE = (640, 320)
"""Most pixels of such a picture: twice what the page shows, for dense screens."""
_COLOURS = 256
_COORDINATES = re.compile(r'\b(?:d|x|y|points)="[^"]*"|translate\([^)]*\)')
"""What may be rounded in an SVG drawing; scales may not."""
_LONG = re.compile(r"(\d\.\d\d)\d+")
_PLAIN = " /:=,.;()'!*-_+?@[]{}|~$"
"""Characters that need no encoding in a data URI, beside letters and digits."""


@dataclass(frozen=True)
class Shown:
    """A figure on the page: what was drawn, the image as a data URI, its width in CSS pixels."""

    drawing: Picture
    uri: str
    width: int


def load_figures(folder: Path, drawings: Iterable[Picture]) -> list[Shown]:
    """Load the image files of the figures from `folder`.

    Raises:
        ResultError: a file is missing or corrupt; it is named.
    """
    return [_load_figure(folder / drawing.file, drawing) for drawing in drawings]


def _load_figure(path: Path, drawing: Picture) -> Shown:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResultError(f"{path} cannot be read: {error.strerror}. Draw the figures (again).") from None
    if drawing.kind == "png":
        if len(content) < 24 or not content.startswith(b"\x89PNG"):
            raise ResultError(f"{path} is corrupt: not a PNG image. Draw the figures again.")
        width = struct.unpack(">I", content[16:20])[0] / DPI * _PIXELS_PER_INCH
    else:
        points = re.search(rb'<svg[^>]* width="([\d.]+)pt"', content)
        if points is None:
            raise ResultError(f"{path} is corrupt: not an SVG image with a known width. Draw the figures again.")
        width = float(points[1]) / 72 * _PIXELS_PER_INCH
        return Shown(drawing, vector_uri(content.decode()), round(width))
    return Shown(drawing, data_uri("png", content), round(width))


def data_uri(media: str, content: bytes) -> str:
    """An image inside a page."""
    return f"data:image/{media};base64,{base64.b64encode(content).decode()}"


def vector_uri(svg: str) -> str:
    """A drawing inside a page, in two thirds of the length that it has as base64: coordinates have two decimals (of a
    point), comments and white space are gone, and only characters that a URI cannot have are encoded.
    """
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = _COORDINATES.sub(lambda found: _LONG.sub(r"\1", found[0]), svg)
    svg = re.sub(r"\s+", " ", svg).replace("> <", "><").replace("'", "&#39;").replace('"', "'")
    return "data:image/svg+xml," + quote(svg, safe=_PLAIN)


def front_picture(figures: Iterable[Shown]) -> dict[str, str] | None:
    """A document's picture on the first screen: `uri` and `alt` of a figure, made smaller. None if it has none."""
    shown = next((each for each in figures if each.drawing.kind == "png" and each.drawing.name.startswith(FRONT)), None)
    if shown is None:
        return None
    with Image.open(io.BytesIO(base64.b64decode(shown.uri.partition(",")[2]))) as opened:
        picture = opened.convert("RGB")
    picture.thumbnail(FRONT_SIZE, Image.Resampling.LANCZOS)
    written = io.BytesIO()
    picture.quantize(_COLOURS, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(written, "png", optimize=True)
    return {"uri": data_uri("png", written.getvalue()), "alt": shown.drawing.title}
