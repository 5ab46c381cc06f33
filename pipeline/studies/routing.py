"""The routing of a trained capsule network: its iterations one by one, and its assignments in each layer."""

from typing import Any

from pydantic import Field

from pipeline.context import Context
from pipeline.results.outcome import Outcome
from pipeline.settings import Name, Section
from pipeline.shared_params import SharedParams


class RoutingParams(Section):
    """Routing of the class capsules, iteration by iteration, and of every routed layer."""

    run: Name = Field(description="a key of `runs` whose network routes: matrix_capsules, or capsnet with iterations")
    images: int = Field(ge=1, le=10_000_000, description="maximum number of test images (the first ones)")
    iterations: int = Field(
        ge=2, le=1000, description="iterations to follow, at least the network's; more show whether routing settles"
    )


SETTINGS = RoutingParams


def check(params: SharedParams, where: str, study: RoutingParams) -> None:
    """Raise `ValueError` if the run does not route, or has more iterations than the study (`study.iterations`)."""
    from pipeline.systems import ROUTED

    model: Any = params.run_of(f"{where}.run", study.run, *ROUTED).model
    if model.iterations == 0:
        raise ValueError(f"{where}.run: '{study.run}' does not route (model.iterations is 0)")
    if study.iterations < (own := _own_iterations(model)):
        raise ValueError(f"{where}.iterations: must be at least {own}, those of '{study.run}'")


def _own_iterations(model: Any) -> int:
    """Number of iterations that a network with the settings `model` runs, if it routes."""
    # A CapsNet with `counting: updates` counts updates of the routing weights, one fewer than its iterations.
    return int(model.iterations + (getattr(model, "counting", "") == "updates"))


def measure(context: Context) -> Outcome:
    """Follow the routing of the trained run that an entry of `routing` names."""
    from functools import partial

    import torch

    from pipeline.classification.routing import outcome
    from pipeline.layers.images import centre_crop
    from pipeline.learning.model import Model
    from pipeline.systems import SYSTEMS

    settings: RoutingParams = context.settings
    run = context.params.runs[settings.run]
    images, labels = context.evaluated(run.dataset).part("test")
    models = context.models(settings.run, Model)
    pixels = torch.from_numpy(images[: settings.images]).to(context.device).float() / 255
    pixels = centre_crop(pixels, run.augmentation.seen_size(pixels.shape[-1]))
    routing = SYSTEMS[run.variant].part("routing")
    followed = [partial(routing.follow, model, settings.iterations) for model in models]
    layers = [partial(routing.routed_layers, model) for model in models]
    return outcome(followed, layers, _own_iterations(run.model), pixels, labels[: settings.images])
