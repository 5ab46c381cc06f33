"""The tables of a profile: tidy numbers for programs (CSV), readable ones for people (Markdown and the page)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.drawing.drawings import Written
from pipeline.drawing.table import Table
from pipeline.files import write_text


def write_tables(folder: Path, tables: Sequence[Table], written: Written) -> None:
    """Write each table as CSV and Markdown into `folder`, and remove tables that an earlier call wrote there.

    Raises:
        FileWriteError: a table could not be written.
    """
    for table in tables:
        for ending, content in ((".csv", table.to_csv()), (".md", table.to_markdown())):
            path = folder / f"{table.name}{ending}"
            write_text(path, content)
            written.files.append(path)
    for path in [*folder.glob("*.csv"), *folder.glob("*.md")]:
        if path not in written.files:
            path.unlink()
