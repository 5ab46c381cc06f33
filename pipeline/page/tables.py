"""The tables of a profile: tidy numbers for programs (CSV), readable ones for people (Markdown and the page)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.drawing.drawings import Written
from pipeline.drawing.table import Table
from pipeline.files import write_text
from pipeline.page import data_efficiency, equivariance, model_table, routing, runs
from pipeline.results.reading import Results
from pipeline.systems import REPORTS


def build_tables(results: Results) -> list[Table]:
    """Every table that the results of a profile give: those of every system, then those of all systems.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    tables: list[Table] = []
    for system in REPORTS.values():
        built: list[Table] = system.part("report.tables").build(results)
        tables += [replace(table, document=system.document) for table in built]
    tables += routing.build(results)
    for measured in (equivariance, data_efficiency):
        tables += [replace(table, document=measured.DOCUMENT) for table in measured.build(results)]
    return [*tables, *model_table.build(results), *runs.build(results)]


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
