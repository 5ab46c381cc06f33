"""Test errors on darker images: a figure and a table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import in_house_style, panels
from pipeline.drawing.table import Table, measured_table
from pipeline.results.reading import Numbers, Results

DOCUMENT = "004"


def draw(results: Results) -> Iterator[Drawing]:
    """A figure of each item."""
    for item, numbers in results.executed("brightness"):
        texts = (f"Errors on darker images, {item}", "Caption.", "A line.")
        yield Drawing(f"brightness-{item}", "svg", *texts, numbers.records, partial(_line, numbers))


@in_house_style
def _line(numbers: Numbers) -> Figure:
    figure, (axes,) = panels(1, 2.0)
    errors = {float(factor): numbers.measured("error", factor) for factor in numbers.names("error")}
    axes.plot(list(errors), [found.mean for found in errors.values() if found])
    return figure


def build(results: Results) -> list[Table]:
    """One table of all items."""
    rows = [
        ([item, factor], {"error": numbers.measured("error", factor)}, numbers)
        for item, numbers in results.executed("brightness")
        for factor in numbers.names("error")
    ]
    heads = {"error": ("test error", 3)}
    return measured_table("brightness", "Errors on darker images", "Of all.", ["item", "factor"], heads, rows)
