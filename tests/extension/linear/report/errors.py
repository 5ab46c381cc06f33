"""Test errors of logistic regression."""

from __future__ import annotations

from pipeline.drawing.table import Table, measured_table
from pipeline.results.reading import Results

HEADS = {"centre": ("test error", 3)}


def build(results: Results) -> list[Table]:
    """One table."""
    rows = [
        ([run], {"centre": numbers.measured("test", "centre")}, numbers)
        for run, numbers in results.executed("evaluate")
        if numbers.run(run).variant == "linear"
    ]
    return measured_table("errors-linear", "Errors of logistic regression", "Of the middle.", ["run"], HEADS, rows)
