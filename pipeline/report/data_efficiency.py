"""Test errors over the number of training images, all systems side by side: figure, and a claim's measure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import in_house_style, panels
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results, training_behind, with_training
from pipeline.systems import SYSTEMS

NAME = "data-efficiency"
ITSELF = "itself"
"""What classifies, where the model does; otherwise a linear probe does."""
DOCUMENT = "003"
"""The document whose claims it measures."""


@dataclass(frozen=True)
class Curve:
    """The errors of one run.

    Attributes:
        item: that measured them.
        how: what classifies: the model itself, or the features of the linear probe that is best on all images.
        errors: shares of test images, by the number of training images.
        parameters: of the model; None if its training is not recorded.
    """

    item: str
    run: str
    variant: str
    how: str
    errors: dict[int, Measured]
    parameters: float | None
    numbers: Numbers

    @property
    def dataset(self) -> str:
        """The display name of its data."""
        return dataset_label(self.numbers.records)


def curves(results: Results) -> list[Curve]:
    """The errors of every run that was measured. Raises `ResultError` if a result is corrupt."""
    found = []
    for item, numbers in results.executed("data_efficiency"):
        run, shares = str(numbers.settings.data_efficiency[item].run), sorted(numbers.names("share"), key=float)
        how = min(numbers.names("share", shares[-1]), key=lambda way: numbers.at("share", shares[-1], way, "mean"))
        errors = {
            int(numbers.at("images", share)): error
            for share in shares
            if (error := numbers.measured("share", share, how)) is not None
        }
        trained = training_behind(results, numbers, run)
        parameters = trained.number("parameters", "total") if trained else None
        found.append(Curve(item, run, str(numbers.run(run).variant), how, errors, parameters, numbers))
    return found


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """One figure of all systems, if any was measured. Raises `ResultError` as `curves`."""
    if not (found := curves(results)):
        return
    yield Drawing(
        NAME,
        "svg",
        "Test error against the number of training images",
        "Networks trained on shares of the images, for as many steps on each, and fewer than in other figures, so that "
        "errors are higher. Bars are one sd over seeds. Models that learn without labels are classified by a linear "
        "probe, which is fit on the same images.",
        "Test errors over the number of training images, a panel for each data set, a series for each run.",
        [record for curve in found for record in curve.numbers.records],
        partial(errors_over_images, found),
    )


@in_house_style
def errors_over_images(found: list[Curve]) -> Figure:
    """A panel for each data set, all with one scale of errors; a line for each run that has three sizes or more."""
    datasets = list(dict.fromkeys(curve.dataset for curve in found))
    figure, axes = panels(len(datasets), 2.6, sharey=True)
    for axis, dataset in zip(axes, datasets, strict=True):
        for curve in (curve for curve in found if curve.dataset == dataset):
            errors, system = list(curve.errors.values()), SYSTEMS[curve.variant]
            axis.errorbar(
                list(curve.errors),
                [100 * error.mean for error in errors],
                yerr=[100 * error.sd for error in errors],
                color=system.colour,
                marker=system.marker,
                linestyle="-" if len(errors) > 2 else "",
                label=curve.run,
            )
        axis.set_xscale("log")
        images = sorted({count for curve in found if curve.dataset == dataset for count in curve.errors})
        axis.set_xticks(images, [f"{count:,}" for count in images])
        axis.set_xticks([], minor=True)
        axis.margins(x=0.15)
        axis.set(xlabel="training images", title=dataset)
        axis.legend()
    errors_axis = axes[0]
    errors_axis.set(yscale="log", ylabel="test error (%)")
    errors_axis.margins(y=0.1)
    low, high = errors_axis.get_ylim()  # enough ticks where errors span less than a decade
    errors_axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7)))
    errors_axis.yaxis.set_minor_locator(NullLocator())
    errors_axis.yaxis.set_major_formatter("{x:g}")
    return figure


def capsules_need_less(results: Results) -> Finding | None:
    """Capsules against a convolutional network on the same data: fewer parameters, and on every share an error that is
    lower by more than two standard errors (binomial, of the test images, and over replicas).
    """
    names = results.evidence.comparison.data_efficiency
    found = {curve.item: curve for curve in curves(results) if curve.how == ITSELF}
    ours, theirs = found.get(names.get("capsules", "")), found.get(names.get("cnn", ""))
    if not (ours and theirs and ours.parameters and theirs.parameters and ours.dataset == theirs.dataset):
        return None
    shared = sorted(ours.errors.keys() & theirs.errors.keys())
    if len(shared) < 2 or max(shared) < max(*ours.errors, *theirs.errors):
        return None
    ratios = {images: ours.errors[images].over(theirs.errors[images]) for images in shared}
    records = [record for curve in (ours, theirs) for record in with_training(results, curve.numbers, curve.run)]
    data = ours.numbers.dataset_of(ours.run)
    tested = int(data.test)

    def is_lower(images: int) -> bool:
        our, their = ours.errors[images], theirs.errors[images]
        variance = our.variance_of_share(tested) + their.variance_of_share(tested)
        return their.mean - our.mean > SIGNIFICANT_SES * math.sqrt(variance)

    by_images = ", ".join(f"{images:,} images {ratios[images].mean:.2f}" for images in shared)
    worst = max(ratios.values(), key=lambda ratio: ratio.mean)
    return Finding(
        worst if math.isfinite(worst.mean) else None,
        records,
        holds=ours.parameters < theirs.parameters and all(is_lower(images) for images in shared),
        remarks=remarks("comparison", "data_efficiency", {}, data),
        notes=[
            f"{ours.run} has {ours.parameters:,.0f} parameters, {theirs.run} {theirs.parameters:,.0f}",
            f"error of {ours.run} / that of {theirs.run}: {by_images}",
        ],
    )


MEASURES: dict[str, Measure] = {"003.params": capsules_need_less}
"""The measure of document 003's claim about parameters and data."""
