"""Table 2 of document 004: errors on novel viewpoints of two networks with equal errors on familiar ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import COLUMN, FAINT, INK, in_house_style, panels
from pipeline.drawing.table import Row, Table, cells, measured_table
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import Record, dataset_label
from pipeline.results.reading import Numbers, Results
from pipeline.systems.matrix_capsules.report.runs import (
    LOOKS,
    NETWORKS,
    PAPER_DATASET,
    in_percent,
    paper_values,
    percent,
    trained_on,
)

CLAIMS = {
    "004.t2.az.caps": ("azimuth", "capsules"),
    "004.t2.az.cnn": ("azimuth", "cnn"),
    "004.t2.el.caps": ("elevation", "capsules"),
    "004.t2.el.cnn": ("elevation", "cnn"),
}
"""By claim, the axis and the network."""
FAMILIAR_SHARE = 1 / 3
"""About the share of smallNORB's images whose viewpoints count as familiar."""
PAPER_FAMILIAR = {"azimuth": 3.7, "elevation": 4.3}
"""Percent: error on familiar viewpoints at which the paper compares its networks."""
PAPER_NOVEL_RATIO = {"azimuth": 13.5 / 20, "elevation": 12.3 / 17.8}
"""Error of capsules in parts of the convolutional network's, both on novel viewpoints."""
_MATCHED_SIZES = {"capsules": 8, "cnn": 4}
"""Sizes of marks that may lie at the same place: the last is drawn on top and does not hide the first."""
_VIEW = 2.0
"""Errors on familiar viewpoints up to so many times those matched at are drawn: beyond, networks know nothing yet."""


def papers_novel(axis: str) -> dict[str, float]:
    """The paper's errors (percent) on novel viewpoints, by network."""
    return {network: paper_values()[claim] for claim, (of_axis, network) in CLAIMS.items() if of_axis == axis}


# ---- claims


def _novel(axis: str, network: str) -> Measure:
    """Error on novel viewpoints where both networks are alike on familiar ones.

    There is no answer where they are not: where their errors on familiar viewpoints differ by more than two standard
    errors.
    """

    def measure(results: Results) -> Finding | None:
        answering = results.answering("viewpoint", results.evidence.matrix_capsules.viewpoint.get(axis))
        if answering is None:
            return None
        item, numbers = answering
        novel = numbers.measured("matched", network, "novel")
        if novel is None or not _alike(numbers):
            return None
        run, document = numbers.trained[network], "viewpoint" if network == "capsules" else "viewpoint_cnn"
        dataset = numbers.settings.datasets[numbers.settings.viewpoint[item].dataset]
        return Finding(
            novel.scaled(100),
            dataset_label(numbers.records),
            numbers.records,
            remarks=remarks("matrix_capsules", document, run, dataset, share=FAMILIAR_SHARE),
            notes=_matching(numbers, axis, network, run.training.epochs),
        )

    return measure


def _alike(numbers: Numbers) -> bool:
    """Whether the errors of both networks on familiar viewpoints differ by two standard errors at most (binomial, of
    the test images, and over replicas).
    """
    images = numbers.number("images", "familiar")
    capsules, cnn = (numbers.measured("matched", each, "familiar") for each in NETWORKS)
    if images is None or capsules is None or cnn is None:
        return False
    variance = capsules.variance_of_share(images) + cnn.variance_of_share(images)
    return abs(capsules.mean - cnn.mean) <= SIGNIFICANT_SES * math.sqrt(variance)


def _matching(numbers: Numbers, axis: str, network: str, epochs: int) -> list[str]:
    """What both networks were matched at, and their errors at the end."""
    capsules, cnn = (numbers.measured("matched", each, "familiar") for each in NETWORKS)
    at, ratio = numbers.number("matched", network, "epoch", "mean"), numbers.measured("novel_ratio")
    familiar, novel = (numbers.measured("late", network, where) for where in ("familiar", "novel"))
    notes = []
    if capsules and cnn and at is not None:
        notes.append(
            f"matched on familiar viewpoints: capsules {in_percent(capsules)} and CNN {in_percent(cnn)} "
            f"(paper: {PAPER_FAMILIAR[axis]} %), after {at:.0f} of {epochs} epochs"
        )
    if ratio:
        there = PAPER_NOVEL_RATIO[axis]
        notes.append(f"errors of capsules on novel viewpoints: {ratio.mean:.2f} times the CNN's (paper: {there:.2f})")
    if familiar and novel:
        notes.append(
            f"over its last epochs: {in_percent(familiar)} on familiar viewpoints, {in_percent(novel)} on novel ones"
        )
    return notes


MEASURES: dict[str, Measure] = {claim: _novel(*which) for claim, which in CLAIMS.items()}


# ---- the figure


class Panel(NamedTuple):
    """A study as it is drawn.

    Attributes:
        table: columns familiar, novel (shares) and network, a row for each epoch of a replica.
        points: by network, error on familiar and on novel viewpoints where networks are matched, in percent.
    """

    axis: str
    table: pd.DataFrame
    points: dict[str, tuple[Measured, Measured]]


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """A figure of all studies on a data set."""
    by_dataset: dict[str, dict[str, Panel]] = {}
    records: dict[str, list[Record]] = {}
    for item, numbers in results.executed("viewpoint"):
        study = numbers.settings.viewpoint[item]
        table = written.table(results, "viewpoint", item, ("replica", "epoch", "familiar", "novel", "network"))
        if table is None:
            continue
        points = {}
        for network in numbers.names("matched"):
            familiar, novel = (percent(numbers, "matched", network, where) for where in ("familiar", "novel"))
            if familiar and novel:
                points[network] = (familiar, novel)
        by_dataset.setdefault(study.dataset, {})[item] = Panel(study.axis, table, points)
        records.setdefault(study.dataset, []).extend(numbers.records)
    for dataset, of_dataset in by_dataset.items():
        yield Drawing(
            f"matrix-viewpoints-{dataset}",
            "svg",
            f"Errors on novel viewpoints against those on familiar ones, {dataset}",
            "Which network has the lower error on novel viewpoints, if both have the same error on familiar ones? A "
            "dot is an epoch of a seed. Large marks: the worse of the two by means over its last ten epochs, and "
            "the other where its error on familiar viewpoints first falls to as much, which may be early in training "
            f"(means over seeds; bars: one sd). Open marks: the paper's on {PAPER_DATASET} (Table 2 of document 004).",
            "Scatter plots of error on novel viewpoints over error on familiar ones, a panel for each axis, both "
            "networks in each.",
            records[dataset],
            partial(novel_over_familiar, of_dataset),
        )


@in_house_style
def novel_over_familiar(studies: Mapping[str, Panel]) -> Figure:
    """Error on novel viewpoints over error on familiar ones, a panel for each study."""
    figure, axes = panels(len(studies), 2.8, width=COLUMN * max(len(studies), 2) + 0.15, sharey=True)
    tops = [_draw_panel(axis, study) for axis, study in zip(axes, studies.values(), strict=True)]
    axes[0].set_ylim(0, max(tops))
    for axis, (name, study) in zip(axes, studies.items(), strict=True):
        axis.set_title(f"{study.axis} ({name})" if name != study.axis else name)
        axis.set_xlabel("error, familiar viewpoints (%)")
    axes[0].set_ylabel("error, novel viewpoints (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def _draw_panel(axis: Axes, study: Panel) -> float:
    """Draw a study; return the upper end of its errors on novel viewpoints."""
    paper = papers_novel(study.axis)
    errors = 100 * study.table[["familiar", "novel"]]
    at = [familiar.mean for familiar, _ in study.points.values()] or [float(errors["familiar"].min())]
    right = min(max(_VIEW * max(at), 1.0), 100.0)
    drawn = errors[errors["familiar"] <= right]
    top = min(max([float(drawn["novel"].max()), right, *paper.values()]) * 1.05, 100.0)
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
    for network, theirs in paper.items():
        colour, marker = LOOKS[network]
        axis.plot(
            PAPER_FAMILIAR[study.axis], theirs, marker, color=colour, markerfacecolor="white", markersize=6, zorder=4,
            label=f"{NETWORKS[network]}, the paper's",
        )  # fmt: skip
    axis.set_xlim(0, right)
    return top


# ---- the table


def build(results: Results) -> list[Table]:
    """Table 2, and both networks at the end of training."""
    heads = {"familiar": ("error, familiar (%)", 2), "novel": ("error, novel (%)", 2), "epoch": ("epoch", 1)}
    rows: list[Row] = []
    for item, numbers in results.executed("viewpoint"):
        at = numbers.settings.viewpoint[item].axis
        papers = papers_novel(at)
        for kind in ("matched", "late"):
            for network, words in NETWORKS.items():
                beside = [PAPER_FAMILIAR[at], papers[network]] if kind == "matched" else ["", ""]
                row = [item, at, kind, words, trained_on(numbers.trained[network]), *beside]
                rows.append((row, cells(numbers, heads, kind, network), numbers))
    papers_columns = ["the paper's, familiar (%)", "the paper's, novel (%)"]
    keys = ["study", "axis", "read where", "network", "trained on", *papers_columns]
    caption = (
        "Test errors of networks trained on familiar viewpoints alone. Matched: the worse of the two by means over its "
        "last ten epochs, the other where it first is as good on familiar viewpoints; late: those means of both."
    )
    return measured_table("matrix-viewpoints", "Errors on novel viewpoints", caption, keys, heads, rows)
