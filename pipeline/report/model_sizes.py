"""The test errors of all trained models over their numbers of parameters: a figure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FormatStrFormatter, LogLocator, NullLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import in_house_style, panels
from pipeline.report.models import Entry, entries
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems import SYSTEMS

_TITLE = 18  # characters of a panel's title in a line: there may be four panels
_FEW, _MANY = (1, 2, 5), (1, 1.5, 2, 3, 5, 7)
"""Ticks of errors in each decade, where there is more than one and where there is less."""


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Error against parameters, a panel for each data set. Raises `ResultError` as `entries`."""
    found = entries(results)
    if not found:
        return
    table = _table(found)
    names = ", ".join(dict.fromkeys(table["series"]))
    yield Drawing(
        "systems-parameters",
        "svg",
        "Test error against the number of parameters",
        "Further left is smaller, further down is better; a point is a trained model, bars are one sd over seeds. "
        "Models that learned without labels are classified by the best of their linear probes.",
        f"Scatter plots of test error over parameters, one for each data set, with a marker for each of {names}.",
        [record for each in found for record in each.records],
        partial(error_over_parameters, table),
    )


def _table(found: list[Entry]) -> pd.DataFrame:
    rows = [
        (SYSTEMS[each.system].label, each.system, each.parameters, dataset_label(each.records), each.error)
        for each in found
    ]
    table = pd.DataFrame(rows, columns=["series", "system", "x", "dataset", "error"])
    for name in ("mean", "sd", "n"):
        table[name] = [getattr(error, name) for error in table["error"]]
    known = table["sd"].where(table["n"] > 1)  # of several seeds
    return table.assign(y=table["mean"], low=table["mean"] - known, high=table["mean"] + known)


def _limits(table: pd.DataFrame) -> tuple[float, float] | None:
    """Ticks of a logarithmic axis clearly below and above all errors and bars; None if not all are above 0."""
    values = table[["y", "low", "high"]].to_numpy(dtype=float)
    low, high = np.nanmin(values), np.nanmax(values)
    if low <= 0:
        return None
    ticks = [step * 10.0**decade for decade in range(-6, 4) for step in _MANY]
    return max(tick for tick in ticks if 1.05 * tick < low), min(tick for tick in ticks if tick > 1.05 * high)


@in_house_style
def error_over_parameters(table: pd.DataFrame) -> Figure:
    """Test error (percent) over parameters.

    Args:
        table: columns series, system, x, y, low, high and dataset, a row for each model.
    """
    datasets = list(dict.fromkeys(table["dataset"]))
    figure, axes = panels(len(datasets), 2.6)
    for axis, dataset in zip(axes, datasets, strict=True):
        drawn = table[table["dataset"] == dataset]
        for system, rows in drawn.groupby("system", sort=False):
            colour, marker = SYSTEMS[str(system)].colour, SYSTEMS[str(system)].marker
            bars = rows["y"] - rows["low"]
            label = rows["series"].iloc[0]
            # Points on top of each other show through.
            axis.errorbar(rows["x"], rows["y"], bars, color=colour, marker=marker, linestyle="", label=label, alpha=0.7)
        axis.set_xscale("log")
        axis.margins(x=0.15)
        low, high = axis.get_xlim()
        axis.xaxis.set_major_locator(LogLocator(subs=(1,) if high > 30 * low and len(datasets) > 3 else (1, 3)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
        axis.set(xlabel="parameters", title=textwrap.fill(dataset, _TITLE, break_on_hyphens=False))
        limits = _limits(drawn)
        if limits is None:
            axis.set_ylim(0, 1.06 * axis.get_ylim()[1])  # no marker lies on the frame
            continue
        axis.set_yscale("log")
        axis.set_ylim(limits)
        axis.yaxis.set_major_locator(LogLocator(subs=_FEW if limits[1] > 10 * limits[0] else _MANY))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes[0].set_ylabel("test error (%)")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4)
    return figure
