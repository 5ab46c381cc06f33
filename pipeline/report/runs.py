"""Figures and tables of every run, of any system: learning curves, unsupervised clusters, training times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import FAINT, TRAIN, VALIDATION, in_house_style, panels
from pipeline.drawing.table import Row, Table, measured_table, spread, tracked
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Recorded, Results
from pipeline.results.stalled import stalled
from pipeline.systems import CLASSIFIERS, SYSTEMS

OBJECTIVES = {"bound": "bound (nats per image)", "loss": "loss (nats per image)"}
"""The axis label of the training objective, by the name of its metric; "loss" if the model has no bound."""
PIXEL_ERROR = "pixel error (per image)"
_START, _LONG_START, _STEEP = 0.05, 0.3, 4
"""Shares of the epochs that an axis leaves out: a start, and a long one if its values span so many times the rest's."""


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """The learning curves of every run that learned without labels.

    Args:
        written: collects the names of items whose tables are missing.

    Raises:
        ResultError: a result file is corrupt; it is named.
    """
    for run, numbers in results.executed("train"):
        if numbers.run(run).variant in CLASSIFIERS:
            continue
        objective = "bound" if "bound" in numbers.names("validation") else "loss"
        metrics = (objective, "pixel_error")
        columns = ("replica", "epoch", *(f"{part}_{metric}" for metric in metrics for part in ("train", "validation")))
        table = results.table("train", run, columns)
        if table is None:
            written.miss(f"train/{run} (its table)")
            continue
        bounded = objective == "bound"
        aim = "The bound should rise and the pixel error fall" if bounded else "Loss and pixel error should fall"
        bands = "; bands on the page are one sd over seeds" if len(table["replica"].unique()) > 1 else ""
        yield Drawing(
            f"learning-{run}",
            "svg",
            f"Learning curves of {run}",
            f"{aim} until both level off, with validation close to training. The vertical axis leaves out the steep "
            f"start, which would flatten the rest{bands}.{_jump(numbers.run(run))}",
            f"Two line plots over epochs: {objective} and pixel error of {run}, training and validation, one line per "
            "seed.",
            numbers.records,
            partial(learning_curves, table, objective),
            document=SYSTEMS[str(numbers.run(run).variant)].document,
        )


def _jump(run: Recorded) -> str:
    """A sentence on the epoch after which the bound jumps; empty for runs without one."""
    if run.variant != "generative" or run.model.seeding is None or run.model.seeding_epoch >= run.training.epochs:
        return ""
    return f" After epoch {run.model.seeding_epoch} the bound jumps, because objects are started from the parts."


def build(results: Results) -> list[Table]:
    """The tables of every run. Raises `ResultError` if a result file is corrupt."""
    return [*clusters(results), *training(results)]


def _thin_and_mean(axes: Axes, table: pd.DataFrame, x: str, y: str, colour: str, dashes: Any = "-") -> None:
    """Plot each replica of `table` as a thin line, and their mean as a thick one, up to the end of the shortest."""
    lines = table.pivot_table(index=x, columns="replica", values=y)
    if lines.shape[1] > 1:
        for replica in lines:
            axes.plot(lines.index, lines[replica], color=colour, linewidth=0.6, alpha=0.55, linestyle=dashes)
    common = lines.dropna()
    axes.plot(common.index, common.mean(axis=1), color=colour, linestyle=dashes)


def _limits(table: pd.DataFrame, x: str, columns: Sequence[str]) -> tuple[float, float]:
    """Limits of `y`: the values after the start, which are far from the rest and would flatten it."""
    (low, high), (low_later, high_later) = (_range(table, x, columns, share) for share in (_START, _LONG_START))
    if high - low > _STEEP * (high_later - low_later):
        low, high = low_later, high_later
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def _range(table: pd.DataFrame, x: str, columns: Sequence[str], share: float) -> tuple[float, float]:
    """The least and the greatest value after the first `share` of `x`."""
    later = table[table[x] >= table[x].min() + share * (table[x].max() - table[x].min())]
    values = later[list(columns)].to_numpy(dtype=float)
    return float(np.nanmin(values)), float(np.nanmax(values))


@in_house_style
def learning_curves(table: pd.DataFrame, objective: str) -> Figure:
    """The bound, or the loss of a model without one, and the pixel error over epochs.

    Args:
        table: columns replica, epoch, {train,validation}_<objective> and {train,validation}_pixel_error, one row per
            replica and epoch.
        objective: "bound" or "loss".
    """
    figure, (left, right) = panels(2, 2.3)
    labels = {objective: OBJECTIVES[objective], "pixel_error": PIXEL_ERROR}
    for axes, (metric, label) in zip((left, right), labels.items(), strict=True):
        columns = [f"train_{metric}", f"validation_{metric}"]
        _thin_and_mean(axes, table, "epoch", columns[0], TRAIN)
        _thin_and_mean(axes, table, "epoch", columns[1], VALIDATION, "--")
        axes.set_ylim(*_limits(table, "epoch", columns))
        axes.set(xlabel="epoch", ylabel=label)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = [
        Line2D([], [], color=TRAIN, label="training"),
        Line2D([], [], color=VALIDATION, linestyle="--", label="validation"),
    ]
    if len(table["replica"].unique()) > 1:
        handles.append(Line2D([], [], color=FAINT, linewidth=0.6, label="one seed each (thick: mean)"))
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def clusters(results: Results) -> list[Table]:
    """Unsupervised classification: k-means clustering of the test images' features."""
    rows: list[Row] = []
    for run, numbers in results.executed("evaluate"):
        if numbers.run(run).variant in CLASSIFIERS:
            continue
        for features in numbers.names("kmeans"):
            accuracy = numbers.measured("kmeans", features)
            rows.append(([run, look(features).name], {"accuracy": accuracy.scaled(100) if accuracy else None}, numbers))
    caption = (
        "k-means with as many clusters as classes on the features of the clean test images, without labels. Accuracy "
        "(%) under the best one-to-one matching of clusters to classes."
    )
    heads = {"accuracy": ("accuracy (%)", 1)}
    return measured_table("clusters", "Clusters without labels", caption, ["run", "features"], heads, rows)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def training(results: Results) -> list[Table]:
    """Time, speed and final validation numbers of each training run, and a note on those that stopped learning."""
    rows, shown, records, notes = [], [], [], []
    for run, numbers in results.executed("train"):
        records += numbers.records
        device = ", ".join(dict.fromkeys(str(each.get("device", "")) for each in numbers.records))
        row: dict[str, object] = {
            "run": run,
            "variant": numbers.run(run).variant,
            "dataset": dataset_label(numbers.records),
        }
        measured = {
            "epochs": numbers.measured("epochs"),
            "images_per_second": numbers.measured("images_per_second"),
            "validation_bound": numbers.measured("validation", "bound"),
            "validation_pixel_error": numbers.measured("validation", "pixel_error"),
        }
        for name, found in measured.items():
            row[name], row[f"{name}_sd"] = (found.mean, found.sd) if found else (None, None)
        seeds = max((found.n for found in measured.values() if found), default=0)
        plain = {
            "seconds": numbers.number("seconds"),
            "parameters_generative": _whole(numbers.number("parameters", "generative")),
            "parameters_total": _whole(numbers.number("parameters", "total")),
        }
        row |= plain | {"n": seeds, "device": device, "tracking_run": tracked(numbers.records)}
        rows.append(row)
        history = results.table("train", run, ("replica", "epoch", "train_gradient_norm"))
        notes.append("" if history is None else stalled(history, numbers.run(run)))
        text = {name: spread(found.mean, found.sd, found.n) if found else "" for name, found in measured.items()}
        epochs = measured["epochs"]
        whole = epochs is not None and epochs.sd == 0  # no replica stopped early
        shown.append(
            [
                run,
                row["dataset"],
                device,
                str(seeds),
                f"{epochs.mean:,.0f}" if epochs and whole else text["epochs"],
                *("" if value is None else f"{value:,.0f}" for value in plain.values()),
                text["images_per_second"],
                text["validation_bound"],
                text["validation_pixel_error"],
            ]
        )
    if not rows:
        return []
    head = ["run", "data", "device", "seeds", "epochs", "seconds", "generative parameters", "all parameters"]
    head += ["images/s", "validation bound", "validation pixel error"]
    people = pd.DataFrame(shown, columns=head)
    if any(notes):
        people["note"] = notes
    caption = (
        "Each training run: wall-clock seconds for all seeds together, training images per second, bound in nats per "
        "image, and squared pixel error summed over an image (mean ± sd over seeds)."
    )
    return [Table("training", "Training runs", caption, pd.DataFrame(rows), people, records)]
