"""Figures made of images."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pipeline.drawing.pictures import image_rows


@pytest.mark.parametrize("columns", [1, 3, 16])
def test_the_heading_lies_within_the_figure(columns: int) -> None:
    images = np.zeros((columns, 8, 8))
    heading = "most common class, its share of the object's images (%), the object's share of all images (%)"
    figure = image_rows([("its images", images), ("its parts", images)], ["7"] * columns, heading)
    FigureCanvasAgg(figure).draw()
    box = figure.axes[0].xaxis.label.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert box.y1 <= figure.bbox.height
