"""Preview of a data set: some images of every class."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from pipeline.data.datasets import Dataset
from pipeline.drawing.pictures import image_rows
from pipeline.drawing.style import in_house_style, plain

PER_CLASS = 10
MOST_CLASSES = 40
"""Own images may have a thousand classes, of which a picture would be too high to be drawn."""


@in_house_style
def preview(dataset: Dataset) -> Figure:
    """The first ten training images of each class, one row per class, at most `MOST_CLASSES` of them.

    Three channels are shown as colours; otherwise the first channel is shown, the left image of a stereo pair.
    """
    images, labels = dataset.part("train")
    shown = images.transpose(0, 2, 3, 1) if images.shape[1] == 3 else images[:, 0]
    rows = []
    for number in np.unique(labels)[:MOST_CLASSES]:
        name = dataset.classes[number] if number < len(dataset.classes) else str(number)
        rows.append((plain(name), shown[labels == number][:PER_CLASS] / 255))
    figure = image_rows(rows)
    figure.axes[0].set_title(f"{dataset.label}: {len(labels):,} training images, the first {PER_CLASS} of each class")
    return figure
