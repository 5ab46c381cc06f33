"""Plots of matrix capsules (document 004): errors as they learn, by condition, on novel viewpoints, under attack."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipeline.drawing.style import (
    BLUE,
    COLUMN,
    FAINT,
    GREEN,
    INK,
    PURPLE,
    SKY,
    VERMILLION,
    in_house_style,
    panels,
)
from pipeline.results.measured import Measured
from pipeline.systems.matrix_capsules.report.claims import NETWORKS, PAPER_FAMILIAR
from pipeline.systems.matrix_capsules.report.claims_of_attacks import METHODS

LOOKS = {"capsules": (BLUE, "o"), "cnn": (PURPLE, "v")}
"""Colour and marker of either network."""
_MATCHED_SIZES = {"capsules": 8, "cnn": 4}
"""Sizes of marks that may lie at the same place: the last is drawn on top and does not hide the first."""
_COLOURS = {False: (BLUE, SKY, GREEN, INK), True: (PURPLE, VERMILLION)}
"""Of several runs in one plot, by whether they are of the CNN: the first has the colour of its system."""
_DASHES = ("-", "--", ":", "-.")
KINDS = {
    "general": ("away from the class", "accuracy (%)"),
    "targeted": ("towards another class", "success (%)"),
    "black-box": ("through another CNN", "accuracy (%)"),
}
"""Title and axis of a kind of attack."""
_VIEW = 2.0
"""Errors on familiar viewpoints up to so many times those matched at are drawn: beyond, networks know nothing yet."""

_MANY_TIMES = 20
"""Where the largest epsilon is so many times the smallest, their axis is logarithmic."""

LINEAR_ERROR = 1.0
"""Percent: up to here axes of errors over epochs are linear, logarithmic from here on."""

_ALIKE = 3
"""Our errors and the paper's have one scale if the ranges of either differ by less than this factor."""


@dataclass(frozen=True)
class Dot:
    """A row of Table 1: its name, our error and the paper's, in percent."""

    name: str
    ours: Measured
    paper: float | None


@dataclass(frozen=True)
class Matched:
    """A study of viewpoints.

    Attributes:
        table: columns familiar, novel (shares) and network, a row for each epoch of a replica.
        points: by network, error on familiar and on novel viewpoints where networks are matched, in percent.
        paper: by network, the paper's error on novel viewpoints, in percent.
    """

    axis: str
    table: pd.DataFrame
    points: dict[str, tuple[Measured, Measured]]
    paper: dict[str, float]


@in_house_style
def accuracies(tables: Mapping[str, tuple[bool, pd.DataFrame]]) -> Figure:
    """Errors over epochs, means over replicas, of training and of validation images.

    Args:
        tables: by run, whether it is of the convolutional network, and its history.
    """
    figure, axes = panels(2, 2.4, sharey=True)
    looks = {is_cnn: cycle(product(_DASHES, colours)) for is_cnn, colours in _COLOURS.items()}
    for name, (is_cnn, table) in tables.items():
        dashes, colour = next(looks[is_cnn])
        means = 100 * (1 - table.groupby("epoch")[["train_accuracy", "validation_accuracy"]].mean())
        for axis, column in zip(axes, means, strict=True):
            axis.plot(means.index, means[column], color=colour, linestyle=dashes, label=name)
    for axis, title in zip(axes, ("training", "validation"), strict=True):
        axis.set_title(title)
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("error (%)")
    top = axes[0].get_ylim()[1]
    axes[0].set_yscale("symlog", linthresh=LINEAR_ERROR, linscale=0.5)
    ticks = symlog_ticks(LINEAR_ERROR, top)
    axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].set_ylim(0, top)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@in_house_style
def conditions(dots: Sequence[Dot]) -> Figure:
    """Table 1: a row for each condition; our errors at the left, the paper's at the right where it has any."""
    figure, axes = panels(2, 0.6 + 0.19 * len(dots), sharey=True)
    rows = range(len(dots))
    for row, dot in zip(rows, dots, strict=True):
        axes[0].errorbar(dot.ours.mean, row, xerr=dot.ours.sd if dot.ours.n > 1 else None, color=BLUE, marker="o")
        if dot.paper is not None:
            axes[1].plot(dot.paper, row, color=INK, marker="D", markerfacecolor="white", linestyle="")
    axes[0].set_yticks(rows, [dot.name for dot in dots])
    axes[0].set_ylim(len(dots) - 0.5, -0.5)
    rights = [1.04 * axis.get_xlim()[1] for axis in axes]  # no marker lies on the frame
    alike = max(rights) < _ALIKE * min(rights)
    for axis, title, right in zip(axes, ("ours", "the paper's"), rights, strict=True):
        axis.set_title(title)
        axis.set_xlabel("test error (%)")
        axis.set_xlim(0, max(rights) if alike else right)
    if not alike:
        axes[1].set_title("the paper's (other scale)")
    return figure


@in_house_style
def viewpoints(studies: Mapping[str, Matched]) -> Figure:
    """Error on novel viewpoints over error on familiar ones, a panel for each study."""
    figure, axes = panels(len(studies), 2.8, width=COLUMN * max(len(studies), 2) + 0.15, sharey=True)
    tops = [_viewpoint(axis, study) for axis, study in zip(axes, studies.values(), strict=True)]
    axes[0].set_ylim(0, max(tops))
    for axis, (name, study) in zip(axes, studies.items(), strict=True):
        axis.set_title(f"{study.axis} ({name})" if name != study.axis else name)
        axis.set_xlabel("error, familiar viewpoints (%)")
    axes[0].set_ylabel("error, novel viewpoints (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _viewpoint(axis: Axes, study: Matched) -> float:
    """Draw a study; return the upper end of its errors on novel viewpoints."""
    errors = 100 * study.table[["familiar", "novel"]]
    at = [familiar.mean for familiar, _ in study.points.values()] or [float(errors["familiar"].min())]
    right = min(max(_VIEW * max(at), 1.0), 100.0)
    drawn = errors[errors["familiar"] <= right]
    top = min(max([float(drawn["novel"].max()), right, *study.paper.values()]) * 1.05, 100.0)
    axis.plot([0, right], [0, right], color=FAINT, linestyle=":", linewidth=1, label="no worse on novel ones")
    for network, (colour, marker) in LOOKS.items():
        own = drawn[study.table.loc[drawn.index, "network"] == network]
        axis.plot(
            own["familiar"], own["novel"], marker, color=colour, markersize=2.2, alpha=0.45, markeredgewidth=0,
            label=f"{NETWORKS[network]}, epochs",
        )  # fmt: skip
    for network, (familiar, novel) in study.points.items():
        colour, marker = LOOKS[network]
        axis.errorbar(
            familiar.mean, novel.mean, novel.sd, familiar.sd, color=colour, marker=marker,
            markersize=_MATCHED_SIZES[network], markeredgecolor=INK, zorder=5 + list(LOOKS).index(network),
            linestyle="", label=f"{NETWORKS[network]}, matched",
        )  # fmt: skip
    for network, theirs in study.paper.items():
        colour, marker = LOOKS[network]
        axis.plot(
            PAPER_FAMILIAR[study.axis], theirs, marker, color=colour, markerfacecolor="white", markersize=6, zorder=4,
            label=f"{NETWORKS[network]}, the paper's",
        )  # fmt: skip
    axis.set_xlim(0, right)
    return top


@in_house_style
def attacks(table: pd.DataFrame, chance: float) -> Figure:
    """Figure 3: accuracy under general attacks, success of targeted ones, accuracy under black-box ones (percent).

    Args:
        table: columns network, replica, method, kind, epsilon, value (shares).
        chance: percent.
    """
    kinds = [kind for kind in KINDS if (table["kind"] == kind).any()]
    figure, axes = panels(len(kinds), 2.6, sharex=True)
    for axis, kind in zip(axes, kinds, strict=True):
        title, words = KINDS[kind]
        for network, (colour, marker) in LOOKS.items():
            for method, dashes in zip(METHODS, ("-", "--"), strict=True):
                rows = table[(table["kind"] == kind) & (table["network"] == network) & (table["method"] == method)]
                values = 100 * rows.groupby("epsilon")["value"].agg(["mean", "std"])
                axis.plot(
                    values.index, values["mean"], color=colour, marker=marker, linestyle=dashes, markersize=3.5,
                    label=f"{NETWORKS[network]}, {method}",
                )  # fmt: skip
                if values["std"].notna().all():
                    low, high = values["mean"] - values["std"], values["mean"] + values["std"]
                    axis.fill_between(values.index, low, high, color=colour, alpha=0.15, linewidth=0)
        if kind != "targeted":
            axis.axhline(chance, color=FAINT, linestyle=":", linewidth=1, label="chance")
        axis.set_title(title)
        axis.set_xlabel("epsilon")
        if linear := linear_epsilon(table["epsilon"]):
            axis.set_xscale("symlog", linthresh=linear, linscale=0.5)
            ticks = symlog_ticks(linear, table["epsilon"].max(), steps=(1,))
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
        axis.set_ylabel(words)
        axis.set_ylim(-2, 102)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, handlelength=2.8)
    return figure


def symlog_ticks(linear: float, largest: float, steps: Sequence[int] = (1, 2, 5)) -> list[float]:
    """Ticks of an axis that is linear up to `linear` and logarithmic from there to `largest`: 0, then in each decade
    these steps.
    """
    decades = range(math.floor(math.log10(linear)), math.floor(math.log10(max(linear, largest))) + 1)
    found = [float(f"{step}e{decade}") for decade in decades for step in steps]  # exact, unlike a product
    return [0.0, *(tick for tick in found if linear <= tick <= largest)]


def linear_epsilon(epsilons: pd.Series[float]) -> float:
    """The smallest epsilon above 0, up to which their axis is linear, and logarithmic from there on, if the largest is
    many times as large; else 0.
    """
    smallest = float(epsilons[epsilons > 0].min())
    return smallest if epsilons.max() > _MANY_TIMES * smallest else 0.0
