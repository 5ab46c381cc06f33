"""A report on made-up results: figures, tables and page as the stages would write them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from made_up import Writer

from pipeline.page.figures import draw_all, write_figures
from pipeline.page.page import build_page, load_figures
from pipeline.page.scorecard import build_scorecard
from pipeline.page.tables import build_tables
from pipeline.params import Params
from pipeline.results.claims import Claim, load_claims


def write_page(writer: Writer, params: Params, claims: list[Claim] | None = None) -> str:
    """Draw the figures into `reports/quick/figures` and return the page."""
    claims = claims or load_claims()
    folder = writer.root / "reports" / "quick" / "figures"
    written = write_figures(folder, writer.results, params)
    tables = build_tables(writer.results, params, written)
    rows = build_scorecard(claims, writer.results, params)
    return build_page(
        rows, claims, params, load_figures(folder, draw_all(writer.results, params, written)), tables, written.missing
    )


@dataclass(frozen=True)
class Report:
    """A report on every made-up item, drawn once for all tests that only read it."""

    writer: Writer
    params: Params
    figures: Path
    page: Path
    content: str
