"""Test errors over numbers of parameters."""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from pipeline.report.model_sizes import error_over_parameters


def test_errors_above_zero_have_a_logarithmic_axis() -> None:
    rows = [
        {"series": "CNN", "system": "cnn", "x": 31_000, "y": y, "low": low, "high": y, "dataset": dataset}
        for dataset, y, low in (("MNIST", 9.9, float("nan")), ("MNIST", 0.5, 0.4), ("toys", 2.9, 2.8), ("digits", 1, 0))
    ]
    table = pd.DataFrame(rows)
    figure = error_over_parameters(table)
    assert [axis.get_yscale() for axis in figure.axes] == ["log", "log", "linear"]
    assert [axis.get_ylim() for axis in figure.axes[:2]] == [pytest.approx((0.3, 15)), pytest.approx((2, 5))]
    assert not any(label.get_text() for axis in figure.axes for label in axis.get_yticklabels(minor=True))


def test_titles_and_ticks_of_four_panels_do_not_overlap() -> None:
    datasets = ["MNIST", "MNIST, 40x40", "smallNORB (JPEG-derived)", "Fashion-MNIST"]
    rows = [
        {"series": "CNN", "system": "cnn", "x": x, "y": 11.0, "low": 10.0, "high": 12.0, "dataset": dataset}
        for dataset in datasets
        for x in (31_000, 4_200_000)
    ]
    figure = error_over_parameters(pd.DataFrame(rows))
    FigureCanvasAgg(figure).draw()
    gap = 0.04 * figure.dpi  # inches
    titles = [
        child.get_window_extent()
        for axis in figure.axes
        for child in axis.get_children()
        if isinstance(child, Text) and child.get_text()
    ]
    assert len(titles) == len(datasets)
    assert all(left.x1 + gap < right.x0 for left, right in pairwise(titles))
    for axis in figure.axes:
        ticks = [label.get_window_extent() for label in axis.get_xticklabels() if label.get_text()]
        inside = [box for box in ticks if axis.bbox.x0 <= (box.x0 + box.x1) / 2 <= axis.bbox.x1]
        assert len(inside) > 1
        points = axis.transData.transform([(31_000, 11.0), (4_200_000, 11.0)])
        left, right = axis.transAxes.inverted().transform(points)[:, 0]
        assert (left, 1 - right) == (pytest.approx(0.15 / 1.3), pytest.approx(0.15 / 1.3))
        assert all(left.x1 + gap < right.x0 for left, right in pairwise(inside))
