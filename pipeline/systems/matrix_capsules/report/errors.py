"""Test errors of matrix capsules and of the convolutional network beside them (document 004): as they learn, by what is
known of images beside their class, and what changes of a training come to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import cycle, product
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import BLUE, GREEN, INK, PURPLE, SKY, VERMILLION, WIDTH, in_house_style, panels
from pipeline.drawing.table import Row, Table, in_words, measured_table
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.report.runs import (
    BOTH,
    Trial,
    percent,
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
_COLOURS = {"matrix_capsules": (BLUE, SKY, GREEN, INK), "cnn": (PURPLE, VERMILLION)}
"""Of several runs in one plot, by variant: the first has the colour of its system."""
_DASHES = ("-", "--", ":", "-.")
_LINEAR = 1.0
"""Percent: up to here axes of errors over epochs are linear, logarithmic from here on."""
_COLUMNS = 20
"""Columns of numbers that the width of a page allows."""
_DARK = 0.7
"""Numbers are white on the colour of errors above this share of the largest."""

Tables = list[tuple[Trial, pd.DataFrame]]
"""Runs with their tables of a stage."""


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """A figure of learning for each data set, and one of errors where images are known by more than their class."""
    accuracies = ("replica", "epoch", "train_accuracy", "validation_accuracy")
    for dataset, tables in _by_dataset(results, written, "train", accuracies).items():
        trials = [trial for trial, _ in tables]
        yield Drawing(
            f"matrix-learning-{dataset}",
            "svg",
            f"Errors of matrix capsules and the CNN as they learn, {dataset}",
            "How fast networks learn, and how far training and validation errors differ. Training images are cropped "
            "at random positions, with random brightness and contrast, validation images in the middle. Lines are "
            f"means over seeds; axes are linear up to {_LINEAR:g} %, then logarithmic."
            f"{warped(trials)}",
            "Two line plots of error over epochs, training and validation, a line for each run.",
            records_of(trials),
            partial(as_they_learn, tables),
        )
    for dataset, tables in _by_dataset(results, written, "evaluate", ("replica", "test", "accuracy")).items():
        trials = [trial for trial, _ in tables]
        errors = {trial.item: found for trial, table in tables if not (found := by_factor(table)).empty}
        if not errors:
            continue
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
            partial(matrix, errors),
        )


def _by_dataset(
    results: Results, written: Written, stage: Literal["train", "evaluate"], columns: Sequence[str]
) -> dict[str, Tables]:
    """All runs with their tables of a stage, by data set."""
    found: dict[str, Tables] = {}
    for trial in runs(results, stage, *BOTH):
        table = results.table(stage, trial.item, columns)
        if table is None:
            written.miss(f"{stage}/{trial.item} (its table)")
        else:
            found.setdefault(trial.run.dataset, []).append((trial, table))
    return found


@in_house_style
def as_they_learn(tables: Tables) -> Figure:
    """Errors over epochs, means over replicas, of training and of validation images; tables are histories."""
    figure, axes = panels(2, 2.4, sharey=True)
    looks = {variant: cycle(product(_DASHES, colours)) for variant, colours in _COLOURS.items()}
    for trial, table in tables:
        dashes, colour = next(looks[trial.run.variant])
        means = 100 * (1 - table.groupby("epoch")[["train_accuracy", "validation_accuracy"]].mean())
        for axis, column in zip(axes, means, strict=True):
            axis.plot(means.index, means[column], color=colour, linestyle=dashes, label=trial.item)
    for axis, title in zip(axes, ("training", "validation"), strict=True):
        axis.set_title(title)
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("error (%)")
    top = axes[0].get_ylim()[1]
    axes[0].set_yscale("symlog", linthresh=_LINEAR, linscale=0.5)
    ticks = symlog_ticks(_LINEAR, top)
    axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].set_ylim(0, top)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def symlog_ticks(linear: float, largest: float, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """Ticks of an axis that is linear up to `linear` and logarithmic from there to `largest`: 0, then in each decade
    these steps.
    """
    decades = range(math.floor(math.log10(linear)), math.floor(math.log10(max(linear, largest))) + 1)
    found = [float(f"{step}e{decade}") for decade in decades for step in steps]  # exact, unlike a product
    return [0.0, *(tick for tick in found if linear <= tick <= largest)]


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
        found = {column: percent(trial.numbers, "test", column) for column in ERRORS}
        keys: list[object] = [trial.item, trial.run.variant.replace("_", " "), trained_on(trial.run)]
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
            found = {name: percent(numbers, "condition", condition, name) for name in ("new", "known", "train")}
            rows.append((keys, found, numbers))
    heads = {
        "new": ("error, new objects (%)", 1),
        "known": ("known objects (%)", 1),
        "train": ("training images (%)", 1),
    }
    caption = (
        "Networks trained with something changed in the run. New objects are the images held out, known objects other "
        "images like those trained on: both errors are of the network after its last epoch. That on training images is "
        "the mean over the last epoch, on images as they are augmented, and thus cannot be compared between conditions "
        "that augment differently. Each network counts as a seed, whether its seed or the value held out is another; "
        "seconds are the mean of these trainings. No test image is used."
    )
    head = ["run", "condition", "changed", "held out", "epochs", "seconds"]
    return measured_table("matrix-recipe", "Changes of training, on objects held out", caption, head, heads, rows)
