"""Equivariance and invariance of all systems: errors of their layers, and the measure of document 003's claim."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import Numbers, Results, with_training
from pipeline.systems import SYSTEMS

OWN, FITTED, INVARIANCE = "own", "fitted", "invariance"
TRAINED = "trained"

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
