"""Test errors of matrix capsules and of the convolutional network beside them (document 004): by what is known of
images beside their class, and what changes of a training come to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import INK, WIDTH, in_house_style
from pipeline.drawing.table import Row, Table, cells, in_words, measured_table
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.report.runs import (
    BOTH,
    Trial,
    records_of,
    rounded,
    runs,
    trained_on,
    warped,
)

ERRORS = {"centre": ("error, middle (%)", 2), "crops": ("error, 13 crops (%)", 2)}
"""Columns of tables: what was tested, its heading and decimals."""
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


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """A figure for each data set whose images are known by more than their class."""
    found: dict[str, list[tuple[Trial, pd.DataFrame]]] = {}
    for trial in runs(results, "evaluate", *BOTH):
        table = written.table(results, "evaluate", trial.item, ("replica", "test", "accuracy"))
        if table is not None and not (errors := by_factor(table)).empty:
            found.setdefault(trial.run.dataset, []).append((trial, errors))
    for dataset, of_dataset in found.items():
        trials = [trial for trial, _ in of_dataset]
        images = " or ".join(f"{count:,}" for count in sorted({trial.dataset.test for trial in trials}))
        yield Drawing(
            f"matrix-factors-{dataset}",
            "svg",
            f"Which images matrix capsules and the CNN misclassify, {dataset}",
            "Test errors (%) by the position of the camera, the light and the object; means over seeds. The "
            f"{images} test images of {dataset_label(records_of(trials))} are shared among the values of a factor."
            f"{warped(trials)}",
            "A matrix of test errors for each factor: a column for each value, a row for each run.",
            records_of(trials),
            partial(matrix, {trial.item: errors for trial, errors in of_dataset}),
        )


def by_factor(table: pd.DataFrame) -> pd.DataFrame:
    """Errors by factor from an evaluation's table: columns factor, value, error (percent), means over replicas; no
    rows where nothing but the class is known of the images.
    """
    parts = table["test"].str.extract(rf"^(?P<factor>{'|'.join(FACTORS)})-(?P<value>\d+)$")
    found = parts.assign(error=100 * (1 - table["accuracy"])).dropna()
    found["value"] = found["value"].astype(int)
    return found.groupby(["factor", "value"])[["error"]].mean().reset_index()


@in_house_style
def matrix(errors: Mapping[str, pd.DataFrame]) -> Figure:
    """Test errors (percent) by the values of each factor: a row for each run, the one with the lowest errors first.

    Args:
        errors: by run, what `by_factor` gives.
    """
    rows = pd.concat(errors, names=["run"]).reset_index("run")
    names = rows.groupby("run")["error"].mean().sort_values().index
    shown = {
        str(factor): of_factor.pivot_table(values="error", index="run", columns="value").reindex(names)
        for factor, of_factor in rows.groupby("factor")
    }
    lines: list[list[str]] = [[]]  # as few as the width allows
    for factor in FACTORS:
        if factor in shown:
            if lines[-1] and sum(shown[each].shape[1] for each in [*lines[-1], factor]) > _COLUMNS:
                lines.append([])
            lines[-1].append(factor)
    figure = Figure(figsize=(WIDTH, len(lines) * (0.6 + 0.17 * len(names))))
    for line, of_line in zip(figure.subfigures(len(lines), squeeze=False)[:, 0], lines, strict=True):
        widths = [shown[factor].shape[1] for factor in of_line]
        axes = line.subplots(1, len(widths), sharey=True, width_ratios=widths, squeeze=False)[0]
        for axis, factor in zip(axes, of_line, strict=True):
            _cells(axis, shown[factor], rows["error"].max())
            axis.set_xlabel(FACTORS[factor])
    return figure


def _cells(axis: Axes, errors: pd.DataFrame, largest: float) -> None:
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


def build(results: Results) -> list[Table]:
    """Test errors of runs, by data set; and what changes of a training come to on objects that it does not see."""
    rows: dict[str, list[Row]] = {}
    for trial in runs(results, "evaluate", *BOTH):
        keys: list[object] = [trial.item, trial.run.variant.replace("_", " "), trained_on(trial.run)]
        found = cells(trial.numbers, ERRORS, "test")
        rows.setdefault(trial.run.dataset, []).append((keys, found, trial.numbers))
    caption = (
        "Test errors from the middle of an image, and from scores averaged over 13 crops of it (capsules' activations, "
        "the CNN's probabilities)."
    )
    head = ["run", "network", "trained on"]
    tables = []
    for dataset, of_dataset in rows.items():
        title = f"Errors of matrix capsules and the CNN, {dataset}"
        tables += measured_table(f"matrix-errors-{dataset}", title, caption, head, ERRORS, of_dataset)
    return [*tables, *_recipes(results)]


def _recipes(results: Results) -> list[Table]:
    heads = {
        "new": ("error, new objects (%)", 1),
        "known": ("known objects (%)", 1),
        "train": ("training images (%)", 1),
    }
    rows: list[Row] = []
    for study, numbers in results.executed("recipe"):
        settings = numbers.settings.recipe[study]
        for condition in numbers.names("condition"):
            parts = settings.conditions.get(condition, {}).values()
            changed = in_words({name: value for part in parts for name, value in part.items()})
            held_out = ", ".join(f"{settings.factor} {value}" for value in settings.held_out)
            epochs = numbers.trained[condition].training.epochs
            seconds = rounded(numbers, "condition", condition, "seconds", "mean")
            keys: list[object] = [settings.run, condition, changed, held_out, epochs, seconds]
            rows.append((keys, cells(numbers, heads, "condition", condition), numbers))
    caption = (
        "Networks trained with something changed in the run. New objects are the images held out, known objects other "
        "images like those trained on: both errors are of the network after its last epoch. That on training images is "
        "the mean over the last epoch, on images as they are augmented, and thus cannot be compared between conditions "
        "that augment differently. Each network counts as a seed, whether its seed or the value held out is another; "
        "seconds are the mean of these trainings. No test image is used."
    )
    head = ["run", "condition", "changed", "held out", "epochs", "seconds"]
    return measured_table("matrix-recipe", "Changes of training, on objects held out", caption, head, heads, rows)
