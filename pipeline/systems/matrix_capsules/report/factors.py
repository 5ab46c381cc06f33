"""Test errors of matrix capsules by what is known of images beside their class (document 004): table and figure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.drawing.style import INK, WIDTH, in_house_style

FACTORS = {
    "azimuth": "azimuth (degrees)",
    "elevation": "elevation (degrees)",
    "lighting": "lighting",
    "instance": "object of its class",
}
"""What is known of images beside their class, and how it is called."""
_COLUMNS = 20
"""Columns of numbers that the width of a page allows."""
_DARK = 0.7
"""Numbers are white on the colour of errors above this share of the largest."""


def by_factor(table: pd.DataFrame) -> pd.DataFrame:
    """Errors by factor from an evaluation's table: columns factor, value, error (percent), means over replicas; no
    rows where nothing but the class is known of the images.
    """
    parts = table["test"].str.extract(rf"^(?P<factor>{'|'.join(FACTORS)})-(?P<value>\d+)$")
    found = parts.assign(error=100 * (1 - table["accuracy"])).dropna()
    found["value"] = found["value"].astype(int)
    return found.groupby(["factor", "value"])[["error"]].mean().reset_index()


@in_house_style
def matrix(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Test errors (percent) by the values of each factor: a row for each run, the one with the lowest errors first.

    Args:
        tables: by run, what `by_factor` gives.
    """
    rows = pd.concat(tables, names=["run"]).reset_index("run")
    runs = rows.groupby("run")["error"].mean().sort_values().index
    shown = {
        str(factor): of_factor.pivot_table(values="error", index="run", columns="value").reindex(runs)
        for factor, of_factor in rows.groupby("factor")
    }
    lines = _in_lines({factor: shown[factor].shape[1] for factor in FACTORS if factor in shown})
    figure = Figure(figsize=(WIDTH, len(lines) * (0.6 + 0.17 * len(runs))))
    for line, of_line in zip(figure.subfigures(len(lines), squeeze=False)[:, 0], lines, strict=True):
        widths = [shown[factor].shape[1] for factor in of_line]
        axes = line.subplots(1, len(widths), sharey=True, width_ratios=widths, squeeze=False)[0]
        for axis, factor in zip(axes, of_line, strict=True):
            _numbers(axis, shown[factor], rows["error"].max())
            axis.set_xlabel(FACTORS[factor])
    return figure


def _in_lines(counts: Mapping[str, int]) -> list[list[str]]:
    """Factors, with the number of columns of each, in as few lines as possible, in order."""
    lines: list[list[str]] = [[]]
    for name, count in counts.items():
        if lines[-1] and sum(counts[each] for each in lines[-1]) + count > _COLUMNS:
            lines.append([])
        lines[-1].append(name)
    return lines


def _numbers(axis: Axes, errors: pd.DataFrame, largest: float) -> None:
    """Draw a matrix of errors as coloured cells, the error in each; the colour of `largest` is the darkest."""
    axis.imshow(errors, cmap="Blues", vmin=0, vmax=1.2 * largest, aspect="auto")
    for (row, column), error in np.ndenumerate(errors.to_numpy(dtype=float)):
        if np.isnan(error):  # the run was not tested on this value
            continue
        colour = "white" if error > _DARK * largest else INK
        axis.text(column, row, f"{error:.0f}", ha="center", va="center", fontsize=6.5, color=colour)
    axis.set_xticks(range(errors.shape[1]), [f"{value:g}" for value in errors.columns])
    axis.set_yticks(range(len(errors)), errors.index)
    axis.tick_params(length=0)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
