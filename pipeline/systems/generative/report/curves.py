"""Line plots: accuracy over rotation, test-time optimisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.drawing.features import Look, look
from pipeline.drawing.style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, VERMILLION, in_house_style, panels
from pipeline.systems.generative.report.runs import PAPER_SEEDS

BOUND = "bound (nats per image)"
ACCURACY = "accuracy (%)"
TESTS = "range of rotation of the test images, or affine warps"
PROTOCOLS = {"refit": "probe refit on equally warped images", "fixed": "probe fit on clean images only"}
RING = 7.5
"""Size of an open (unfilled) marker, in points."""
CHANCE = Line2D([], [], color=FAINT, linestyle=":", linewidth=0.8, label="chance")


ENGINE_LOOKS: tuple[tuple[str, str], ...] = ((BLUE, "o"), (GREEN, "^"), (VERMILLION, "s"), (PURPLE, "D"), (ORANGE, "v"))
_ENGINES = {"gauss-newton": "Gauss-Newton", "l-bfgs": "L-BFGS", "adam": "Adam"}


def name_of_engine(engine: str) -> str:
    """The proper name of an optimiser of test-time inference; one that has none is called by its key."""
    return _ENGINES.get(engine, engine)


@in_house_style
def optimisation_curves(table: pd.DataFrame) -> Figure:
    """The bound over gradient evaluations and over seconds, for the narrowest and the widest range of rotation, with a
    colour and marker per engine.

    Args:
        table: columns replica, engine, angle (degrees), round, evaluations, seconds, bound; means over images.
    """
    angles = sorted({table["angle"].min(), table["angle"].max()})
    engines = list(dict.fromkeys(table["engine"]))
    dashes: list[Any] = ["-", (0, (4, 1.5))]
    figure, axes = panels(2, 2.6, sharey=True)
    for engine, (colour, marker) in zip(engines, cycle(ENGINE_LOOKS), strict=False):
        for angle, dash in zip(angles, dashes, strict=False):
            chosen = table[(table["engine"] == engine) & (table["angle"] == angle) & (table["round"] > 0)]
            means = mean_over_replicas(chosen)
            for each, x in zip(axes, ("evaluations", "seconds"), strict=True):
                each.plot(
                    means[x], means["bound"], color=colour, linestyle=dash, marker=marker, markersize=3, linewidth=1.2
                )
    axes[0].set(xscale="log", xlabel="gradient evaluations per image", ylabel=BOUND)
    axes[1].set(xscale="log", xlabel="seconds for all images")
    axes[0].set_ylim(*range_of_bounds(table))
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=3, label=name_of_engine(engine))
        for engine, (colour, marker) in zip(engines, cycle(ENGINE_LOOKS), strict=False)
    ]
    handles += [
        Line2D([], [], color=INK, linestyle=dash, label="upright" if angle == 0 else f"within ±{angle:g}°")
        for angle, dash in zip(angles, dashes, strict=False)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=min(6, len(handles)), columnspacing=1.2)
    return figure


def range_of_bounds(table: pd.DataFrame) -> tuple[float, float]:
    """What the axis of bounds shows: from about the encoder's output to a little above the highest end."""
    last = table.groupby(["replica", "engine", "angle"])["bound"].last()
    start = table[table["round"] == 0]["bound"]
    low = start.mean() if len(start) else last.min()
    return low - 0.02 * (last.max() - low), last.max() + 0.05 * (last.max() - low)


def mean_over_replicas(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean evaluations, seconds and bound of all replicas at every round; one that has ended counts with its last row.

    Args:
        rows: of one engine and angle, columns as in `optimisation_curves`.
    """
    measured = ["evaluations", "seconds", "bound"]
    of_each = rows.pivot_table(index="round", columns="replica", values=measured, aggfunc="last").ffill()
    return pd.DataFrame({each: of_each.loc[:, [each]].mean(axis=1) for each in measured})


def _legend_columns(entries: int, most: int) -> int:
    """Columns of a legend: one row if there are at most `most` entries, else rows of about the same length."""
    return math.ceil(entries / math.ceil(entries / most))


def _accuracy_axis(axes: Axes, chance: float) -> None:
    axes.set_ylim(0, 102)
    axes.set_yticks(range(0, 101, 20))
    axes.axhline(chance, color=FAINT, linewidth=0.8, linestyle=":")


def _ranges(axes: Axes, angles: Sequence[float], positions: Sequence[float]) -> None:
    axes.set_xticks(positions, [name_of_test(f"rotated_{angle:g}") for angle in angles])


@in_house_style
def accuracy_over_rotation(table: pd.DataFrame, paper: pd.DataFrame, chance: float) -> Figure:
    """Probe accuracy by test set, with the paper's numbers. Left: probe refit on equally warped images; right: fixed.

    Args:
        table: columns features, protocol ("refit" or "fixed"), test ("rotated_<degrees>" or "affine"), mean, sd, n:
            percent over n seeds.
        paper: columns features, test, mean, sd: percent; Table 1 of document 000.
        chance: accuracy of a guess, in percent.
    """
    tests = in_order([*table["test"], *paper["test"]])
    angles = [test for test in tests if test != "affine"]
    position = {test: float(i) for i, test in enumerate(angles)} | {"affine": len(angles) + 0.25}
    kinds = list(dict.fromkeys(table["features"]))
    figure, axes = panels(2, 2.75, sharey=True)
    for each, (protocol, title) in zip(axes, PROTOCOLS.items(), strict=True):
        for i, features in enumerate(kinds):
            style, shift = look(features), 0.16 * (i - (len(kinds) - 1) / 2)
            ours = table[(table["features"] == features) & (table["protocol"] == protocol)]
            _with_intervals(each, ours, position, shift, style, filled=True)
            theirs = paper[paper["features"] == features].assign(n=PAPER_SEEDS)
            _with_intervals(each, theirs, position, shift, style, filled=False)
        _accuracy_axis(each, chance)
        each.set_title(title)
        each.set_xticks(
            list(position.values()),
            [name_of_test(test) for test in position],
        )
        each.set_xlim(-0.4, position["affine"] + 0.45)
        each.set_xlabel(TESTS)
        each.grid(False, axis="x")
    axes[0].set_ylabel(ACCURACY)
    handles = [
        Line2D([], [], color=look(kind).colour, marker=look(kind).marker, label=f"{look(kind).label}, ours")
        for kind in kinds
    ]
    if not paper.empty:
        ring: Any = {"marker": "o", "markersize": RING, "markeredgewidth": 0.9, "markerfacecolor": "none"}
        handles.append(Line2D([], [], color=INK, linestyle="none", label="open: the paper, MNIST", **ring))
    handles.append(CHANCE)
    ncols = _legend_columns(len(handles), 5)
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, columnspacing=1.2, handletextpad=0.5)
    return figure


def in_order(tests: Sequence[str]) -> list[str]:
    """Test names without repetitions: rotations sorted by angle, then the others."""
    names = dict.fromkeys(tests)
    turned = sorted((name for name in names if name.startswith("rotated_")), key=lambda name: float(name[8:]))
    return [*turned, *(name for name in names if not name.startswith("rotated_"))]


def name_of_test(test: str) -> str:
    """The readable name of a test set: "0°", "±45°", "affine"."""
    if not test.startswith("rotated_"):
        return test
    angle = float(test.removeprefix("rotated_"))
    return f"{'±' * (angle != 0)}{angle:g}°"


def _with_intervals(
    axes: Axes,
    table: pd.DataFrame,
    position: dict[str, float],
    shift: float,
    style: Look,
    *,
    filled: bool,
) -> None:
    """Plot means with their sds; rotations are joined by a line, the affine test is not.

    Open markers are larger than filled ones, so that both are visible when they overlap.
    """
    for turned in (True, False):
        chosen = table[(table["test"] != "affine") == turned]
        if chosen.empty:
            continue
        chosen = chosen.assign(x=chosen["test"].map(position)).sort_values("x")
        axes.errorbar(
            chosen["x"] + shift,
            chosen["mean"],
            yerr=chosen["sd"].where(chosen["n"] > 1),
            color=style.colour,
            marker=style.marker,
            markersize=4 if filled else RING,
            markeredgewidth=0.9,
            markerfacecolor=style.colour if filled else "none",
            linestyle="-" if turned and filled else "none",
            linewidth=1.2,
            elinewidth=0.8,
            zorder=3 if filled else 4,
        )


@in_house_style
def accuracy_over_training_range(table: pd.DataFrame, chance: float) -> Figure:
    """Probe accuracy after training and testing on rotations up to an angle, as in the paper's Figure 4.

    Args:
        table: columns features, angle (degrees), mean, sd, n: percent over n seeds.
        chance: accuracy of a guess, in percent.
    """
    angles = sorted(table["angle"].unique())
    figure, (axes,) = panels(1, 2.5, width=4.4)
    kinds = list(dict.fromkeys(table["features"]))
    for i, features in enumerate(kinds):
        style, shift = look(features), 2.0 * (i - (len(kinds) - 1) / 2)
        chosen = table[table["features"] == features].sort_values("angle")
        axes.errorbar(
            chosen["angle"] + shift,
            chosen["mean"],
            yerr=chosen["sd"].where(chosen["n"] > 1),
            color=style.colour,
            marker=style.marker,
            linewidth=1.2,
            elinewidth=0.8,
        )
    _accuracy_axis(axes, chance)
    _ranges(axes, angles, angles)
    axes.set(xlabel="trained and tested on images rotated within", ylabel=ACCURACY)
    axes.grid(False, axis="x")
    looks = [look(kind) for kind in kinds]
    handles = [Line2D([], [], color=each.colour, marker=each.marker, label=each.label) for each in looks]
    ncols = _legend_columns(len(kinds) + 1, 4)
    figure.legend(handles=[*handles, CHANCE], loc="outside upper center", ncols=ncols, columnspacing=1.2)
    return figure
