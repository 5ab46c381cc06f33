"""Equivariance and invariance of all systems side by side (document 003): layer by layer, as a figure and a table, and
the best layer of each in one picture.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import FAINT, INK, WIDTH, in_house_style, plain
from pipeline.drawing.table import Table, tracked
from pipeline.report.equivariance import (
    FITTED,
    INVARIANCE,
    OWN,
    TRAINED,
    Error,
    Followed,
    best_layer,
    error_at,
    variant_of,
)
from pipeline.results.provenance import Record, dataset_label
from pipeline.results.reading import Numbers, Results
from pipeline.systems import SYSTEMS

NAME, SUMMARY = "equivariance-systems", "equivariance-summary"
DOCUMENT = "003"
"""The document that says what they should be."""
RESAMPLING, UNTRAINED = "resampling", "untrained"
CONTROLS = ("pixels", "moments", "quarter turns")
FAMILIES = ("rotation", "shift", "scale", "shear")
_IN_WORDS = {"rotation": "{}°", "shift": "{} px", "scale": "x {}", "shear": "{}"}
_PER = {"rotation": "1°", "shift": "1 px", "scale": "1 %", "shear": "0.01"}

MARKERS = {"parts": "s", "objects": "o", "poses": "D", "capsules": "v", "code": "^", "hidden": "X", "maps": "P"}
"""By layer; presences have the last one."""
DASHES = ("-", "--", "-.", ":")
"""Runs of the same variant, in order."""
LOWEST = 3e-3
"""The lower end of the figure's logarithmic axes; smaller errors lie on it."""
_ROW, _REST = 0.2, 0.45
"""Inches: height of a row of the summary, and of all else."""


@dataclass(frozen=True)
class Line:
    """A line over the angle of rotation; one without a marker is of an untrained network."""

    label: str
    colour: str
    marker: str
    dashes: str
    errors: dict[float, Error]


PANELS = {OWN: "equivariance, by theory", FITTED: "equivariance, fitted map", INVARIANCE: "invariance"}


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Two figures of all systems, if any was measured. Raises `ResultError` if a result is corrupt."""
    items = list(results.executed("equivariance"))
    yield from _layer_by_layer(items)
    yield from _best_layers(items)


def _layer_by_layer(items: list[tuple[str, Numbers]]) -> Iterator[Drawing]:
    panels = lines(items)
    if not panels:
        return
    yield Drawing(
        NAME,
        "svg",
        "Equivariance and invariance of all systems",
        "Errors of the predicted features of rotated images, relative to how much features vary over images (1: "
        "nothing is known of the image). A row for each data set; from left: predicted by the action that theory "
        "gives, by a linear map fitted to training images, and by no change. Thin: untrained networks of the same "
        f"kind; grey: functions whose equivariance is known (on the axis: below {LOWEST:g}); bars: two standard "
        "errors.",
        "Line plots of relative errors over the angle of rotation, on logarithmic scales, with one line for each "
        "layer of each system.",
        [record for _, numbers in items for record in numbers.records],
        partial(errors_over_rotation, panels),
    )


def _best_layers(items: list[tuple[str, Numbers]]) -> Iterator[Drawing]:
    found = rows(items)
    if not found:
        return
    layers = "; ".join(f"{row.label}: {row.followed}, on {row.dataset}" for row in found)
    yield Drawing(
        SUMMARY,
        "png",
        "How well each system follows a moved image",
        "Errors of the layer that follows rotations, shifts, scales and shears best, relative to how much its numbers "
        "vary over images (1: nothing is known of the image): filled if its change is predicted, open if no "
        "change is (bars: two standard errors). If the filled mark is left of the open one, the numbers move as "
        "predicted rather than stay; a map fitted to training images is an easier test than the action given by "
        f"theory, and rows on different data cannot be compared. Layers: {layers}.",
        f"A row for each of {', '.join(row.label for row in found)}, with two marks each.",
        [record for _, numbers in items for record in numbers.records],
        partial(summary, found),
    )


Panels = dict[str, list[Line]]
"""Lines by measure; those of invariance are of layers that should be invariant: presences, codes."""


def lines(items: list[tuple[str, Numbers]]) -> dict[str, Panels]:
    """The panels of each data set that was measured."""
    found: dict[str, Panels] = {}
    runs: dict[tuple[str, str], list[str]] = {}
    for item, numbers in items:
        run, variant = variant_of(item, numbers)
        dataset = dataset_label(numbers.records)
        if dataset not in found:
            found[dataset] = {measure: _controls(numbers, measure) for measure in PANELS}
        before = runs.setdefault((dataset, variant), [])
        before.append(run)
        dashes = DASHES[(len(before) - 1) % len(DASHES)]
        for layer in numbers.names("relative_error", TRAINED):
            for measure, panel in found[dataset].items():
                if measure == INVARIANCE and layer not in ("presences", "hidden", "code"):
                    continue
                errors = _by_angle(numbers, TRAINED, layer, measure)
                if not errors:
                    continue
                panel.append(Line(f"{run}: {layer}", SYSTEMS[variant].colour, MARKERS.get(layer, "*"), dashes, errors))
                untrained = _by_angle(numbers, UNTRAINED, layer, measure)
                if untrained:
                    panel.append(Line("untrained", SYSTEMS[variant].colour, "", dashes, untrained))
    return found


def _controls(numbers: Numbers, measure: str) -> list[Line]:
    """The lines of functions whose equivariance is known."""
    kinds = {OWN: (("moments", "--"), ("quarter turns", "")), INVARIANCE: (("pixels", ":"),)}
    return [
        Line(control, FAINT, "." if dashes else "*", dashes, errors)
        for control, dashes in kinds.get(measure, ())
        for layer in numbers.names("relative_error", control)
        if (errors := _by_angle(numbers, control, layer, measure))
    ]


def _by_angle(numbers: Numbers, subject: str, layer: str, measure: str) -> dict[float, Error]:
    place = (subject, layer, measure, "rotation")
    found = {float(angle): error_at(numbers, *place, angle) for angle in numbers.names("relative_error", *place)}
    return {angle: error for angle, error in sorted(found.items()) if error is not None}


@in_house_style
def errors_over_rotation(panels: dict[str, Panels]) -> Figure:
    """A row for each data set with a panel for each measure, and a legend below."""
    figure = Figure(figsize=(WIDTH, 3.1 * len(panels)))
    for part, (dataset, measures) in zip(figure.subfigures(len(panels), 1, squeeze=False), panels.items(), strict=True):
        row = part[0].subplots(1, len(PANELS))
        handles: dict[str, Any] = {}
        for axes, (measure, drawn) in zip(row, measures.items(), strict=True):
            _panel(axes, drawn, handles)
            axes.set_title(PANELS[measure])
            axes.set_xlabel("rotation of the image")
        row[0].set_ylabel(f"relative error, {plain(dataset.partition(' (')[0])}")
        labelled = _by_run(handles)
        part[0].legend([handles[label] for label in labelled], labelled, loc="outside lower center", ncols=3)
    return figure


def _by_run(labels: Collection[str]) -> list[str]:
    """Labels of lines with the layers of a run together, then the controls, then untrained networks."""
    runs = {label: label.partition(": ")[0] for label in labels}
    order = list(dict.fromkeys(runs.values()))
    return sorted(labels, key=lambda label: (label == UNTRAINED, ": " not in label, order.index(runs[label])))


def _panel(axes: Axes, drawn: list[Line], handles: dict[str, Any]) -> None:
    axes.set_yscale("log")
    axes.axhline(1, color=INK, linewidth=0.7)
    for line in drawn:
        angles, values = list(line.errors), [max(error.mean, LOWEST) for error in line.errors.values()]
        if not line.marker:
            axes.plot(angles, values, color=line.colour, linestyle=line.dashes, linewidth=0.5)
            handles.setdefault(line.label, Line2D([], [], color=INK, linewidth=0.5))
            continue
        bars = [2 * error.se for error in line.errors.values()]
        low = [min(bar, value - LOWEST) for bar, value in zip(bars, values, strict=True)]
        handles[line.label] = axes.errorbar(
            angles, values, yerr=[low, bars], color=line.colour, marker=line.marker, linestyle=line.dashes or "none",
            linewidth=1.2, elinewidth=0.7, capsize=0, clip_on=False,
        )  # fmt: skip
    if axes.get_ylim()[0] < LOWEST:
        axes.set_ylim(LOWEST, None)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, 185)
    axes.set_xticks([0, 90, 180], ["0°", "90°", "180°"])
    axes.set_xticks([45, 135], minor=True)


@dataclass(frozen=True)
class SystemRow:
    """A system, and its layer that follows best, on a data set."""

    label: str
    variant: str
    followed: Followed
    dataset: str

    @property
    def judged(self) -> str:
        """How the layer is predicted to move, and on which data, without what these were made from."""
        return f"{self.followed.prediction}, {self.dataset.partition(' (')[0]}"


def rows(items: list[tuple[str, Numbers]]) -> list[SystemRow]:
    """One row for each run that was measured, systems in their usual order; runs of one system have their own names."""
    found = []
    for item, numbers in items:
        run, variant = variant_of(item, numbers)
        followed = best_layer(numbers, variant)
        if followed is not None:
            found.append((variant, run, followed, dataset_label(numbers.records)))
    variants = [variant for variant, *_ in found]
    order = list(SYSTEMS)
    return [
        SystemRow(SYSTEMS[variant].label if variants.count(variant) == 1 else run, variant, followed, dataset)
        for variant, run, followed, dataset in sorted(found, key=lambda each: order.index(each[0]))
    ]


@in_house_style
def summary(found: list[SystemRow]) -> Figure:
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


_FINITE = {OWN: "by theory", FITTED: "fitted map", INVARIANCE: "invariance", RESAMPLING: "there and back"}
_HEADS = {
    **{f"{TRAINED}_{measure}": words for measure, words in _FINITE.items()},
    f"{UNTRAINED}_{OWN}": "untrained, by theory",
    f"{UNTRAINED}_{FITTED}": "untrained, fitted map",
    f"{UNTRAINED}_{INVARIANCE}": "untrained, invariance",
    **{f"derivative_{measure}": f"derivative, {_FINITE[measure]}" for measure in (OWN, FITTED, INVARIANCE)},
}


def build(results: Results) -> list[Table]:
    """All systems and controls side by side: one table, or none. Raises `ResultError` if a result is corrupt."""
    data: list[dict[str, object]] = []
    shown: list[list[str]] = []
    records: list[Record] = []
    controls: set[str] = set()
    for item, numbers in results.executed("equivariance"):
        run, _ = variant_of(item, numbers)
        label = dataset_label(numbers.records)
        new = [] if label in controls else [(control, control) for control in CONTROLS]
        controls.add(label)
        records += numbers.records
        for subject, name in [*new, (TRAINED, run)]:
            for layer in numbers.names("layers", subject):
                for family, magnitude in _chosen(numbers, subject):
                    cells = _cells(numbers, subject, layer, family, magnitude)
                    about = {
                        key: numbers.measured("layers", subject, layer, key) for key in ("variation", "dimensions")
                    }
                    varies = {key: found.mean if found else None for key, found in about.items()}
                    row: dict[str, object] = {"run": name, "layer": layer, "family": family, "magnitude": magnitude}
                    for key, error in cells.items():
                        row[key], row[f"{key}_se"] = (error.mean, error.se) if error else (None, None)
                    data.append({**row, **varies, "dataset": label, "tracking_run": tracked(numbers.records)})
                    words = "constant" if f"{TRAINED}_{INVARIANCE}" in cells and not any(cells.values()) else ""
                    share = varies["variation"]
                    shown.append(
                        [
                            *(name, label, layer),
                            "" if share is None else f"{100 * share:.3g} %",
                            "" if varies["dimensions"] is None else f"{varies['dimensions']:.1f}",
                            f"{family} {_IN_WORDS[family].format(magnitude)}",
                            *(str(error) if error else "" for error in list(cells.values())[:-3]),
                            *(f"{error} per {_PER[family]}" if error else "" for error in list(cells.values())[-3:]),
                        ]
                    )
                    shown[-1][6] = shown[-1][6] or words
    if not data:
        return []
    caption = (
        "Root mean square errors of a layer's numbers on moved test images, relative to their sd over images, ± one "
        "standard error over images and seeds. As predicted by the action that theory gives them, by a linear map "
        "fitted to training images, and by no change (invariance); 1 is the error of a prediction that knows nothing "
        "of the image, and 1.4 that of another image's numbers. There and back: images moved and moved back, what "
        "resampling alone costs. Derivatives are those at the identity (Lie derivatives). Above all: functions whose "
        "equivariance is known. sd: that of the layer's numbers over images, as a share of their size; a layer with "
        "less than 0.1 % is constant, and has no errors. Dimensions: the effective number of directions in which they "
        "vary; few are easily predicted."
    )
    head = ["run", "data", "layer", "sd", "dimensions", "moved by", *_HEADS.values()]
    title = "Equivariance and invariance, system by system"
    return [Table(NAME, title, caption, pd.DataFrame(data), pd.DataFrame(shown, columns=head), records)]


def _chosen(numbers: Numbers, subject: str) -> list[tuple[str, str]]:
    """One magnitude of each family, the middle one (of four, the second); of quarter turns, those that are exact."""
    if subject == "quarter turns":
        own = ("relative_error", subject, "turns", OWN)
        return [(family, magnitude) for family in numbers.names(*own) for magnitude in numbers.names(*own, family)]
    pixels = ("relative_error", "pixels", "pixels", INVARIANCE)
    found = []
    for family in FAMILIES:
        magnitudes = numbers.names(*pixels, family)
        if magnitudes:
            found.append((family, magnitudes[(len(magnitudes) - 1) // 2]))
    return found


def _cells(numbers: Numbers, subject: str, layer: str, family: str, magnitude: str) -> dict[str, Error | None]:
    cells: dict[str, Error | None] = {}
    for name in _HEADS:
        what, _, measure = name.partition("_")
        if what == "derivative":
            cells[name] = error_at(numbers, subject, layer, measure, family, kind="derivative")
        elif what == TRAINED:
            cells[name] = error_at(numbers, subject, layer, measure, family, magnitude)
        else:
            own = subject == TRAINED
            cells[name] = error_at(numbers, UNTRAINED, layer, measure, family, magnitude) if own else None
    return cells
