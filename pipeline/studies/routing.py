"""The routing iterations of a trained capsule network, one by one."""

from __future__ import annotations

from functools import partial

import torch

from pipeline.classification.routing import outcome
from pipeline.classification.settings import RoutingParams
from pipeline.layers.images import centre_crop
from pipeline.learning.model import Model
from pipeline.learning.settings import CropParams
from pipeline.results.outcome import Outcome
from pipeline.studies.context import Context


def measure(context: Context) -> Outcome:
    """Follow the routing of the run of an entry of `routing`, with its trained weights."""
    from pipeline.systems import routing_of

    settings: RoutingParams = context.settings
    run = context.params.runs[settings.run]
    images, labels = context.evaluated(run.dataset).part("test")
    models = context.models(settings.run, Model)
    pixels = torch.from_numpy(images[: settings.images]).to(context.device).float() / 255
    if isinstance(run.augmentation, CropParams):
        pixels = centre_crop(pixels, run.augmentation.crop)
    follow, iterations_of = routing_of(run.variant)
    routed = [partial(follow, model, settings.iterations) for model in models]
    return outcome(routed, iterations_of(models[0]), pixels, labels[: settings.images])
