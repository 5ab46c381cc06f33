"""Equivariance and invariance of all systems side by side: figure, table, and the measure of document 003's claim."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import (
    FAINT,
    INK,
    WIDTH,
    in_house_style,
)
from pipeline.drawing.table import Table, tracked
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.reading import (
    SIGNIFICANT_SES,
    Measured,
    Numbers,
    Record,
    Results,
    dataset_label,
    unique,
    with_training,
)
from pipeline.systems import SYSTEMS

NAME = "equivariance-systems"
DOCUMENT = "003"
"""The document whose claims it measures."""
OWN, FITTED, INVARIANCE, RESAMPLING = "own", "fitted", "invariance", "resampling"
TRAINED, UNTRAINED = "trained", "untrained"
CONTROLS = ("pixels", "moments", "quarter turns")
FAMILIES = ("rotation", "shift", "scale", "shear")
_IN_WORDS = {"rotation": "{}°", "shift": "{} px", "scale": "x {}", "shear": "{}"}
_PER = {"rotation": "1°", "shift": "1 px", "scale": "1 %", "shear": "0.01"}

COLOURS = {name: system.colour for name, system in SYSTEMS.items()}
"""By the variant of the run."""
MARKERS = {"parts": "s", "objects": "o", "poses": "D", "capsules": "v", "code": "^", "hidden": "X", "maps": "P"}
"""By layer; presences have the last one."""
DASHES = ("-", "--", "-.", ":")
"""Runs of the same variant, in order."""
LOWEST = 3e-3
"""The lower end of the figure's logarithmic axis; smaller errors lie on it."""

POSES = {name for name, system in SYSTEMS.items() if system.capsules and system.layers}
"""Systems whose capsules have poses."""


@dataclass(frozen=True)
class Error:
    """An error, its mean over replicas, and its standard error over test images and replicas."""

    mean: float
    se: float
    n: int

    @property
    def measured(self) -> Measured:
        """With the standard error as the sd."""
        return Measured(self.mean, self.se, self.n, standard_error=True)

    def __str__(self) -> str:
        return f"{self.mean:.{_digits(self.mean)}f} ± {self.se:.{_digits(self.mean)}f}"


def _digits(value: float) -> int:
    return 2 if value >= 0.095 else 3


def error_at(numbers: Numbers, *place: str, kind: str = "relative_error") -> Error | None:
    """The error of a subject, layer, measure, family and (if finite) magnitude; None if it was not measured.

    Args:
        kind: "relative_error", or "derivative".
    """
    error, over_images = numbers.measured(kind, *place), numbers.measured(f"{kind}_se", *place)
    if error is None or over_images is None:
        return None
    return Error(error.mean, math.hypot(over_images.mean, error.se), error.n)


def overall(numbers: Numbers, layer: str, measure: str) -> Error | None:
    """The error of a trained layer over all transformations: the mean over families of that over magnitudes.

    The same images are moved each time, so that standard errors are averaged, not reduced.
    """
    place = ("relative_error", TRAINED, layer, measure)
    by_family = []
    for family in numbers.names(*place):
        found = [error_at(numbers, *place[1:], family, magnitude) for magnitude in numbers.names(*place, family)]
        by_family.append([each for each in found if each is not None])
    if not by_family or not all(by_family):
        return None

    def mean(values: list[list[float]]) -> float:
        return sum(sum(each) / len(each) for each in values) / len(values)

    return Error(
        mean([[each.mean for each in found] for found in by_family]),
        mean([[each.se for each in found] for found in by_family]),
        min(each.n for found in by_family for each in found),
    )


@dataclass(frozen=True)
class Followed:
    """A layer of a trained network over all transformations.

    Attributes:
        measure: how it is predicted to move: by theory, or by a fitted map.
        error: of this prediction.
        invariance: the error if it is taken to stay; None if it was not measured.
    """

    layer: str
    measure: str
    error: Error
    invariance: Error | None

    @property
    def prediction(self) -> str:
        """What says how it moves."""
        return _PREDICTED[self.measure]

    def __str__(self) -> str:
        return f"{self.layer}, {self.prediction}"


_PREDICTED = {OWN: "by theory", FITTED: "fitted map"}


def best_layer(numbers: Numbers, variant: str) -> Followed | None:
    """Of the layers that are meant to move with the image, the one that does so best; None if none was measured."""
    found = []
    for layer, measure in SYSTEMS[variant].layers.items():
        taken = measure_of(numbers, layer, measure)
        error = overall(numbers, layer, taken)
        if error is not None:
            found.append(Followed(layer, taken, error, overall(numbers, layer, INVARIANCE)))
    return min(found, key=lambda each: each.error.mean, default=None)


def measure_of(numbers: Numbers, layer: str, measure: str) -> str:
    """How a layer is judged: poses that are vectors by a map, for theory does not say how they move."""
    return measure if numbers.names("relative_error", TRAINED, layer, measure) else FITTED


def variant_of(item: str, numbers: Numbers) -> tuple[str, str]:
    """The run of an item, and the run's variant."""
    run = str(numbers.settings.equivariance[item].run)
    return run, str(numbers.run(run).variant)


# ---- the figure


@dataclass(frozen=True)
class Line:
    """A line over the angle of rotation; one without a marker is of an untrained network."""

    label: str
    colour: str
    marker: str
    dashes: str
    errors: dict[float, Error]


PANELS = {OWN: "equivariance, by theory", FITTED: "equivariance, fitted map", INVARIANCE: "invariance"}


def draw(results: Results) -> Iterator[Drawing]:
    """One figure of all systems, if any was measured. Raises `ResultError` if a result is corrupt."""
    items = list(results.executed("equivariance"))
    panels = lines(items)
    if not any(panels.values()):
        return
    yield Drawing(
        NAME,
        "svg",
        "Equivariance and invariance of all systems",
        "Errors of the predicted features of rotated images, relative to how much features vary over images (1: "
        "nothing is known of the image). From left: predicted by the action that theory gives, by a linear map fitted "
        "to training images, and by no change. Thin: untrained networks of the same kind; grey: functions whose "
        f"equivariance is known (on the axis: below {LOWEST:g}); bars: two standard errors.",
        "Three line plots of relative errors over the angle of rotation, the first on a logarithmic scale, with one "
        "line for each layer of each system.",
        [record for _, numbers in items for record in numbers.records],
        partial(errors_over_rotation, panels),
    )


def lines(items: list[tuple[str, Numbers]]) -> dict[str, list[Line]]:
    """The lines of each panel; in the last one, of layers that should be invariant: presences, codes."""
    found: dict[str, list[Line]] = {measure: [] for measure in PANELS}
    runs: dict[str, list[str]] = {}
    for item, numbers in items:
        run, variant = variant_of(item, numbers)
        before = runs.setdefault(variant, [])
        before.append(run)
        dashes = DASHES[(len(before) - 1) % len(DASHES)]
        for layer in numbers.names("relative_error", TRAINED):
            for measure, panel in found.items():
                if measure == INVARIANCE and layer not in ("presences", "hidden", "code"):
                    continue
                errors = _by_angle(numbers, TRAINED, layer, measure)
                if not errors:
                    continue
                panel.append(Line(f"{run}: {layer}", COLOURS[variant], MARKERS.get(layer, "*"), dashes, errors))
                untrained = _by_angle(numbers, UNTRAINED, layer, measure)
                if untrained:
                    panel.append(Line("untrained", COLOURS[variant], "", dashes, untrained))
    for control, measure, dashes in (("moments", OWN, "--"), ("quarter turns", OWN, ""), ("pixels", INVARIANCE, ":")):
        for _, numbers in items[:1]:
            for layer in numbers.names("relative_error", control):
                errors = _by_angle(numbers, control, layer, measure)
                if errors:
                    found[measure].append(Line(control, FAINT, "." if dashes else "*", dashes, errors))
    return found


def _by_angle(numbers: Numbers, subject: str, layer: str, measure: str) -> dict[float, Error]:
    place = (subject, layer, measure, "rotation")
    found = {float(angle): error_at(numbers, *place, angle) for angle in numbers.names("relative_error", *place)}
    return {angle: error for angle, error in sorted(found.items()) if error is not None}


@in_house_style
def errors_over_rotation(panels: dict[str, list[Line]]) -> Figure:
    """A panel for each measure, with a legend of all lines below."""
    labels = {line.label for each in panels.values() for line in each}
    figure = Figure(figsize=(WIDTH, 2.4 + 0.16 * math.ceil(len(labels) / 3)))
    handles: dict[str, Any] = {}
    for axes, (measure, drawn) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        if measure == OWN:
            axes.set_yscale("log")
        _panel(axes, drawn, handles, LOWEST if measure == OWN else 0.0)
        axes.set_title(PANELS[measure])
        axes.set_xlabel("rotation of the image")
        if measure == OWN:
            axes.set_ylabel("relative error")
    labelled = _by_run(handles)
    figure.legend([handles[label] for label in labelled], labelled, loc="outside lower center", ncols=3)
    return figure


def _by_run(labels: Collection[str]) -> list[str]:
    """Labels of lines with the layers of a run together, then the controls, then untrained networks."""
    runs = {label: label.partition(": ")[0] for label in labels}
    order = list(dict.fromkeys(runs.values()))
    return sorted(labels, key=lambda label: (label == UNTRAINED, ": " not in label, order.index(runs[label])))


def _panel(axes: Axes, drawn: list[Line], handles: dict[str, Any], lowest: float) -> None:
    axes.axhline(1, color=INK, linewidth=0.7)
    for line in drawn:
        angles, values = list(line.errors), [max(error.mean, lowest) for error in line.errors.values()]
        if not line.marker:
            axes.plot(angles, values, color=line.colour, linestyle=line.dashes, linewidth=0.5)
            handles.setdefault(line.label, Line2D([], [], color=INK, linewidth=0.5))
            continue
        bars = [2 * error.se for error in line.errors.values()]
        low = [min(bar, value - lowest) for bar, value in zip(bars, values, strict=True)]
        handles[line.label] = axes.errorbar(
            angles, values, yerr=[low, bars], color=line.colour, marker=line.marker, linestyle=line.dashes or "none",
            linewidth=1.2, elinewidth=0.7, capsize=0, clip_on=False,
        )  # fmt: skip
    axes.set_ylim(lowest, None)
    axes.set_xlim(0, 185)
    axes.set_xticks([0, 90, 180], ["0°", "90°", "180°"])
    axes.set_xticks([45, 135], minor=True)


# ---- the table

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


# ---- the claim


@dataclass(frozen=True)
class _Judged:
    """A layer that the claim is about; `error` is None of one that is constant.

    Attributes:
        source: of the data set.
    """

    run: str
    layer: str
    source: str
    measure: str
    error: Error | None
    stays: Error | None
    numbers: Numbers

    def better_than(self, other: Error) -> bool:
        """Whether its error is smaller by more than two standard errors, and its numbers move with the image: they are
        nearer to where the action takes them than to where they were.
        """
        if self.error is None or self.stays is None:
            return False
        clear = other.mean - self.error.mean > SIGNIFICANT_SES * math.hypot(self.error.se, other.se)
        return clear and self.error.mean < self.stays.mean

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.run}, {self.layer}: constant"
        by = {OWN: "by theory", FITTED: "by a fitted map"}[self.measure]
        return f"{self.run}, {self.layer}: {self.error} {by}, {self.stays} without moving"


def poses_are_equivariant(results: Results) -> Finding | None:
    """Equations 3 to 6: errors of capsules' poses against those of a convolutional network's features on the same data.

    The network is given the best of its layers, each with the action that suits it. Every layer of poses of every
    capsule run must be better. One that is not refutes the claim; that it holds needs all systems of capsules, each
    beside a convolutional network.
    """
    pairs: list[tuple[_Judged, _Judged]] = []
    alone: list[str] = []
    variants: set[str] = set()
    for names in results.evidence.comparison.equivariance:
        known = [each for each in _judged(results, names.cnn) if each.error]
        features = min(known, key=lambda each: _error(each).mean, default=None)
        for item in names.capsules:
            for poses in _judged(results, item):
                variants.add(str(poses.numbers.run(poses.run).variant))
                if features and features.source == poses.source:
                    pairs.append((poses, features))
                else:
                    alone.append(poses.run)
    if not pairs:
        return None
    holds = all(poses.better_than(_error(features)) for poses, features in pairs)
    missing = sorted(POSES - variants)
    if holds and (missing or alone):
        return None
    shown = [*{each.run: each for _, each in pairs}.values(), *(poses for poses, _ in pairs)]
    records = [record for each in shown for record in with_training(results, each.numbers, each.run)]
    ratios = [poses.error.measured.over(_error(features).measured) for poses, features in pairs if poses.error]
    data = [each.numbers.dataset_of(each.run) for each in shown]
    return Finding(
        max(ratios, key=lambda ratio: ratio.mean, default=None),
        dataset_label(records),
        records,
        holds=holds,
        remarks=unique(words for each in data for words in remarks("comparison", "equivariance", {}, each)),
        notes=[
            f"mean errors over all transformations: {'; '.join(map(str, shown))}",
            *([f"no CNN was measured on the data of {', '.join(unique(alone))}"] if alone else []),
            *([f"not measured: {', '.join(missing)}"] if missing else []),
        ],
    )


def _judged(results: Results, item: str) -> Iterator[_Judged]:
    """The layers of an item that the claim is about; none if it was not executed."""
    numbers = results.numbers("equivariance", item)
    if numbers is None:
        return
    run, variant = variant_of(item, numbers)
    source = str(numbers.dataset_of(run).source)
    for layer, measure in SYSTEMS[variant].layers.items():
        if layer in numbers.names("layers", TRAINED):
            taken = measure_of(numbers, layer, measure)
            error, stays = (overall(numbers, layer, each) for each in (taken, INVARIANCE))
            yield _Judged(run, layer, source, taken, error, stays, numbers)


def _error(judged: _Judged) -> Error:
    assert judged.error is not None
    return judged.error


MEASURES: dict[str, Measure] = {"003.equivariance": poses_are_equivariant}
"""The measures of document 003's claims."""
