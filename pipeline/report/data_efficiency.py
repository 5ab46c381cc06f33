"""Test errors by the number of training images (document 003): what was measured of each run, and a claim's measure."""

from __future__ import annotations

import math

from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import NotMeasuredError, Numbers, Results, training_behind, with_training

ITSELF = "itself"
"""What classifies, where the model does; otherwise a linear probe does."""


def errors_of(item: str, numbers: Numbers) -> tuple[str, str, dict[str, Measured]]:
    """The run of an item; what classifies: the model itself, or the features of the linear probe that is best on all
    images; and the shares of test images misclassified, by the share of training images.
    """
    shares = sorted(numbers.names("share"), key=float)
    how = min(numbers.names("share", shares[-1]), key=lambda way: numbers.at("share", shares[-1], way, "mean"))
    errors = {share: error for share in shares if (error := numbers.measured("share", share, how))}
    return str(numbers.settings.data_efficiency[item].run), how, errors


def _network(results: Results, role: str) -> tuple[str, Numbers, float, dict[int, Measured]]:
    """The run that evidence names for a role, its result, its parameters, and its errors by the number of training
    images. Raises `NotMeasuredError` if one is missing, or if the run does not classify by itself.
    """
    named = results.evidence.comparison.data_efficiency.get(role)
    item, numbers = results.answering("data_efficiency", named)
    run, how, errors = errors_of(item, numbers)
    trained = training_behind(results, numbers, run)
    parameters = trained.number("parameters", "total") if trained else None
    if how != ITSELF or not parameters:
        raise NotMeasuredError(f"{item} is no classifier whose parameters are known")
    return run, numbers, parameters, {int(numbers.at("images", share)): error for share, error in errors.items()}


def capsules_need_less(results: Results) -> Finding | None:
    """Capsules against a convolutional network on the same data: fewer parameters, and on every share an error that is
    lower by more than two standard errors (binomial, of the test images, and over replicas).
    """
    (capsules, ours, size, errors), (cnn, theirs, cnn_size, cnn_errors) = (
        _network(results, role) for role in ("capsules", "cnn")
    )
    data, shared = ours.dataset_of(capsules), sorted(errors.keys() & cnn_errors.keys())
    alike = dataset_label(ours.records) == dataset_label(theirs.records)
    if not alike or len(shared) < 2 or max(shared) < max(*errors, *cnn_errors):
        return None
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
        remarks=remarks("comparison", "data_efficiency", {}, data),
        notes=[
            f"{capsules} has {size:,.0f} parameters, {cnn} {cnn_size:,.0f}",
            f"error of {capsules} / that of {cnn}: {by_images}",
        ],
    )


MEASURES: dict[str, Measure] = {"003.params": capsules_need_less}
"""The measure of document 003's claim about parameters and data."""
