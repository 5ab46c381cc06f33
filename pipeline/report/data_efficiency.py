"""Compares test errors by number of training images: draws all systems, and measures a claim of document 003."""

import math
from collections.abc import Iterator
from functools import partial

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import in_house_style, panels
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import NotMeasuredError, Numbers, Results, training_behind, with_training
from pipeline.systems import SYSTEMS

DOCUMENT = "003"
"""Number of the document that makes the claim."""
ITSELF = "itself"
"""Errors have this key in a result if the model itself classifies. If a probe does, the key names its features."""


def errors_of(item: str, numbers: Numbers) -> tuple[str, str, dict[str, Measured]]:
    """The name of an item's run, the classifier, and the test errors (0 to 1) by share of the training images, such as
    "0.1". The classifier is `ITSELF` or, with probes, the name of the features that the first probe uses.
    """
    shares = sorted(numbers.names("share"), key=float)
    how = numbers.names("share", shares[-1])[0]
    errors = {share: error for share in shares if (error := numbers.measured("share", share, how))}
    return numbers.settings.data_efficiency[item].run, how, errors


def draw(results: Results) -> Iterator[Drawing]:
    """Yield one figure of all systems. Yields nothing if no item of the study was executed."""
    if measured := dict(results.executed("data_efficiency")):
        yield Drawing(
            "data-efficiency",
            "svg",
            "Test error against the number of training images",
            "Models are trained on shares of the images, with an equal number of steps for each share. If these are "
            "fewer steps than in other figures, errors are higher than there. Bars are one sd over seeds. If a model "
            "learns without labels, the error is that of a linear probe on one set of its features, fitted to the "
            "same share of images.",
            "Test error against the number of training images: a panel for each data set, a series for each run.",
            [record for numbers in measured.values() for record in numbers.records],
            partial(errors_over_images, measured),
        )


@in_house_style
def errors_over_images(measured: dict[str, Numbers]) -> Figure:
    """Draw a panel for each data set. All panels share the error axis. A line joins three or more markers of a run."""
    datasets = list(dict.fromkeys(dataset_label(numbers.records) for numbers in measured.values()))
    figure, axes = panels(len(datasets), 2.6, sharey=True)
    for axis, dataset in zip(axes, datasets, strict=True):
        ticks = set()
        for item, numbers in measured.items():
            if dataset_label(numbers.records) != dataset:
                continue
            run, _, errors = errors_of(item, numbers)
            images = [int(numbers.at("images", share)) for share in errors]
            means, sds = [100 * each.mean for each in errors.values()], [100 * each.sd for each in errors.values()]
            system, dashes = SYSTEMS[numbers.run(run).variant], "-" if len(errors) > 2 else ""
            axis.errorbar(images, means, sds, color=system.colour, marker=system.marker, linestyle=dashes, label=run)
            ticks |= {*images}
        axis.set_xscale("log")
        axis.set_xticks(sorted(ticks), [f"{count:,}" for count in sorted(ticks)])
        axis.set_xticks([], minor=True)
        axis.margins(x=0.15)
        axis.set(xlabel="training images", title=dataset)
        axis.legend()
    errors_axis = axes[0]
    errors_axis.set(yscale="log", ylabel="test error (%)")
    errors_axis.margins(y=0.1)
    low, high = errors_axis.get_ylim()  # more ticks if errors span less than a factor of 10
    errors_axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7)))
    errors_axis.yaxis.set_minor_locator(NullLocator())
    errors_axis.yaxis.set_major_formatter("{x:g}")
    return figure


def _network(results: Results, role: str) -> tuple[str, Numbers, float, float, dict[int, Measured]]:
    """Facts on the item that params.yaml names as evidence for `role` ("capsules" or "cnn"): the run's name, the item's
    numbers and its epochs divided by the run's, the number of parameters, and the test errors by number of training
    images. Raises `NotMeasuredError` if the item or number of parameters is missing, or the network is no classifier.
    """
    named = results.evidence.comparison.data_efficiency.get(role)
    item, numbers = results.answering("data_efficiency", named)
    run, how, errors = errors_of(item, numbers)
    trained = training_behind(results, numbers, run)
    parameters = trained.number("parameters", "total") if trained else None
    if how != ITSELF or not parameters:
        raise NotMeasuredError(f"{run} is no classifier, or its training has no result with these settings")
    length = numbers.settings.data_efficiency[item].epochs / numbers.run(run).training.epochs
    by_images = {int(numbers.at("images", share)): error for share, error in errors.items()}
    return run, numbers, length, parameters, by_images


def capsules_need_less(results: Results) -> Finding:
    """Divide the capsules' test error by the CNN's at each number of training images that both have. Our number is the
    largest ratio. The claim holds if the capsules have fewer parameters and, at each of these numbers, an error that is
    lower by more than two standard errors of the difference. Raises `NotMeasuredError` if the networks differ in data
    set or largest number of images, or if fewer than two numbers of images are common to both.
    """
    (capsules, ours, length, size, errors), (cnn, theirs, cnn_length, cnn_size, cnn_errors) = (
        _network(results, role) for role in ("capsules", "cnn")
    )
    data, shared = ours.dataset_of(capsules), sorted(errors.keys() & cnn_errors.keys())
    alike = dataset_label(ours.records) == dataset_label(theirs.records)
    if not alike or len(shared) < 2 or max(shared) < max(*errors, *cnn_errors):
        raise NotMeasuredError(
            "the two networks differ in data set or in largest number of images, or share fewer than two numbers"
        )
    pairs = [(errors[images], cnn_errors[images]) for images in shared]
    ratios = [our.over(their) for our, their in pairs]
    noise = [math.sqrt(sum(each.variance_of_share(int(data.test)) for each in pair)) for pair in pairs]
    lower = [their.mean - our.mean > SIGNIFICANT_SES * se for (our, their), se in zip(pairs, noise, strict=True)]
    by_images = ", ".join(f"{images:,} images {each.mean:.2f}" for images, each in zip(shared, ratios, strict=True))
    worst = max(ratios, key=lambda ratio: ratio.mean)
    return Finding(
        worst if math.isfinite(worst.mean) else None,
        [*with_training(results, ours, capsules), *with_training(results, theirs, cnn)],
        holds=size < cnn_size and all(lower),
        remarks=remarks("comparison", "data_efficiency", {"training_share": min(length, cnn_length)}, data),
        notes=[
            f"{capsules} has {size:,.0f} parameters, {cnn} {cnn_size:,.0f}",
            f"error of {capsules} divided by the error of {cnn}: {by_images}",
        ],
    )


MEASURES: dict[str, Measure] = {"003.params": capsules_need_less}
