"""Equivariance and invariance of a trained run, measured in the same way for every system (document 003)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline.context import Context
from pipeline.data.datasets import Dataset
from pipeline.learning.settings import CropParams
from pipeline.probes.settings import EquivarianceParams
from pipeline.results.outcome import Outcome
from pipeline.shared_params import SharedParams

if TYPE_CHECKING:
    from torch import Tensor

SETTINGS = EquivarianceParams


def check(params: SharedParams, where: str, study: EquivarianceParams) -> None:
    """Raise `ValueError` if the run is unknown, or if an odd number of pixels separates the sides of its images and of
    their crops, which could then not have the same centre.
    """
    run = params.run_of(f"{where}.run", study.run)
    side = params.images_of(run.dataset).side
    if (side - (crop := run.augmentation.seen_size(side))) % 2:
        raise ValueError(f"{where}.run: {side} pixels of the image minus {crop} of the crop must be even")


def measure(context: Context) -> Outcome:
    """Measure the errors of a run's layers, with trained and with initial weights. The settings name the run."""
    from functools import partial

    import torch

    from pipeline.data.viewpoints import STEPS
    from pipeline.learning.model import Model
    from pipeline.probes.equivariance.errors_by_layer import Images, Steps, outcome, started
    from pipeline.probes.equivariance.transformations import View
    from pipeline.systems import SYSTEMS, build_model

    settings: EquivarianceParams = context.settings
    run, device = context.params.runs[settings.run], context.device
    dataset = context.evaluated(run.dataset)
    models = context.models(settings.run, Model)
    crop = run.augmentation.crop if isinstance(run.augmentation, CropParams) else None

    def seen(indices: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(dataset.images[indices]).to(device).float() / 255

    chosen = dataset.split["test"][: settings.images]
    fit, test = seen(dataset.split["train"][: settings.fit_images]), seen(chosen)
    classes = torch.from_numpy(dataset.labels)
    steps = {}
    for factor, pairs in _steps(dataset, settings).items():
        fitted, tested = (torch.stack([seen(side) for side in each.T]) for each in pairs)
        steps[factor] = Steps(STEPS[factor], fitted, tested, classes[pairs[1][:, 0]].to(device))
    images = Images(fit, test, classes[chosen].to(device), View(crop), steps)
    torch.manual_seed(settings.seed)
    untrained = started(build_model(run, dataset.images.shape[-1]).to(device), images.view.seen(fit))
    read = SYSTEMS[run.variant].part("equivariance").read
    return outcome(models, untrained, lambda model: partial(read, model), images, settings, context.label)


def _steps(dataset: Dataset, settings: EquivarianceParams) -> dict[str, list[NDArray[np.int64]]]:
    """For each factor, two arrays `[N, 2]` of pairs of test images (indices) whose viewpoints differ by one step. The
    images show toys, and the two arrays different toys: the first has up to `fit_images` pairs of one half of the toys,
    the second up to `images` pairs of the other half. A factor is left out if a half has fewer than 8 pairs.
    """
    from pipeline.data.viewpoints import STEPS, neighbours

    part = dataset.split["test"]
    factors = {name: values[part] for name, values in dataset.factors.items()}
    found = {}
    for factor in STEPS:
        pairs = neighbours(dataset.labels[part], factors, factor)
        if len(pairs):
            toys = np.unique(factors["instance"])
            first = np.isin(factors["instance"][pairs[:, 0]], toys[: (len(toys) + 1) // 2])
            halves = [(pairs[first], settings.fit_images), (pairs[~first], settings.images)]
            spread = [part[each[:: -(-len(each) // count)]] for each, count in halves if len(each) >= 8]
            if len(spread) == len(halves):
                found[factor] = spread
    return found
