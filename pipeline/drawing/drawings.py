"""Figures with their titles and captions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

from matplotlib.figure import Figure

from pipeline.drawing.style import Kind, in_house_style
from pipeline.results.provenance import Record


@dataclass(frozen=True)
class Picture:
    """A figure on disk with its title and caption.

    Attributes:
        name: file name without extension.
        caption: what to look for, in a few short sentences.
        alt: text that describes the figure, for readers who cannot see it.
        records: provenance of every item whose results are drawn.
        document: number of the document that the figure belongs to, such as "000"; empty if there is none.
        code: function that draws the figure, such as "pipeline/report/equivariance.py#summary"; empty if not known.
        film: the film that the page shows instead of the figure, as JSON (`drawing.films`); empty if there is none.
        uri, width: the image as a data URI and its width in CSS pixels, both set by `page.figures.load_figure`.
    """

    name: str
    kind: Kind
    title: str
    caption: str
    alt: str
    records: list[Record]
    document: str = field(default="", kw_only=True)
    code: str = field(default="", kw_only=True)
    film: str = field(default="", kw_only=True)
    uri: str = field(default="", kw_only=True)
    width: int = field(default=0, kw_only=True)

    @property
    def file(self) -> str:
        return f"{self.name}.{self.kind}"


@dataclass(frozen=True)
class Drawing(Picture):
    """A figure that is not yet drawn. Calling `figure` draws it."""

    figure: Callable[[], Figure]

    @in_house_style
    def write_pdf(self, path: Path) -> None:
        """Draw the figure into the PDF file `path`. The same data give the same bytes."""
        content = BytesIO()  # not a file: on a full disk, matplotlib's error would not name the cause
        self.figure().savefig(content, format="pdf", metadata={"Title": self.title, "CreationDate": None})
        path.write_bytes(content.getvalue())
