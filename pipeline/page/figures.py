"""The figures of a profile: those of every system, then those of every run."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pipeline.drawing import style
from pipeline.drawing.drawings import Drawing, Written
from pipeline.files import write_bytes
from pipeline.page import runs
from pipeline.results.reading import Results
from pipeline.systems import REPORTS


def draw_all(results: Results, written: Written) -> Iterator[Drawing]:
    """Every figure that the results of a profile give, one at a time.

    Args:
        written: gets the names of items whose arrays or tables are missing.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    for system in REPORTS:
        yield from import_module(f"pipeline.systems.{system}.report.figures").draw(results, written)
    yield from runs.draw(results, written)


def write_figures(folder: Path, results: Results) -> Written:
    """Draw every figure into `folder`; figures that an earlier call left are removed.

    Raises:
        ResultError: a result file is corrupt; it is named.
        FileWriteError: a figure could not be written.
    """
    written = Written()
    for drawing in draw_all(results, written):
        path = folder / drawing.file
        write_bytes(path, style.to_bytes(drawing.figure(), drawing.kind))
        written.files.append(path)
    for path in [*folder.glob("*.svg"), *folder.glob("*.png")]:
        if path not in written.files:
            path.unlink()
    return written
