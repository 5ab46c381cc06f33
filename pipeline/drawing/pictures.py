"""Figures that consist of rows of images of equal size. The pixels are drawn without interpolation."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from pipeline.data.datasets import Dataset
from pipeline.drawing.style import WIDTH, in_house_style, plain

MOST_COLUMNS, MOST_ANGLES = 16, 13
GAP = 2  # pixels between cells
PER_CLASS, MOST_CLASSES = 10, 40
"""Maximum numbers of images per class, and of classes, in `preview`. A user's own data may have a thousand classes."""
_LABEL_WIDTH = 0.95  # inches: minimum width of the labels to the left of the rows
_CHARACTER, _LINE = 0.062, 0.15  # inches: approximate width of a character and height of a line in headings
_PAD = 3  # points between the images and their labels


def mosaic(rows: Sequence[np.ndarray]) -> np.ndarray:
    """One RGB picture of `rows` of images. A row is an array `[N, h, w]` (grey) or `[N, h, w, 3]`, in [0, 1].

    All images have the same size. Between neighbouring images, `GAP` pixels are white.
    """
    height, width = rows[0].shape[1:3]
    columns = max(len(row) for row in rows)
    canvas = np.ones((len(rows) * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), dtype=np.float32)
    for i, row in enumerate(rows):
        for j, image in enumerate(np.clip(row, 0, 1)):
            top, left = i * (height + GAP), j * (width + GAP)
            canvas[top : top + height, left : left + width] = image if image.ndim == 3 else image[..., None]
    return canvas


@in_house_style
def image_rows(rows: Sequence[tuple[str, np.ndarray]], columns: Sequence[str] | None = None, names: str = "") -> Figure:
    """Labelled rows of images.

    Args:
        rows: label of each row, and its images `[N, h, w]` or `[N, h, w, 3]` in [0, 1], all of the same size.
        columns: one heading per column, of one or several lines.
        names: what the headings mean, such as "part", drawn to the left of them. It has as many lines as a heading.
    """
    images = [row for _, row in rows]
    picture, count = mosaic(images), max(len(row) for row in images)
    cell_height, cell_width = images[0].shape[1] + GAP, images[0].shape[2] + GAP

    # With few columns, the width of a cell is limited, so that one image does not fill half a page.
    labels = max(_LABEL_WIDTH, _CHARACTER * max(len(name) for name in names.split("\n")) + 0.1)
    drawn = min(WIDTH - labels, 0.75 * count)
    height = drawn * picture.shape[0] / picture.shape[1]
    above = 0.1 + _LINE * (1 + names.count("\n")) if columns else 0.1
    figure = Figure(figsize=(drawn + labels, height + above))
    axes = figure.subplots()
    axes.imshow(picture, interpolation="nearest")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_yticks([i * cell_height + (cell_height - GAP) / 2 - 0.5 for i in range(len(rows))], [r for r, _ in rows])
    axes.tick_params(length=0, labeltop=True, labelbottom=False, pad=_PAD)
    if columns:
        axes.set_xticks([j * cell_width + (cell_width - GAP) / 2 - 0.5 for j in range(count)], list(columns))
        # `names` has as many lines as a heading, and the same font size, so that the lines of both are level.
        # "W" puts the picture at the left of the axes' box. Otherwise, the layout reserves the wrong width for `names`.
        axes.set_anchor("W")
        axes.annotate(
            names, (0, 1), (-_PAD, _PAD), "axes fraction", "offset points", ha="right", va="bottom",
            fontsize=axes.yaxis.get_ticklabels()[0].get_fontsize(),
        )  # fmt: skip
    else:
        axes.set_xticks([])
    return figure


def over_rotation(angles: np.ndarray, rows: Sequence[tuple[str, np.ndarray]]) -> Figure:
    """One image rotated step by step, with a row for each kind of picture, such as input and reconstruction.

    Args:
        angles: `[N]`, in degrees. If there are more than `MOST_ANGLES`, only `MOST_ANGLES` are drawn, evenly spaced.
        rows: label of each row, and its images `[N, h, w]` or `[N, h, w, 3]` in [0, 1].
    """
    kept = np.unique(np.linspace(0, len(angles) - 1, min(len(angles), MOST_ANGLES)).round().astype(int))
    headings = [f"{angle:.0f}°".replace("-", "\N{MINUS SIGN}") for angle in angles[kept]]
    return image_rows([(name, images[kept]) for name, images in rows], headings, "rotation of the input")


def templates(values: np.ndarray, alphas: np.ndarray) -> Figure:
    """Draw the templates of P parts above their alpha channels, both `[P, h, w]` in [0, 1], up to 16 parts in a row."""
    rows = []
    for first in range(0, len(values), MOST_COLUMNS):
        block = slice(first, first + MOST_COLUMNS)
        suffix = f" {first + 1}-{min(first + MOST_COLUMNS, len(values))}" if len(values) > MOST_COLUMNS else ""
        rows += [(f"template{suffix}", values[block]), (f"alpha{suffix}", alphas[block])]
    numbers = None if len(values) > MOST_COLUMNS else [str(j + 1) for j in range(len(values))]
    return image_rows(rows, numbers, "part")


def samples(images: np.ndarray) -> Figure:
    """One row of K samples `[K, h, w]`, with values in [0, 1]."""
    return image_rows([("samples", images)])


@in_house_style
def preview(dataset: Dataset) -> Figure:
    """The first ten training images of each class, one row per class, at most `MOST_CLASSES` classes.

    Images with three channels are shown in colour, others by their first channel (of a stereo pair, the left image).
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
