"""Compares equivariance and invariance of all systems (document 003): measures the document's claim, draws a figure of
the best layer of each run, and builds tables of all layers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import FAINT, INK, WIDTH, in_house_style, plain
from pipeline.drawing.table import Row, Table, as_text, measured_table
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import NotMeasuredError, Numbers, Recorded, Results, with_training
from pipeline.systems import SYSTEMS

DOCUMENT = "003"
"""Number of the document that claims that poses are equivariant."""
OWN, FITTED, INVARIANCE, RESAMPLING = "own", "fitted", "invariance", "resampling"
"""Measures of a layer. Three are errors of predicting the layer's numbers on moved images: by theory (`OWN`), by a
fitted linear map (`FITTED`), or as unchanged (`INVARIANCE`). `RESAMPLING` is the change of the layer's numbers if an
image is moved and then moved back.
"""
TRAINED, UNTRAINED, DERIVATIVE, WITHIN = "trained", "untrained", "derivative", "within_classes"
CONTROLS = ("pixels", "moments", "quarter turns")
FAMILIES = ("rotation", "shift", "scale", "shear")
VIEWPOINTS = ("azimuth", "elevation")
"""Angles of the viewpoint, which vary in photographs of toys. A step changes one angle to its next value."""
POSES = {name for name, system in SYSTEMS.items() if system.capsules and system.layers}
"""Names of the capsule systems that have layers of poses. These layers should be equivariant."""
_SHOWN = {OWN: "by theory", FITTED: "fitted map", INVARIANCE: "invariance", RESAMPLING: "moved and back"}


def error_at(numbers: Numbers, *place: str, kind: str = "relative_error") -> Measured | None:
    """The mean error over replicas. Its standard error is over test images and replicas. None if it was not measured.

    Args:
        place: subject (`TRAINED`, `UNTRAINED` or a control), layer, measure, family, magnitude (not for derivatives).
        kind: "relative_error" (error / sd over images), `WITHIN` (error / sd within classes), or `DERIVATIVE`.
    """
    error, over_images = numbers.measured(kind, *place), numbers.measured(f"{kind}_se", *place)
    if error is None or over_images is None:
        return None
    return Measured(error.mean, math.hypot(over_images.mean, error.se), error.n, standard_error=True)


def overall(numbers: Numbers, layer: str, measure: str) -> Measured | None:
    """The mean error of a trained layer: over each family's magnitudes, then over `FAMILIES`. None if not measured.

    Errors are divided by the sd within classes. If they were divided by the sd over all images, they would be small for
    any layer that depends mostly on the class. The result's standard error is the mean of the standard errors,
    because all errors are on the same images: averaging does not reduce their common noise.
    """
    place = (TRAINED, layer, measure)
    families = []
    for family in FAMILIES:
        magnitudes = numbers.names(WITHIN, *place, family)
        if found := [error for each in magnitudes if (error := error_at(numbers, *place, family, each, kind=WITHIN))]:
            families.append(found)
    if not families:
        return None
    mean, se = np.mean([np.mean([(error.mean, error.se) for error in each], axis=0) for each in families], axis=0)
    return Measured(float(mean), float(se), min(error.n for each in families for error in each), standard_error=True)


@dataclass(frozen=True)
class Followed:
    """A layer that should be equivariant, in a trained network, with its mean errors over transformations (`overall`).

    Attributes:
        measure: what predicts the layer on moved images: theory (`OWN`) or, if there is none, a fitted map (`FITTED`).
        error: the error of this prediction; None if the layer is constant, or the result is too old to contain it.
        stays: the error of predicting that the layer does not change; None if it was not measured.
    """

    run: str
    variant: str
    name: str
    measure: str
    error: Measured | None
    stays: Measured | None
    numbers: Numbers

    @property
    def words(self) -> str:
        """The name of the layer and the words for its measure, such as "poses, by theory"."""
        return f"{self.name}, {_SHOWN[self.measure]}"

    def better_than(self, other: "Followed") -> bool:
        """Whether this layer's `error` is below the other layer's `error` by more than two standard errors, and below
        this layer's `stays`. False if one of these three errors is None.
        """
        if self.error is None or self.stays is None or other.error is None:
            return False
        return other.error.clearly_above(self.error) and self.error.mean < self.stays.mean

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.run}, {self.name}: error unknown"
        return f"{self.run}, {self.words}: {as_text(self.error)} (invariance error {as_text(self.stays)})"


def layers_of(item: str, numbers: Numbers | None) -> Iterator[Followed]:
    """Yield an item's measured layers that should be equivariant. Yields nothing if `numbers` is None."""
    if numbers is None:
        return
    run = numbers.settings.equivariance[item].run
    variant = numbers.run(run).variant
    for layer, measure in SYSTEMS[variant].layers.items():
        if layer in numbers.names("layers", TRAINED):
            taken = measure if numbers.names("relative_error", TRAINED, layer, measure) else FITTED
            error, stays = (overall(numbers, layer, each) for each in (taken, INVARIANCE))
            yield Followed(run, variant, layer, taken, error, stays, numbers)


def best_of(item: str, numbers: Numbers | None) -> Followed | None:
    """The layer from `layers_of` whose prediction has the smallest error; None if no error was measured."""
    measured = ((layer.error.mean, layer) for layer in layers_of(item, numbers) if layer.error)
    return min(measured, key=lambda each: each[0], default=(0.0, None))[1]


# ---- the claim


def poses_are_equivariant(results: Results) -> Finding:
    """Test Equations 3 to 6 of the document: poses are equivariant.

    The error of each layer of poses is divided by that of the best layer of a CNN on the same data. Our number is the
    largest ratio. The claim fails if a layer of poses is not better than the CNN's layer (`better_than`). It holds if
    all are better, and no system of `POSES` and no CNN is missing. Raises `NotMeasuredError` if no layer was compared,
    or if all compared layers are better but a system or a CNN is missing.
    """
    pairs: list[tuple[Followed, Followed]] = []
    alone: list[str] = []
    variants: set[str] = set()
    for names in results.evidence.comparison.equivariance:
        features = best_of(names.cnn, results.numbers("equivariance", names.cnn))
        for item in names.capsules:
            for poses in layers_of(item, results.numbers("equivariance", item)):
                variants.add(poses.variant)
                if features and _data(features).source == _data(poses).source:
                    pairs.append((poses, features))
                else:
                    alone.append(poses.run)
    if not pairs:
        raise NotMeasuredError("no layer of poses was measured on the same data as a CNN")
    holds = all(poses.better_than(features) for poses, features in pairs)
    missing = sorted(POSES - variants)
    if holds and (missing or alone):
        raise NotMeasuredError(f"no result of {', '.join(missing) or 'a CNN'} on the data of the others")
    # If the claim fails, the remarks are those of the failing pair with the fewest remarks.
    differences = [
        remarks("comparison", "equivariance", {}, _data(poses))
        for poses, features in pairs
        if holds or not poses.better_than(features)
    ]
    shown = [*{each.run: each for _, each in pairs}.values(), *(poses for poses, _ in pairs)]
    ratios = [poses.error.over(features.error) for poses, features in pairs if poses.error and features.error]
    fitted = [(each, overall(each.numbers, each.name, FITTED)) for each in shown]
    notes = {
        "mean errors over all transformations, relative to the sd within classes: ": "; ".join(map(str, shown)),
        "mean errors of maps fitted to each transformation: ": "; ".join(
            f"{each.run}, {each.name}: {as_text(error)}" for each, error in fitted if error
        ),
        "no CNN was measured on the data of ": ", ".join(unique(alone)),
        "not measured: ": ", ".join(missing),
    }
    return Finding(
        max(ratios, key=lambda ratio: ratio.mean, default=None),
        [record for each in shown for record in with_training(results, each.numbers, each.run)],
        holds=holds,
        remarks=unique(chain(*differences)) if holds else min(differences, key=len),
        notes=[f"{words}{told}" for words, told in notes.items() if told],
    )


def _data(layer: Followed) -> Recorded:
    """The settings of the data set that a layer's run uses."""
    return layer.numbers.dataset_of(layer.run)


MEASURES: dict[str, Measure] = {"003.equivariance": poses_are_equivariant}


# ---- the picture


def draw(results: Results) -> Iterator[Drawing]:
    """Yield one figure with the best layer of each run, sorted by system. Yields nothing if no layer was measured."""
    best = [layer for each in results.executed("equivariance") if (layer := best_of(*each))]
    if not best:
        return
    best.sort(key=lambda layer: list(SYSTEMS).index(layer.variant))
    yield Drawing(
        "equivariance-summary",
        "png",
        "Equivariance errors of the best layer of each run",
        "For each run, the layer with the smallest error under rotations, shifts, scales and shears, relative to the "
        "sd of the layer's numbers within classes: predicting each class's mean gives error 1. Filled marks: the layer "
        "is predicted by theory, or by a map fitted to training images (an easier test). Bars are two standard errors. "
        "Open marks: the layer is predicted not to change. Rows on different data cannot be compared.",
        f"A row for each of {', '.join(layer.run for layer in best)}, with a filled and an open mark.",
        [record for layer in best for record in layer.numbers.records],
        partial(summary, best),
    )


@in_house_style
def summary(best: list[Followed]) -> Figure:
    """Draw a row for each run: a filled mark for the layer's `error`, an open mark for `stays` (see `Followed`)."""
    figure = Figure(figsize=(WIDTH, 0.2 * len(best) + 0.45))
    axes = figure.subplots()
    for place, layer in enumerate(best):
        system, moved, stays = SYSTEMS[layer.variant], layer.error, layer.stays
        look: dict[str, Any] = {"color": system.colour, "marker": system.marker, "markersize": 6}
        assert moved is not None
        if stays is not None:
            axes.plot([moved.mean, stays.mean], [place, place], color=FAINT, linewidth=1)
            axes.plot(stays.mean, place, markerfacecolor="white", **look)
        axes.errorbar(moved.mean, place, xerr=2 * moved.se, capsize=0, **look)
        # The label of the data set, without its source in parentheses.
        text = plain(f"{layer.words}, {dataset_label(layer.numbers.records).partition(' (')[0]}")
        axes.text(1.03, place, text, fontsize=7.5, va="center_baseline", transform=axes.get_yaxis_transform())
    axes.axvline(1, color=INK, linewidth=0.7)
    axes.set_yticks(range(len(best)), [plain(layer.run) for layer in best])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(best) - 0.4, -0.6)
    axes.set_xlim(0, None)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("error / sd within classes (filled: theory or map, open: predicted not to change)")
    return figure


# ---- the tables


def build(results: Results) -> list[Table]:
    """Tables for `FAMILIES` and `VIEWPOINTS`, without empty ones. Raises `ResultError` if a result file is corrupt."""
    items = [(numbers.settings.equivariance[item].run, numbers) for item, numbers in results.executed("equivariance")]
    return [*_maps_of_the_plane(items), *_viewpoints(items)]


def _maps_of_the_plane(items: list[tuple[str, Numbers]]) -> list[Table]:
    """A list with one table, or an empty list. A row is a layer, of a run or a control, under one transformation."""
    rows: list[Row] = []
    controlled: set[str] = set()
    heads = {f"{TRAINED}_{measure}": (words, 2) for measure, words in _SHOWN.items()}
    for what, measure in product((UNTRAINED, DERIVATIVE), (OWN, FITTED, INVARIANCE)):
        heads[f"{what}_{measure}"] = (f"{what}, {_SHOWN[measure]}", 2)
    for run, numbers in items:
        label = dataset_label(numbers.records)
        controls = () if label in controlled else CONTROLS
        controlled.add(label)
        for subject in (*controls, TRAINED):
            for layer in numbers.names("layers", subject):
                sd, dimensions = (numbers.measured("layers", subject, layer, of) for of in ("variation", "dimensions"))
                about = [layer, f"{100 * sd.mean:.3g}" if sd else "", f"{dimensions.mean:.1f}" if dimensions else ""]
                for family, magnitude in _chosen(numbers, subject):
                    found = {}
                    for measure in _SHOWN:
                        place = (layer, measure, family)
                        found[f"{TRAINED}_{measure}"] = error_at(numbers, subject, *place, magnitude)
                        found[f"{UNTRAINED}_{measure}"] = error_at(numbers, UNTRAINED, *place, magnitude)
                        found[f"{DERIVATIVE}_{measure}"] = error_at(numbers, subject, *place, kind=DERIVATIVE)
                    keys = [run if subject == TRAINED else subject, label, *about, family, magnitude]
                    rows.append((keys, found, numbers))
    caption = (
        "Root mean square errors of predictions of a layer's numbers on moved test images, relative to the sd of these "
        "numbers over images. Predictions are by theory, by a linear map fitted to training images, or that nothing "
        "changes (invariance). Predicting the mean gives error 1. Magnitudes: degrees of rotation, pixels to the "
        "right, factor of scale, and the m of a shear from x to x + m y. Moved and back: change of the numbers if an "
        "image is moved and moved back. Derivatives: errors of predicted Lie derivatives (changes per degree, pixel, "
        "1 % of scale and 0.01 of shear). Pixels, moments and quarter turns (a network) are controls of known "
        "equivariance. Their images are cropped as for the first run on the data. Their errors by theory come from "
        "resampling, from the edges of crops and, for moments, from pixels minus background that sum to almost 0. sd: "
        "over images, in percent of the root mean square; for layers below 0.1 %, which count as constant, no errors "
        "are given. Dimensions: effective number of directions in which the numbers vary."
    )
    keys = ["run", "data", "layer", "sd (%)", "dimensions", "family", "magnitude"]
    title = "Equivariance and invariance, system by system"
    return measured_table("equivariance-systems", title, caption, keys, heads, rows, "se")


def _viewpoints(items: list[tuple[str, Numbers]]) -> list[Table]:
    """A list with one table, or an empty list. A row is a layer of a run, under one step of the viewpoint."""
    unmoved = ("relative_error", TRAINED)
    kinds = {"relative_error": "", WITHIN: "within classes, "}
    measures = {OWN: "one matrix", FITTED: "fitted map", INVARIANCE: "invariance"}
    columns = list(product(kinds, measures))
    rows: list[Row] = []
    for run, numbers in items:
        for layer, factor in product(numbers.names(*unmoved), VIEWPOINTS):
            for degrees in numbers.names(*unmoved, layer, INVARIANCE, factor):
                found = {
                    f"{kind}_{measure}": error_at(numbers, TRAINED, layer, measure, factor, degrees, kind=kind)
                    for kind, measure in columns
                }
                rows.append(([run, layer, f"{degrees}° of {factor}"], found, numbers))
    caption = (
        "Errors of predictions of a layer's numbers when the viewpoint of a toy moves by one step in the same light. "
        "The first columns are relative to the sd of the numbers over images, the others to their sd within classes. "
        "Predictions are by one matrix that multiplies every pose, by a linear map of all numbers, or that nothing "
        "changes (invariance). Matrix and map are fitted to some of the test toys, and tested on the others. If an "
        "invariance error is small over images but large within classes, the numbers depend mostly on the class."
    )
    title, keys = "Errors of predictions from one viewpoint to the next", ["run", "layer", "step"]
    heads = {f"{kind}_{measure}": (f"{kinds[kind]}{measures[measure]}", 2) for kind, measure in columns}
    return measured_table("equivariance-viewpoints", title, caption, keys, heads, rows, "se")


def _chosen(numbers: Numbers, subject: str) -> list[tuple[str, str]]:
    """Pairs (family, magnitude): for "quarter turns", all with an `OWN` error; else each family's middle magnitude."""
    if subject == "quarter turns":
        own = ("relative_error", subject, "turns", OWN)
        return [(family, magnitude) for family in numbers.names(*own) for magnitude in numbers.names(*own, family)]
    pixels = ("relative_error", "pixels", "pixels", INVARIANCE)
    measured = {family: numbers.names(*pixels, family) for family in FAMILIES}
    return [(family, found[(len(found) - 1) // 2]) for family, found in measured.items() if found]
