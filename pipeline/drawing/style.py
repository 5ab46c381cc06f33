"""The style of every figure: one palette and one font. The same data give files with the same bytes.

The palette is by Okabe and Ito (2008). Readers with any common form of colour blindness can tell its colours apart.
Colours of features and systems are in other modules, as DVC runs `preprocess` again after every edit of this module.
"""

import io
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

Kind = Literal["svg", "png"]

WIDTH = 6.75
"""Width in inches of both columns of a two-column page."""
COLUMN = 3.3
"""Width in inches of one column."""
DPI = 220
"""Dots per inch of PNG figures."""

INK = "#1a1a1a"
FAINT = "#8a8a8a"
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"


def plain(text: str) -> str:
    """The text with escaped dollar signs: matplotlib would otherwise typeset text between them as mathematics."""
    return text.replace("$", r"\$")


RC: Any = {  # Any: matplotlib's stubs reject `str` as key
    "figure.dpi": DPI,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "white",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # is installed with matplotlib, so text looks the same everywhere
    "mathtext.fontset": "dejavusans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2,
    "svg.hashsalt": "capsules",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # TrueType, because publishers refuse Type 3, matplotlib's default
}
in_house_style = matplotlib.rc_context(RC)
"""A decorator that runs a function with this module's matplotlib settings, and restores the caller's afterwards."""


def panels(columns: int, height: float, width: float = WIDTH, **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of `width` x `height` inches with `columns` plots side by side, made without pyplot's global state."""
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(1, columns, squeeze=False, **options)
    return figure, list(axes[0])


@in_house_style
def to_bytes(figure: Figure, kind: Kind) -> bytes:
    """The figure as the bytes of a file. It has no date and no random ids, so the same data give the same bytes."""
    buffer = io.BytesIO()
    left_out = ("Date", "Creator", "Format", "Type") if kind == "svg" else ("Software",)
    figure.savefig(buffer, format=kind, dpi=DPI, metadata=dict.fromkeys(left_out))
    return _with_a_palette(buffer) if kind == "png" else buffer.getvalue()


def _with_a_palette(png: io.BytesIO) -> bytes:
    """Reduce a PNG file to 256 colours. The result has less than half the size, and looks the same."""
    smaller = io.BytesIO()
    with Image.open(png) as picture:
        reduced = picture.convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    reduced.save(smaller, "png", optimize=True, dpi=(DPI, DPI))
    return smaller.getvalue()
