"""Figures made of images."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pipeline.drawing.pictures import image_rows


@pytest.mark.parametrize("columns", [1, 3, 16])
def test_each_name_stands_beside_its_line_of_the_headings(columns: int) -> None:
    images = np.zeros((columns, 8, 8))
    names = "most common class\nits share of these images (%)\nshare of all images (%)"
    figure = image_rows([("its images", images), ("its parts", images)], ["7\n100\n<1"] * columns, names)
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    box, headings = axes.texts[0].get_window_extent(), axes.get_xticklabels()[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 < headings.x0
    assert box.y1 <= figure.bbox.height
    assert box.height == pytest.approx(headings.height, abs=3)  # pixels: descenders differ
    assert box.y0 == pytest.approx(headings.y0, abs=3)
