"""Pictures of matrix capsules (document 004): where votes gather, and what attacks make of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.drawing.style import BLUE, FAINT, INK, VERMILLION, WIDTH, in_house_style
from pipeline.systems.matrix_capsules.report.claims import NETWORKS

SHOWN = 0.99
"""Share of the weight in the histograms that is drawn: a few far votes would press the others into the first bins."""


@in_house_style
def votes(arrays: Mapping[str, np.ndarray], classes: Sequence[str]) -> Figure:
    """Figure 2: an image (of a stereo pair the first) and, after each iteration, a histogram for every class.

    Args:
        arrays: `counts [images, iterations, classes, bins]`, `edges [bins + 1]`, `images [images, C, s, s]`, `labels`
            and `scores [images, classes]`.
    """
    counts, edges, labels = arrays["counts"], arrays["edges"], arrays["labels"]
    shown, iterations = counts.shape[:2]
    figure = Figure(figsize=(WIDTH, 1.75 * shown + 0.3))
    grid = figure.subplots(shown, 1 + iterations, squeeze=False, width_ratios=[0.8, *[1.0] * iterations])
    middle = (edges[1:] + edges[:-1]) / 2
    nearer = counts.sum((0, 1, 2)).cumsum()
    right = edges[1:][nearer >= SHOWN * nearer[-1]][0]
    for row in range(shown):
        label, taken = int(labels[row]), int(arrays["scores"][row].argmax())
        picture = grid[row, 0]
        picture.imshow(_first_view(arrays["images"][row]), cmap="gray", vmin=0, vmax=255)
        picture.set_title(classes[label] + ("" if taken == label else f", taken for {classes[taken]}"), fontsize=7)
        picture.axis("off")
        highest = float(counts[row].max()) or 1.0
        for t in range(iterations):
            axis = grid[row, 1 + t]
            _ridges(axis, middle, counts[row, t] / highest, label, taken)
            axis.set_yticks(range(len(classes)), classes if t == 0 else [])
            axis.set_xlim(edges[0], right)
            if row == 0:
                axis.set_title(f"iteration {t + 1}")
            if row == shown - 1:
                axis.set_xlabel("distance to the mean")
            else:
                axis.set_xticklabels([])
    return figure


def _ridges(axis: Axes, middle: np.ndarray, heights: np.ndarray, label: int, taken: int) -> None:
    """A histogram for each class, one above the other, the first on top."""
    for n, height in enumerate(heights):
        colour = BLUE if n == label else VERMILLION if n == taken else FAINT
        axis.fill_between(middle, n, n - 0.9 * height, step="mid", color=colour, alpha=0.75, linewidth=0)
        axis.axhline(n, color=colour, linewidth=0.6)
    axis.set_ylim(len(heights) - 0.85, -1.05)
    axis.tick_params(axis="y", length=0)
    axis.grid(visible=False)
    axis.spines["left"].set_visible(False)


def _first_view(image: np.ndarray) -> np.ndarray:
    return image[0] if image.ndim == 3 else image


@in_house_style
def attacked(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Figure B.3: images as they are, then a row for each network and epsilon (of a stereo pair the first image).

    Args:
        arrays: `[k, C, s, s]` in [0, 1], by "<network>-<epsilon>".
    """
    rows = {
        (network, float(epsilon)): images
        for name, images in arrays.items()
        for network, _, epsilon in [name.partition("-")]
    }
    plain = [(network, epsilon) for network, epsilon in rows if epsilon == 0][:1]
    order = plain + sorted((key for key in rows if key[1] > 0), key=lambda key: (key[1], list(NETWORKS).index(key[0])))
    columns = min(len(images) for images in rows.values())
    side = (WIDTH - 0.95) / columns
    figure = Figure(figsize=(WIDTH, side * len(order) + 0.1))
    grid = figure.subplots(len(order), columns, squeeze=False)
    for axes, key in zip(grid, order, strict=True):
        for axis, image in zip(axes, rows[key], strict=False):
            axis.imshow(_first_view(image), cmap="gray", vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
        network, epsilon = key
        words = f"{NETWORKS[network]},\nepsilon {epsilon:g}" if epsilon else "as they are"
        axes[0].set_ylabel(words, rotation=0, ha="right", va="center", fontsize=7, color=INK)
    return figure
