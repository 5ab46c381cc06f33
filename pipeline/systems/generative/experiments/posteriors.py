"""The benefit of a full variational posterior over poses (document 000, section 2.3).

Three guides are compared:

- `delta`: the encoder learnt with delta poses, together with the model. A delta has no density, so that its bound is
  on another scale. It is measured with Gaussians around its poses whose two sds, one for all parts and one for all
  objects, are those of a grid with the highest evidence lower bound on validation images.
- `refined`: an encoder with Gaussian poses that starts there and is trained further, the generative model kept.
- `scratch`: model and encoder trained with Gaussian poses from the first step, for as many epochs as the two trainings
  behind `refined` together. It has generative parameters of its own, so its bounds are of another model's log p(x).
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pipeline.learning.runs import of_kind
from pipeline.learning.train import DivergedError
from pipeline.probes.generalisation import rotation_probes
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, spread, stack_replicas
from pipeline.systems.generative.experiments.bounds import image_bounds
from pipeline.systems.generative.model.generative_model import GenerativeModel, inverse_softplus
from pipeline.systems.generative.settings import GenerativeRun

if TYPE_CHECKING:
    from pipeline.studies.context import Context
    from pipeline.systems.generative.studies.posterior import PosteriorParams


def refined(run: GenerativeRun, study: PosteriorParams) -> GenerativeRun:
    """`run` as its encoder is trained further with Gaussian poses: fully coupled, at its last temperature, on the bound
    alone.
    """
    changes = {
        "pose_posterior": "gaussian",
        "early_coupling": 1.0,
        "seeding": None,
        "temperature": run.model.final_temperature,
    }
    return _changed(run, study, study.epochs, changes)


def scratch(run: GenerativeRun, study: PosteriorParams) -> GenerativeRun:
    """`run` as it is trained with Gaussian poses from the first step, for as many epochs as both trainings take."""
    return _changed(run, study, run.training.epochs + study.epochs, {"pose_posterior": "gaussian"})


def _changed(run: GenerativeRun, study: PosteriorParams, epochs: int, model: dict[str, object]) -> GenerativeRun:
    training = run.training.model_copy(update={"epochs": epochs})
    changes = {"replicas": study.replicas, "training": training, "model": run.model.model_copy(update=model)}
    return run.model_copy(update=changes)


def with_gaussian_poses(model: GenerativeModel, part_sd: float, object_sd: float) -> GenerativeModel:
    """A copy of a model with delta poses whose guide has Gaussians of these sds around them."""
    params = model.params.model_copy(update={"pose_posterior": "gaussian"})
    with torch.random.fork_rng(devices=[]):
        # For the hidden layers of the sds' heads: a training that starts here must find itself again.
        torch.manual_seed(0)
        gaussian = GenerativeModel(params, model.image_size)
    state = gaussian.state_dict() | model.state_dict()
    start = inverse_softplus(params.pose_posterior_sd_start)
    for head, sd in (("part_sd_head", part_sd), ("object_sd_head", object_sd)):
        # The last weights are zero in a fresh model: the last biases are all that the heads say.
        state[f"{head}.2.bias"] = torch.full_like(state[f"{head}.2.bias"], inverse_softplus(sd) - start)
    gaussian.load_state_dict(state)
    gaussian.to(model.M)
    return gaussian.eval()


def choose_sds(
    model: GenerativeModel, validation: NDArray[np.uint8], study: PosteriorParams, device: torch.device
) -> tuple[float, float]:
    """The sds of parts and of objects in the study's grid whose Gaussians around a delta guide's poses reach the
    highest evidence lower bound on the validation images.

    Raises:
        DivergedError: a bound is not finite.
    """

    def bound(sds: tuple[float, float]) -> float:
        gaussian = with_gaussian_poses(model, *sds)
        found = float(image_bounds(gaussian, validation, study.grid_samples, study.seed, device)["elbo"].mean())
        if not math.isfinite(found):
            raise DivergedError(f"sds of parts and objects {sds} give a bound of {found}; mend posterior.*.sd_grid")
        return found

    return max(product(study.sd_grid, study.sd_grid), key=bound)


def measure(context: Context) -> Outcome:
    """Train encoders with Gaussian poses from the trained run of the study, and from scratch, and measure each guide.

    Metrics: elbo, iwae, elbo_normalised (nats per image) and pixel_error on the first test images, and the accuracy of
    a probe on each kind of features of clean ones.

    Returns:
        the table has columns replica, metric, value, guide; numbers are by guide and metric, and the sds of parts and
        of objects around delta poses.
    """
    study, params, device = context.settings, context.params, context.device
    run = params.runs[study.run]
    assert isinstance(run, GenerativeRun)  # params.yaml was checked
    dataset = context.dataset(run.dataset)
    test, validation = (dataset.part(part)[0] for part in ("test", "validation"))
    delta = context.models(study.run, GenerativeModel, study.replicas)
    sds = [choose_sds(model, validation, study, device) for model in delta]
    begin = [with_gaussian_poses(model, *sd) for model, sd in zip(delta, sds, strict=True)]
    further = context.train(
        "refined",
        refined(run, study),
        start=[dict(model.named_parameters()) for model in begin],
        frozen=begin[0].generative_names(),
    )
    anew = context.train("scratch", scratch(run, study))
    models = {
        "delta": begin,
        "refined": of_kind(GenerativeModel, further.models),
        "scratch": of_kind(GenerativeModel, anew.models),
    }

    def measured(model: GenerativeModel) -> pd.DataFrame:
        means = image_bounds(model, test[: study.images], study.samples, study.seed, device).mean()
        probes = rotation_probes(model, dataset, 0.0, params.evaluate, device).set_index("features")["accuracy"]
        return pd.concat([means, probes]).rename_axis("metric").rename("value").reset_index()

    table = pd.concat(
        [stack_replicas([measured(model) for model in each]).assign(guide=guide) for guide, each in models.items()]
    )
    numbers = {
        "guide": nest(table, ["guide", "metric"], "value"),
        "delta_sd": {"parts": spread(part for part, _ in sds), "objects": spread(of for _, of in sds)},
    }
    headline = tuple(f"guide.{guide}.{metric}" for guide in models for metric in ("elbo", "iwae", "t0", "t0_A0"))
    return Outcome("posterior", table, numbers, headline)
