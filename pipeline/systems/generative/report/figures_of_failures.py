"""Figures of the failure analysis (document 000, section 5.4) and of the sensitivity study (appendix B)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import BLUE, FAINT, INK, WIDTH, in_house_style, panels
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report.claims_of_failures import deviations
from pipeline.systems.generative.report.comparison import evaluated
from pipeline.systems.generative.report.curves import ACCURACY
from pipeline.systems.generative.report.runs import sweeps

LAYERS = {"parts": "parts", "objects": "objects"}
HYPERPARAMETERS = {
    "pose_sd_floor": "least sd of a part's pose",
    "pixel_sd": "sd of a pixel",
    "temperature": "temperature",
}
_COPIES = ("parts", "correlation", "pair_parts", "pair_correlation", "pair_first", "pair_second", "pair_aligned")


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """As `figures.draw`. Runs whose results have no failure analysis are skipped."""
    for run, numbers in evaluated(results).items():
        yield from _evaluated(run, numbers, results, written)
    yield from _part_use(results, written)
    yield from _sensitivity(results)


def _evaluated(run: str, numbers: Numbers, results: Results, written: Written) -> Iterator[Drawing]:
    if numbers.names("equivariance"):
        yield Drawing(
            f"equivariance-{run}",
            "svg",
            f"Do poses rotate with the image? {run}",
            "Poses that rotate exactly with the image have a deviation of zero; poses that do not rotate at all lie on "
            "the dashed line (the paper's Figure 5 in numbers). The band contains the middle half of the images.",
            "Two line plots over the rotation angle of the input, for parts and for objects: the deviation of poses "
            "from the rotated poses, and the deviation of poses that do not rotate.",
            numbers.records,
            partial(poses_over_rotation, equivariance_table(numbers)),
        )
    if numbers.names("templates"):
        arrays = results.examples("evaluate", run, _COPIES)
        if arrays is None:
            written.miss(f"evaluate/{run} (its examples)")
        elif len(arrays["parts"]) > 1:
            yield Drawing(
                f"copies-{run}",
                "png",
                f"Templates that are affine copies of each other, {run}",
                "Left: correlation of each pair of templates under the best affine map; pairs above the white mark on "
                "the scale count as copies. Right: similar pairs, the best first, each part in one pair at most; if "
                "the mapped second template looks like the first, two parts can draw the same stroke (as in the "
                "paper's Figure 6). Only parts that are used are shown.",
                f"A heat map of best correlations between {len(arrays['parts'])} templates, and similar "
                "pairs of templates with the second mapped onto the first.",
                numbers.records,
                partial(template_copies, arrays, numbers.settings.failures.threshold),
            )


def _part_use(results: Results, written: Written) -> Iterator[Drawing]:
    for sweep in sweeps(results):
        found = []
        for angle, consistency in sweep.measured("consistency").items():
            item = sweep.items[angle].path.stem
            arrays = results.examples("sweep", item, ("images", "arrangements"))
            if arrays is None:
                written.miss(f"sweep/{item} (its examples)")
            else:
                found.append((angle, consistency, arrays))
        if len(found) < 2:
            continue
        rows = [("digits", found[0][2]["images"])]
        for angle, consistency, arrays in (found[0], found[-1]):
            trained = f"{'±' * (angle != 0)}{angle:g}°"
            rows.append((f"{trained}\n{consistency.mean:.2f}", arrays["arrangements"]))
        yield Drawing(
            f"part-use-{sweep.run}",
            "png",
            f"Part use on narrow and wide rotations, {sweep.run}",
            "Trained and tested on narrow rotations, the same part draws the same stroke of every digit; on wide "
            "rotations, different parts draw it (the paper's Figure 7). The number below each range is the "
            "consistency: 1 if it is always the same part, 0 for chance. Whether the training or the test makes the "
            "difference is seen from a model that was not trained on wide rotations (table of part use).",
            "Digits of one class; below them how models trained on narrow and on wide rotations draw them, one colour "
            "per part, rotated back upright.",
            [record for each in (found[0], found[-1]) for record in sweep.items[each[0]].records],
            partial(pictures.image_rows, rows),
        )


def _sensitivity(results: Results) -> Iterator[Drawing]:
    studies: dict[str, dict[str, Numbers]] = {}
    for name, numbers in sensitivities(results):
        studies.setdefault(numbers.settings.sensitivity.run, {})[name] = numbers
    for run, by_name in studies.items():
        tables = [sensitivity_table(numbers, name) for name, numbers in by_name.items()]
        yield Drawing(
            f"sensitivity-{run}",
            "svg",
            f"Sensitivity of {run} to its hyperparameters",
            "Accuracy of the probes on clean images when one hyperparameter is changed. With the least sd of a part's "
            "pose, its initial sd and that of absent parts are scaled, and with the temperature its final value; all "
            "others are kept. The dotted line marks the run's own value; bars are one sd over seeds.",
            "Plots of accuracy over the values of each hyperparameter, one line each for t0 and for t0 and A0.",
            [record for numbers in by_name.values() for record in numbers.records],
            partial(accuracy_over_hyperparameters, pd.concat(tables, ignore_index=True)),
        )


def sensitivities(results: Results) -> list[tuple[str, Numbers]]:
    """The hyperparameters that were varied, each with its measurements, in the order of `HYPERPARAMETERS`."""
    order = list(HYPERPARAMETERS)
    return sorted(
        results.executed("sensitivity"), key=lambda each: order.index(each[0]) if each[0] in order else len(order)
    )


def equivariance_table(numbers: Numbers) -> pd.DataFrame:
    """Means over replicas: columns layer, angle, deviation, low, high, unfollowed."""
    rows = []
    for layer in numbers.names("equivariance"):
        columns = {name: deviations(numbers, layer, name) for name in ("deviation", "low", "high", "unfollowed")}
        rows += [(layer, angle, *(column[angle].mean for column in columns.values())) for angle in columns["deviation"]]
    return pd.DataFrame(rows, columns=["layer", "angle", "deviation", "low", "high", "unfollowed"])


def sensitivity_table(numbers: Numbers, name: str) -> pd.DataFrame:
    """One hyperparameter: columns hyperparameter, value, own (the run's value), metric, mean, sd, n; by value."""
    rows = []
    own = numbers.number("own")
    for value in sorted(numbers.names("value"), key=float):
        for metric in numbers.names("value", value):
            found = numbers.measured("value", value, metric)
            if found is not None:
                rows.append((name, float(value), own, metric, found.mean, found.sd, found.n))
    return pd.DataFrame(rows, columns=["hyperparameter", "value", "own", "metric", "mean", "sd", "n"])


@in_house_style
def poses_over_rotation(table: pd.DataFrame) -> Figure:
    """Deviation of poses from the rotated poses over the rotation angle of the input.

    Args:
        table: from `equivariance_table`.
    """
    figure, axes = panels(2, 2.3)
    for each, layer in zip(axes, LAYERS, strict=True):
        rows = table[table["layer"] == layer].sort_values("angle")
        # At angle 0 all deviations are 0.
        angle, low, high, deviation, unfollowed = (
            np.concatenate([[0.0], rows[name]]) for name in ("angle", "low", "high", "deviation", "unfollowed")
        )
        each.fill_between(angle, low, high, color=BLUE, alpha=0.2, linewidth=0)
        each.plot(angle, deviation, color=BLUE, marker="o")
        each.plot(angle, unfollowed, color=INK, linestyle="--", linewidth=1.0)
        each.set_title(LAYERS[layer])
        each.set_ylim(0, None)
        each.set_xticks(angle, [f"{value:g}°" for value in angle])
        each.set_xlabel("rotation of the input")
    axes[0].set_ylabel("deviation (image half widths)")
    handles: list[Any] = [
        Line2D([], [], color=BLUE, marker="o", label="measured"),
        Patch(color=BLUE, alpha=0.2, linewidth=0, label="middle half of the images"),
        Line2D([], [], color=INK, linestyle="--", linewidth=1.0, label="poses that do not rotate"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


@in_house_style
def template_copies(arrays: dict[str, np.ndarray], threshold: float) -> Figure:
    """The best correlation of every pair, and the similar pairs with the second mapped onto the first.

    Args:
        arrays: of `evaluation.templates.template_copies`; pairs have each part once, so the last need not be similar.
        threshold: two templates with at least this correlation count as copies; marked on the scale.
    """
    numbers = [int(part) + 1 for part in arrays["parts"]]
    pairs = max(1, int((arrays["pair_correlation"] >= threshold).sum()))
    figure = Figure(figsize=(WIDTH, 2.75))
    # Each half has its own layout: in a common one the heat map's labels are cut off when the pairs need less height.
    matrix, gallery = figure.subfigures(1, 2, squeeze=False, width_ratios=[1, 1.2])[0]
    left, right = matrix.subplots(), gallery.subplots()
    correlation = np.where(np.eye(len(numbers), dtype=bool), np.nan, arrays["correlation"])
    # The twentieth below all, so that the mark lies on the scale.
    lowest = (np.ceil(20 * min(threshold, np.nanmin(correlation)) - 1e-9) - 1) / 20
    shown = left.imshow(correlation, cmap="cividis", vmin=lowest, vmax=1)
    step = 1 + (len(numbers) - 1) // 12
    places = list(range(0, len(numbers), step))
    for axis in (left.xaxis, left.yaxis):
        axis.set_ticks(places, [str(numbers[place]) for place in places], fontsize=7)
    left.tick_params(length=0)
    left.set(xlabel="part", ylabel="part")
    left.set_title("best correlation")
    left.grid(False)
    bar = matrix.colorbar(shown, ax=left, shrink=0.85)
    bar.ax.axhline(threshold, color="white", linewidth=1.5)
    bar.outline.set_visible(False)

    rows = [arrays[f"pair_{name}"][:pairs] for name in ("first", "second", "aligned")]
    right.imshow(pictures.mosaic(rows, gap=1), interpolation="nearest")
    side = rows[0].shape[-1] + 1
    centre = (side - 1) / 2 - 0.5
    names = [
        f"{a + 1:g}, {b + 1:g}\n{value:.2f}"
        for (a, b), value in zip(arrays["pair_parts"][:pairs], arrays["pair_correlation"][:pairs], strict=True)
    ]
    right.set_xticks([centre + side * place for place in range(pairs)], names, fontsize=7)
    right.set_yticks([centre + side * place for place in range(3)], ["first", "second", "mapped"])
    right.tick_params(length=0)
    right.spines[:].set_visible(False)
    right.set_title("similar pairs, each part once")
    right.grid(False)
    return figure


@in_house_style
def accuracy_over_hyperparameters(table: pd.DataFrame) -> Figure:
    """Probe accuracy on clean images over each hyperparameter, one plot each.

    Args:
        table: from `sensitivity_table`, of all hyperparameters.
    """
    names = list(dict.fromkeys(table["hyperparameter"]))
    figure, axes = panels(len(names), 2.3, width=min(WIDTH, 2.25 * len(names)), sharey=True)
    kinds = [metric for metric in dict.fromkeys(table["metric"]) if metric != "pixel_error"]
    for each, name in zip(axes, names, strict=True):
        chosen = table[table["hyperparameter"] == name]
        for metric in kinds:
            rows, style = chosen[chosen["metric"] == metric], look(metric)
            each.errorbar(
                rows["value"],
                100 * rows["mean"],
                yerr=(100 * rows["sd"]).where(rows["n"] > 1),
                color=style.colour,
                marker=style.marker,
                linewidth=1.2,
                elinewidth=0.8,
            )
        each.axvline(float(chosen["own"].iloc[0]), color=FAINT, linewidth=0.9, linestyle=":", zorder=0)
        each.set_xscale("log")
        values = sorted(chosen["value"].unique())
        each.xaxis.set_major_locator(FixedLocator(values))
        each.xaxis.set_minor_locator(NullLocator())
        each.set_xticks(values, [f"{value:g}" for value in values])
        each.set_xlim(values[0] / 1.25, values[-1] * 1.25)
        each.set_xlabel(HYPERPARAMETERS.get(name, name))
        each.grid(False, axis="x")
    axes[0].set_ylabel(ACCURACY)
    handles = [
        Line2D([], [], color=look(kind).colour, marker=look(kind).marker, label=look(kind).label) for kind in kinds
    ]
    handles.append(Line2D([], [], color=FAINT, linewidth=0.9, linestyle=":", label="the run's own value"))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure
