"""The systems of the documents, one package each; this is the only list of them.

Settings do not import torch, so that checking `params.yaml` is fast; models and reports are imported when needed. To
add a system, see CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, get_args

from pydantic import Field

from pipeline.classification.settings import ClassifierRun
from pipeline.systems.capsnet.settings import CapsNetRun
from pipeline.systems.cnn.settings import CNNRun
from pipeline.systems.generative.settings import GenerativeRun
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.scae.settings import SCAERun
from pipeline.systems.vae.settings import VAERun

if TYPE_CHECKING:
    from torch import Tensor

    from pipeline.classification.routing import Iterations
    from pipeline.learning.evaluation import EvaluationInputs
    from pipeline.learning.model import Model
    from pipeline.learning.settings import RunSettings
    from pipeline.probes.equivariance.actions import Layer
    from pipeline.probes.sweep import SweepInputs
    from pipeline.results.outcome import Outcome

Run = Annotated[
    GenerativeRun | VAERun | SCAERun | CapsNetRun | MatrixCapsulesRun | CNNRun, Field(discriminator="variant")
]
"""One entry of `runs` in params.yaml; `variant` names its system."""

CLASSIFIERS = tuple(
    name
    for kind in get_args(get_args(Run)[0])
    if issubclass(kind, ClassifierRun)
    for name in get_args(kind.model_fields["variant"].annotation)
)
"""Variants that learn from labels."""

MODELS = {
    "generative": "generative_model:GenerativeModel",
    "vae": "vae:VAE",
    "scae": "scae:SCAE",
    "capsnet": "capsnet:CapsNet",
    "matrix_capsules": "matrix_capsules:MatrixCapsules",
    "cnn": "cnn:CNN",
}
"""The model of each system, in its package `model`: module and class."""

SWEEPS = {
    "generative": "pipeline.systems.generative.sweep",
    "vae": "pipeline.probes.sweep",
    "scae": "pipeline.probes.sweep",
    "capsnet": "pipeline.probes.sweep",
}
"""What the stage `sweep` asks of each system that it can train: a module with `sweep`."""

ROUTED = ("capsnet", "matrix_capsules")
"""Systems with a module `routing`: what the stage `routing` follows of their networks."""

REPORTS = {"generative": "000", "capsnet": "001", "attention": "001", "matrix_capsules": "004", "regression": "002"}
"""Systems with a package `report` (`claims.MEASURES`, `figures.draw`, `tables.build`), each with its document's number.

The VAE, SCAE and the convolutional network appear in the reports of those that they are compared with.
"""
COMPARED = {"vae": "000", "scae": "000", "cnn": "004"}
"""Systems without a `report`, each with the document that compares them with its own."""


def build_model(run: RunSettings, image_size: int) -> Model:
    """A freshly initialised model of a run, for square images of `image_size` pixels a side.

    Its initial values come from torch's global random state.
    """
    module, _, name = MODELS[run.variant].partition(":")
    build = getattr(import_module(f"{__name__}.{run.variant}.model.{module}"), name)
    model: Model = build(run.model, run.augmentation.seen_size(image_size))
    return model


def count_parameters(run: RunSettings, image_size: int) -> int | None:
    """Parameters of a run's model, which is built without memory for them; None if it cannot be built so.

    Raises:
        UserError, ValueError, RuntimeError: there is no such model, for example because kernels exceed the images.
    """
    import torch

    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in build_model(run, image_size).parameters())
    except NotImplementedError:  # matrix capsules count what their receptive fields see
        return None


def evaluation_of(variant: str) -> Callable[[EvaluationInputs], Outcome]:
    """What the stage `evaluate` asks of a system."""
    evaluate: Callable[[EvaluationInputs], Outcome] = import_module(f"{__name__}.{variant}.evaluation").evaluate
    return evaluate


def sweep_of(variant: str) -> Callable[[SweepInputs], Outcome]:
    """What the stage `sweep` asks of a system."""
    sweep: Callable[[SweepInputs], Outcome] = import_module(SWEEPS[variant]).sweep
    return sweep


def equivariance_of(variant: str) -> Callable[[Model, Tensor], dict[str, Layer]]:
    """What the stage `equivariance` reads off a system's model: layers by name, given images as the model sees them."""
    read: Callable[[Model, Tensor], dict[str, Layer]] = import_module(f"{__name__}.{variant}.equivariance").read
    return read


def routing_of(variant: str) -> tuple[Callable[[Model, int, Tensor], Iterations], Callable[[Model], int]]:
    """What the stage `routing` follows of a system's model: so many iterations, given images as the model sees them;
    and how many of them the model itself runs.
    """
    module = import_module(f"{__name__}.{variant}.routing")
    return module.follow, module.iterations_of
