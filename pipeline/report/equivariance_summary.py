"""Document 003 in one picture: how well the poses, codes or features of each system follow a moved image."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import FAINT, INK, in_house_style, plain
from pipeline.report.equivariance import Followed, best_layer, variant_of
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems import SYSTEMS

NAME = "equivariance-summary"
DOCUMENT = "003"
"""The document that it sums up."""
_ROW, _REST = 0.2, 0.45
"""Inches: height of a row, and of all else."""


@dataclass(frozen=True)
class Row:
    """A system, and its layer that follows best, on a data set."""

    label: str
    variant: str
    followed: Followed
    dataset: str

    @property
    def judged(self) -> str:
        """How the layer is predicted to move, and on which data, without what these were made from."""
        return f"{self.followed.prediction}, {self.dataset.partition(' (')[0]}"


def rows(results: Results) -> list[Row]:
    """One row for each run that was measured, systems in their usual order; runs of one system have their own names.

    Raises:
        ResultError: a result is corrupt.
    """
    found = []
    for item, numbers in results.executed("equivariance"):
        run, variant = variant_of(item, numbers)
        followed = best_layer(numbers, variant)
        if followed is not None:
            found.append((variant, run, followed, dataset_label(numbers.records)))
    variants = [variant for variant, *_ in found]
    order = list(SYSTEMS)
    return [
        Row(SYSTEMS[variant].label if variants.count(variant) == 1 else run, variant, followed, dataset)
        for variant, run, followed, dataset in sorted(found, key=lambda each: order.index(each[0]))
    ]


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """The picture, if anything was measured. Raises `ResultError` as `rows`."""
    found = rows(results)
    if not found:
        return
    layers = "; ".join(f"{row.label}: {row.followed}, on {row.dataset}" for row in found)
    yield Drawing(
        NAME,
        "png",
        "How well each system follows a moved image",
        "Errors of the layer that follows rotations, shifts, scales and shears best, relative to how much its numbers "
        "vary over images (1: nothing is known of the image): filled if its change is predicted, open if no "
        "change is (bars: two standard errors). If the filled mark is left of the open one, the numbers move as "
        "predicted rather than stay; a map fitted to training images is an easier test than the action given by "
        f"theory, and rows on different data cannot be compared. Layers: {layers}.",
        f"A row for each of {', '.join(row.label for row in found)}, with two marks each.",
        [record for _, numbers in results.executed("equivariance") for record in numbers.records],
        partial(summary, found),
    )


@in_house_style
def summary(found: list[Row]) -> Figure:
    """A row for each system: a filled mark for the error as predicted, an open one for that without moving."""
    figure = Figure(figsize=(5.2, _ROW * len(found) + _REST))
    axes = figure.subplots()
    for place, row in enumerate(found):
        colour, marker = SYSTEMS[row.variant].colour, SYSTEMS[row.variant].marker
        moved, stays = row.followed.error, row.followed.invariance
        if stays is not None:
            axes.plot([moved.mean, stays.mean], [place, place], color=FAINT, linewidth=1)
            axes.plot(stays.mean, place, marker=marker, color=colour, markerfacecolor="white", markersize=6)
        axes.errorbar(moved.mean, place, xerr=2 * moved.se, color=colour, marker=marker, markersize=6, capsize=0)
    axes.axvline(1, color=INK, linewidth=0.7)
    axes.set_yticks(range(len(found)), [plain(row.label) for row in found])
    axes.tick_params(axis="y", length=0, labelsize=10)
    for place, row in enumerate(found):
        text = plain(row.judged)
        axes.text(1.03, place, text, fontsize=8.5, va="center_baseline", transform=axes.get_yaxis_transform())
    axes.tick_params(axis="x", labelsize=9)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.set_xlim(0, None)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("relative error (filled: predicted, open: unmoved)", fontsize=9, loc="right")
    return figure
