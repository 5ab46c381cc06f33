"""Figures as images inside the page: data URIs, and small cuttings for the first screen."""

from __future__ import annotations

import base64
import io
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from pipeline.drawing.drawings import Picture
from pipeline.drawing.style import DPI
from pipeline.results.reading import ResultError

_PIXELS_PER_INCH = 96  # by the definition of a CSS pixel

Box = tuple[float, float, float, float]
FRONT: dict[str, tuple[tuple[str, ...], tuple[Box, ...]]] = {
    "000": (("objects-",), ((0, 0, 1, 1),)),
    "001": (("scenes-",), ((0.06, 0.028, 0.95, 0.33),)),
    "002": (("prototypes-",), ((0, 0, 1, 0.322),)),
    "003": (("equivariance-summary",), ((0, 0, 1, 1),)),
    "004": (
        ("matrix-votes-matrix-toys", "matrix-votes-matrix-small-crops", "matrix-votes-"),
        ((0.02, 0.042, 0.243, 0.27), (0.02, 0.365, 0.243, 0.6), (0.02, 0.7, 0.243, 0.94)),
    ),
}
"""For each document, the figure of its picture on the first screen (how its name begins, preferred ones first), and the
parts of it that are shown side by side: left, top, right and bottom as shares of width and height. Of images on black,
only these are shown, without the words around them.
"""
FRONT_HEIGHT = 240
"""Pixels: twice the height on the page, for dense screens."""
_GREYS, _COLOURS = 64, 256
"""In a picture without colour, and in one with colours, which few could not keep apart."""
_COORDINATES = re.compile(r'\b(?:d|x|y|points)="[^"]*"|translate\([^)]*\)')
"""What may be rounded in an SVG drawing; scales may not."""
_LONG = re.compile(r"(\d\.\d\d)\d+")
_PLAIN = " /:=,.;()'!*-_+?@[]{}|~$"
"""Characters that need no encoding in a data URI, beside letters and digits."""
_COLOURED = 32
"""Levels, of 255, that red, green and blue of a pixel differ by at least, where it is not grey."""
_WHITE = 8
"""Pixels this close to white, of 255, are margin."""
_BLACK, _MUCH, _SOLID = 40, 0.2, 0.35
"""Pixels below are black; shares of them, from which on a picture has images on black, and a row or a column is part of
them and not of letters.
"""


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


def front_picture(document: str, figures: Sequence[Shown]) -> tuple[str, Shown] | None:
    """The picture of a document on the first screen, and the figure that it was cut from; None if it has none."""
    prefixes, boxes = FRONT.get(document, ((), ()))
    pictures = [each for each in figures if each.drawing.kind == "png"]
    shown = next((each for prefix in prefixes for each in pictures if each.drawing.name.startswith(prefix)), None)
    if shown is None:
        return None
    content = base64.b64decode(shown.uri.partition(",")[2])
    return data_uri("png", _cut(content, boxes)), shown


def _cut(content: bytes, boxes: Sequence[Box]) -> bytes:
    """Parts of a PNG image side by side, without their margins, reduced to `FRONT_HEIGHT`."""
    from PIL import Image

    parts = []
    with Image.open(io.BytesIO(content)) as opened:
        image = opened.convert("RGB")
    for left, top, right, bottom in boxes:
        width, height = image.size
        part = image.crop((round(left * width), round(top * height), round(right * width), round(bottom * height)))
        part = part.crop(_content(np.asarray(part.convert("L"))))
        scale = FRONT_HEIGHT / part.height
        parts.append(part.resize((max(1, round(part.width * scale)), FRONT_HEIGHT), Image.Resampling.LANCZOS))
    gap = FRONT_HEIGHT // 20
    whole = Image.new("RGB", (sum(part.width for part in parts) + gap * (len(parts) - 1), FRONT_HEIGHT), "white")
    place = 0
    for part in parts:
        whole.paste(part, (place, 0))
        place += part.width + gap
    written = io.BytesIO()
    levels = np.asarray(whole).astype(int)
    count = _COLOURS if np.ptp(levels, axis=-1).max() > _COLOURED else _GREYS
    reduced = whole.quantize(count, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    reduced.save(written, "png", optimize=True)
    return written.getvalue()


def _content(grey: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """The box of a picture without its margins; if many of its pixels are black, of the rows and columns of these."""
    black = grey < _BLACK
    marked = black if black.mean() > _MUCH else grey < 255 - _WHITE
    least = _SOLID if black.mean() > _MUCH else 0.0
    rows, columns = (np.flatnonzero(marked.mean(axis) > least) for axis in (1, 0))
    if not len(rows) or not len(columns):
        return 0, 0, grey.shape[1], grey.shape[0]
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
