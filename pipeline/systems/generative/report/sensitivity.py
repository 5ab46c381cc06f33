"""Sensitivity to hyperparameters (document 000, appendix B)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import FAINT, WIDTH, in_house_style, panels
from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report.shared import ACCURACY, lines_of, percent, plot_accuracy

HYPERPARAMETERS = {
    "pose_sd_floor": "least sd of a part's pose",
    "pixel_sd": "sd of a pixel",
    "temperature": "temperature",
}


def sensitivities(results: Results) -> list[tuple[str, Numbers]]:
    """The hyperparameters that were varied, each with its measurements, in the order of `HYPERPARAMETERS`."""
    return [(name, numbers) for name in HYPERPARAMETERS if (numbers := results.numbers("sensitivity", name))]


def sensitivity_table(name: str, numbers: Numbers) -> pd.DataFrame:
    """One hyperparameter: columns hyperparameter, value, own (the run's value), metric, mean, sd, n (percent)."""
    rows = [
        (name, float(value), numbers.number("own"), metric, *percent(found))
        for value in sorted(numbers.names("value"), key=float)
        for metric in ("t0", "t0_A0")
        if (found := numbers.measured("value", value, metric))
    ]
    return pd.DataFrame(rows, columns=["hyperparameter", "value", "own", "metric", "mean", "sd", "n"])


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Accuracy over the values of each hyperparameter."""
    varied = sensitivities(results)
    if not varied:
        return
    run = varied[0][1].settings.sensitivity.run
    yield Drawing(
        f"sensitivity-{run}",
        "svg",
        f"Sensitivity of {run} to its hyperparameters",
        "Accuracy of the probes on clean images when one hyperparameter is changed. With the least sd of a part's "
        "pose, its initial sd and that of absent parts are scaled, and with the temperature its final value; all "
        "others are kept. The dotted line marks the run's own value; bars are one sd over seeds.",
        "Plots of accuracy over the values of each hyperparameter, one line each for t0 and for t0 and A0.",
        [record for _, numbers in varied for record in numbers.records],
        partial(accuracy_over_hyperparameters, pd.concat([sensitivity_table(*each) for each in varied])),
    )


@in_house_style
def accuracy_over_hyperparameters(table: pd.DataFrame) -> Figure:
    """Probe accuracy on clean images over each hyperparameter, one plot each; `table` from `sensitivity_table`."""
    names, kinds = table["hyperparameter"].unique(), table["metric"].unique()
    figure, axes = panels(len(names), 2.3, width=min(WIDTH, 2.25 * len(names)), sharey=True)
    for each, name in zip(axes, names, strict=True):
        chosen = table[table["hyperparameter"] == name]
        for metric in kinds:
            rows = chosen[chosen["metric"] == metric]
            plot_accuracy(each, rows["value"], rows, look(metric))
        each.axvline(float(chosen["own"].iloc[0]), color=FAINT, linewidth=0.9, linestyle=":", zorder=0)
        each.set_xscale("log")
        values = sorted(chosen["value"].unique())
        each.xaxis.set_major_locator(FixedLocator(values))
        each.xaxis.set_minor_locator(NullLocator())
        each.set_xticks(values, [f"{value:g}" for value in values])
        each.set_xlim(values[0] / 1.25, values[-1] * 1.25)
        each.set_xlabel(HYPERPARAMETERS[name])
        each.grid(False, axis="x")
    axes[0].set_ylabel(ACCURACY)
    own = Line2D([], [], color=FAINT, linewidth=0.9, linestyle=":", label="the run's own value")
    handles = [*lines_of(kinds), own]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def build(results: Results) -> list[Table]:
    """The hyperparameters in numbers."""
    heads = {"t0": ("t0 (%)", 1), "t0_A0": ("t0 and A0 (%)", 1), "pixel_error": ("pixel error", 1)}
    rows: list[Row] = []
    for name, numbers in sensitivities(results):
        study, own = numbers.settings.sensitivity, numbers.number("own")
        for value in sorted(numbers.names("value"), key=float):
            found = {column: numbers.measured("value", value, column) for column in heads}
            scaled = {each: got.scaled(100) if got and each != "pixel_error" else got for each, got in found.items()}
            mark = "yes" * (float(value) == own)
            rows.append(([study.run, study.epochs, HYPERPARAMETERS[name], float(value), mark], scaled, numbers))
    caption = (
        "The run trained for the given number of epochs with one hyperparameter changed and its schedule shortened in "
        "proportion: accuracy of the probes on clean images, squared pixel error summed over an image. The initial sd "
        "of a part's pose and the sd of absent parts are scaled with the least sd, the final temperature with the "
        "initial one. Bounds are not shown: at different sds and temperatures they belong to different densities."
    )
    keys = ["run", "epochs", "hyperparameter", "value", "the run's own"]
    return measured_table("sensitivity", "Sensitivity to hyperparameters", caption, keys, heads, rows)
