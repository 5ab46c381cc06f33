"""Measures equivariance and invariance errors, on the same images, for trained and untrained models and `controls`."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from pipeline.learning.model import Model
from pipeline.probes.equivariance import errors
from pipeline.probes.equivariance.actions import FromTheLeft, Layer, Map, Pairs, Read, linear_map
from pipeline.probes.equivariance.controls import controls
from pipeline.probes.equivariance.transformations import FAMILIES, ROTATION, Transformation, View, velocity
from pipeline.probes.settings import EquivarianceParams
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import nest, stack_replicas

OWN, FITTED, INVARIANCE, RESAMPLING = "own", "fitted", "invariance", "resampling"
"""Names of measures, for a layer f, an image x and a transformation g. Three measures predict f(g x) from f(x): `OWN`
by the action that theory gives, `FITTED` by a fitted linear map, and `INVARIANCE` by f(x) itself. `RESAMPLING` predicts
f(x) by f of the image that is moved by g and back. Its errors come only from resampling and the edges of images.
"""
TRAINED, UNTRAINED = "trained", "untrained"
FINITE, DERIVATIVE = "finite", "derivative"
"""Kinds of errors: in predicting f(g x), or its derivative at g = identity, per unit of `transformations.UNITS`."""
BATCH = 250
STEP = 1e-5
"""Largest change of a pixel in a central difference. It can be small, because images are in double precision."""

Layers = Mapping[str, Layer]
Sides = Sequence[Layers]
"""Two entries: the layers for images before a change, and the layers for the changed images."""
Row = dict[str, Any]
COLUMNS = ("error", "se", "within", "within_se")


@dataclass(frozen=True)
class Images:
    """Images `[N, C, S, S]` in [0, 1] on the device, and the part of an image that a model sees (`view`).

    Attributes:
        fit: training images, to which linear maps are fitted.
        test: test images, on which errors are measured.
        classes: classes of the test images, `[N]`.
        steps: pairs of test images whose viewpoints differ by one step, by the factor that differs (such as azimuth).
            Maps are fitted to pairs of some toys (photographed objects). Errors are measured on pairs of other toys.
    """

    fit: Tensor
    test: Tensor
    classes: Tensor
    view: View
    steps: Mapping[str, "Steps"] = field(default_factory=dict)


@dataclass(frozen=True)
class Steps:
    """Pairs of images of one toy in the same light, before and after a step of the viewpoint.

    Attributes:
        degrees: size of the step, in degrees.
        fit: pairs `[2, N, C, S, S]` that maps are fitted to.
        test: pairs `[2, N, C, S, S]` of other toys. Errors are measured on these pairs.
        classes: classes of the test pairs, `[N]`.
    """

    degrees: int
    fit: Tensor
    test: Tensor
    classes: Tensor


@torch.no_grad()
def started(model: Model, images: Tensor) -> Model:
    """Set the values that training sets without gradients, such as means of batch norm. Returns the model in eval mode.

    Args:
        images: training images as the model sees them, from which the values are computed.
    """
    if count := model.beginning_images(0):
        model.begin_epoch(images[:count])
    if model.statistics_images:
        some = images[: model.statistics_images]
        model.end_epoch(some, len(some))
    return model.eval()


def outcome(
    models: Sequence[Model],
    untrained: Model,
    read_of: Callable[[Model], Read],
    images: Images,
    settings: EquivarianceParams,
    title: str = "equivariance",
) -> Outcome:
    """Measure all errors. The table has a row per subject (trained, untrained, control), replica, layer, change
    and measure.

    Args:
        models: trained models, one per replica.
        untrained: a model with the same settings and with initial weights.
        read_of: returns the function that computes a model's layers (`equivariance.read` of its system).
    """
    from tqdm import tqdm

    tables, about = [], []

    def readers(model: Model) -> tuple[Read, Read]:
        return read_of(model), read_of(copy.deepcopy(model).double())

    subjects: list[tuple[str, Sequence[tuple[Read, Read]], bool]] = [
        (TRAINED, [readers(model) for model in models], True),
        (UNTRAINED, [readers(untrained)], False),
        *((name, [(read, read)], True) for name, read in controls(images.view.edge).items()),
    ]
    for subject, replicas, resampled in tqdm(subjects, desc=title, unit="subject"):
        measured, layers = zip(*(_measure(*each, images, settings, resampled) for each in replicas), strict=True)
        tables.append(stack_replicas(measured).assign(subject=subject))
        about.append(stack_replicas(layers).assign(subject=subject))
    table = pd.concat(tables, ignore_index=True)
    columns = ["subject", "layer", "measure", "family", "magnitude"]
    table = table[["subject", "replica", "kind", *columns[1:], *COLUMNS]]
    finite, derivatives = (table[table["kind"] == kind] for kind in (FINITE, DERIVATIVE))
    numbers: dict[str, Any] = {  # not "error": DVC takes a key of that name for a file that it could not read
        "relative_error": nest(finite, columns, "error"),
        "relative_error_se": nest(finite, columns, "se"),
        "within_classes": nest(finite, columns, "within"),
        "within_classes_se": nest(finite, columns, "within_se"),
        "derivative": nest(derivatives, columns[:-1], "error"),
        "derivative_se": nest(derivatives, columns[:-1], "se"),
        "layers": nest(pd.concat(about, ignore_index=True), ["subject", "layer", "about"], "value"),
        "images": {
            "test": len(images.test),
            "fit": len(images.fit),
            **{
                factor: {"test": len(steps.classes), "fit": steps.fit.shape[1]}
                for factor, steps in images.steps.items()
            },
        },
    }
    headline = [  # the trained layers' errors at the first rotation
        f"relative_error.{TRAINED}.{layer}.{measure}.{ROTATION}.{next(iter(families[ROTATION]))}"
        for layer, measures in numbers["relative_error"].get(TRAINED, {}).items()
        for measure, families in measures.items()
        if measure != RESAMPLING
    ]
    return Outcome("equivariance", table, numbers, tuple(headline[:MOST_HEADLINES]))


def _measure(
    read: Read, exact: Read, images: Images, settings: EquivarianceParams, resampled: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two tables for one model or control: the errors, and the `variation` and `dimensions` of each layer.

    Args:
        exact: the same function as `read`, but in double precision, for derivatives.
        resampled: whether `RESAMPLING` is measured as well.
    """
    view = images.view
    fit, test = (_read(read, view.seen(each)) for each in (images.fit, images.test))
    about = [
        {"layer": name, "about": key, "value": measure(layer.numbers, layer.weights)}
        for name, layer in test.items()
        for key, measure in (("variation", errors.variation), ("dimensions", errors.dimensions))
    ]
    kept = _not_collapsed(test)
    size = view.size(images.test)

    def compared(
        family: str, magnitude: str, matrix: Tensor | None, fit: Sides, test: Sides, classes: Tensor
    ) -> Iterator[Row]:
        """Yield rows with the errors for one change of images. `matrix` is None if it is a step of the viewpoint."""
        for name in kept:
            (before, after), (fit_before, fit_after) = ([side[name] for side in sides] for sides in (test, fit))
            weights = (before.weights + after.weights) / 2
            pairs = Pairs(fit_before.numbers, fit_after.numbers, (fit_before.weights + fit_after.weights) / 2)
            action = before.action
            if matrix is None and not isinstance(action, FromTheLeft):
                action = None  # theory gives no matrix for a step of the viewpoint; only `FromTheLeft` fits its own
            rho = action.finite(torch.empty(0) if matrix is None else matrix, pairs) if action else None
            scales = [
                (errors.deviations(before.numbers, weights, of) + errors.deviations(after.numbers, weights, of)) / 2
                for of in (None, classes)
            ]
            row = {"kind": FINITE, "layer": name, "family": family, "magnitude": magnitude}
            predictions = _predictions(before, pairs, rho, settings) | {INVARIANCE: before.numbers}
            yield from _rows(row, after.numbers, predictions, weights, scales, settings)

    rows: list[Row] = []
    magnitudes = (settings.rotations, settings.shifts, settings.scales, settings.shears)
    for g in (Transformation(family, each) for family, of in zip(FAMILIES, magnitudes, strict=True) for each in of):
        moved_fit, moved = (_read(read, view.moved(each, g)) for each in (images.fit, images.test))
        rows += compared(g.family, g.name, g.matrix(size), (fit, moved_fit), (test, moved), images.classes)
        if resampled:
            again = _read(read, view.there_and_back(images.test, g))
            for name, before in kept.items():
                row = {"kind": FINITE, "layer": name, "family": g.family, "magnitude": g.name}
                scales = [errors.deviations(before.numbers, before.weights, of) for of in (None, images.classes)]
                rows += _rows(row, before.numbers, {RESAMPLING: again[name].numbers}, before.weights, scales, settings)
    for factor, steps in images.steps.items():
        fitted, tested = ([_read(read, view.seen(side)) for side in pairs] for pairs in (steps.fit, steps.test))
        rows += compared(factor, str(steps.degrees), None, fitted, tested, steps.classes)
    rows += _derivatives(exact, images, settings)
    return pd.DataFrame(rows), pd.DataFrame(about)


def _not_collapsed(layers: Layers) -> Layers:
    """Layers whose values differ enough between images (`errors.COLLAPSED`)."""
    varied = {name: errors.variation(layer.numbers, layer.weights) for name, layer in layers.items()}
    return {name: layer for name, layer in layers.items() if varied[name] >= errors.COLLAPSED}


def _predictions(before: Layer, pairs: Pairs, rho: Map | None, settings: EquivarianceParams) -> dict[str, Tensor]:
    """Predictions of values after a move, or of derivatives: `OWN` if `rho` is given, `FITTED` if `before.fitted`."""
    found = {OWN: rho(before.numbers)} if rho else {}
    if before.fitted:
        found[FITTED] = linear_map(pairs, settings.penalties)(before.numbers)
    return found


def _derivatives(read: Read, images: Images, settings: EquivarianceParams) -> list[Row]:
    """Rows with the errors of predicted Lie derivatives, for each family and layer."""
    view = images.view
    fit, test = (each[: settings.derivative_images].double() for each in (images.fit, images.test))
    at_fit, at_test = (_read(read, view.seen(each)) for each in (fit, test))
    kept = _not_collapsed(at_test)
    rows: list[Row] = []
    for family in FAMILIES:
        change_fit, change = (changes(read, view.seen(each), view.moving(each, family)) for each in (fit, test))
        for name, before in kept.items():
            pairs = Pairs(at_fit[name].numbers, change_fit[name], at_fit[name].weights)
            rho = before.action.generator(velocity(family, view.size(test)), pairs) if before.action else None
            scale = errors.deviations(before.numbers, before.weights)
            predictions = _predictions(before, pairs, rho, settings) | {INVARIANCE: torch.zeros_like(before.numbers)}
            row = {"kind": DERIVATIVE, "layer": name, "family": family, "magnitude": ""}
            rows += _rows(row, change[name], predictions, before.weights, [scale], settings)
    return rows


def _rows(
    row: Row,
    truth: Tensor,
    predictions: Mapping[str, Tensor],
    weights: Tensor,
    scales: Sequence[Tensor],
    settings: EquivarianceParams,
) -> Iterator[Row]:
    """For each measure, yield a copy of `row` with the errors of the measure's prediction of `truth`. `scales` has one
    or two tensors `errors.deviations [N]`: from the mean of all images and, optionally, from the means of classes.
    """
    for measure, prediction in predictions.items():
        off = errors.squared(truth - prediction, weights)
        found = (errors.relative(off, scale, settings.resamples, settings.seed) for scale in scales)
        yield row | {"measure": measure} | dict(zip(COLUMNS, chain.from_iterable(found), strict=False))


@torch.no_grad()
def _read(read: Read, seen: Tensor) -> dict[str, Layer]:
    """The layers by name for the images `seen`, computed in batches."""
    batches = [read(batch) for batch in seen.split(BATCH)]
    return {
        name: replace(
            layer,
            numbers=torch.cat([each[name].numbers for each in batches]),
            weights=torch.cat([each[name].weights for each in batches]),
        )
        for name, layer in batches[0].items()
    }


def changes(read: Read, seen: Tensor, directions: Tensor) -> dict[str, Tensor]:
    """Derivatives of layers' values as images `seen` change along `directions` of the same shape (Gruver et al. 2022).

    The result is (f(x + h u) - f(x - h u)) / 2h for images x (double precision), directions u and h = `STEP` / max |u|.
    Automatic differentiation would fail if a network stops gradients or has operations without a forward mode.
    """
    h = STEP / float(directions.abs().max().clamp_min(1e-30))
    below, above = (_read(read, seen + sign * h * directions) for sign in (-1, 1))
    return {name: (above[name].numbers - below[name].numbers) / (2 * h) for name in above}
