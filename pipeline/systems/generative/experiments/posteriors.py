"""The benefit of a full variational posterior over poses (document 000, section 2.3).

A guide is the approximate posterior q(z | x) that an encoder computes. Four guides are compared:

- `delta`: the encoder of a trained run. Its poses are points (deltas), which have no density. So bounds are measured
  with Gaussians around these points. Their sds, one for parts and one for objects, are chosen from a grid by the
  highest evidence lower bound on validation images.
- `refined`: an encoder with Gaussian poses. Its training starts from `delta`. The generative model is frozen.
- `control`: an encoder with delta poses, otherwise trained like `refined`. Bounds are measured as for `delta`, with
  the sds of `delta`. This guide shows the effect of further training without Gaussian poses.
- `scratch`: an encoder with Gaussian poses, trained together with a new generative model, for as many epochs as `delta`
  and `refined` together. As in the document, training is fully coupled (`early_coupling: 1`, see
  `GenerativeModel.forward`) and M_ij are not set from images. The other three guides share one generative model.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from pipeline.context import Context
from pipeline.errors import UserError
from pipeline.learning.runs import of_kind
from pipeline.probes.features import batches
from pipeline.probes.generalisation import rotation_probes
from pipeline.results.outcome import Outcome
from pipeline.results.spread import nest, spread, stack_replicas
from pipeline.systems.generative.model.distributions import inverse_softplus
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import GenerativeRun, PosteriorParams


def further(run: GenerativeRun, study: PosteriorParams, pose_posterior: str) -> GenerativeRun:
    """Settings to train the encoder of `run` further, fully coupled, at the final temperature, without `seeding`."""
    return _changed(run, study, study.epochs, pose_posterior=pose_posterior, temperature=run.model.final_temperature)


def scratch(run: GenerativeRun, study: PosteriorParams) -> GenerativeRun:
    """Settings to train `run` anew, `study.epochs` epochs longer, fully coupled, with Gaussian poses and no seeding."""
    epochs = run.training.epochs + study.epochs
    return _changed(run, study, epochs, pose_posterior="gaussian", seeding_epoch=epochs)


def _changed(run: GenerativeRun, study: PosteriorParams, epochs: int, **model: object) -> GenerativeRun:
    changes = {"early_coupling": 1.0, "seeding": None, **model}
    training = run.training.model_copy(update={"epochs": epochs})
    return run.model_copy(
        update={"replicas": study.replicas, "training": training, "model": run.model.model_copy(update=changes)}
    )


def with_gaussian_poses(model: GenerativeModel, part_sd: float, object_sd: float) -> GenerativeModel:
    """Copy a model that has delta poses. The copy's guide has Gaussian poses around the delta poses, with these sds."""
    params = model.params.model_copy(update={"pose_posterior": "gaussian"})
    with torch.random.fork_rng(devices=[]):
        # The seed fixes the hidden layers of the heads that compute sds. Training from the copy is then reproducible.
        torch.manual_seed(0)
        gaussian = GenerativeModel(params, model.image_size)
    state = gaussian.state_dict() | model.state_dict()
    start = inverse_softplus(params.pose_posterior_sd_start)
    for head, sd in (("part_sd_head", part_sd), ("object_sd_head", object_sd)):
        # In a new model, the weights of a head's last layer are zero. So the head's output is the bias of this layer.
        state[f"{head}.2.bias"] = torch.full_like(state[f"{head}.2.bias"], inverse_softplus(sd) - start)
    gaussian.load_state_dict(state)
    return gaussian.to(model.M).eval()


def draw_weights(
    model: GenerativeModel, images: Tensor, samples: int, generator: Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw K = `samples` samples z_k from the guide for each of the images `[B, 1, S, S]`, and weight the samples.

    The log weight of a sample is `log p(x, z_k) - log q(z_k | x)`, with the choice of parent summed out in p. The mean
    of the log weights over k estimates the evidence lower bound. The log of the mean weight estimates a tighter lower
    bound on log p(x) (Burda et al. 2016).

    Returns:
        three tensors `[K, B]`: the log weights, log weights with a normalised density of part poses, and squared errors
        summed over pixels. Use the first to compare guides of one model, and the second to compare models. The first
        has the document's density of part poses, which integrates to Z <= 1 (`model.hierarchy`). This lowers log p(x)
        by an amount that differs between models.
    """
    weights, normalised, errors = torch.empty(3, samples, len(images), device=images.device)
    for k in range(samples):
        # To save memory, these numbers are kept, but not the trace, which also holds the sampled states of all parts.
        trace = model.trace_bound(images, model.draw_noise((len(images),), generator))
        layer = model.parts_given_objects(trace.y0, trace.object_poses)
        weights[k], errors[k] = trace.bound, trace.error
        normalised[k] = trace.bound - trace.log_parts + layer.log_prob(trace.parts, normalised=True)
    return weights, normalised, errors


@torch.no_grad()
def image_bounds(model: GenerativeModel, images: NDArray[np.uint8], samples: int, seed: int) -> pd.DataFrame:
    """Bounds of uint8 images `[N, 1, S, S]`, from `samples` samples per image. There is a row per image, with columns
    elbo, iwae (the tighter bound), elbo_normalised (all three in nats) and pixel_error (squared, summed over pixels).
    """
    generator = torch.Generator(model.device).manual_seed(seed)
    drawn = [draw_weights(model, batch, samples, generator) for batch in batches(images, model.device)]
    weights, normalised, errors = (torch.cat(each, dim=1) for each in zip(*drawn, strict=True))
    columns = {"elbo": weights.mean(0), "iwae": weights.logsumexp(0) - math.log(samples)}
    columns |= {"elbo_normalised": normalised.mean(0), "pixel_error": errors.mean(0)}
    return pd.DataFrame({name: column.double().cpu().numpy() for name, column in columns.items()})


def choose_sds(model: GenerativeModel, validation: NDArray[np.uint8], study: PosteriorParams) -> tuple[float, float]:
    """Choose sds of Gaussians around the delta poses, for parts and for objects: the pair from the study's grid with
    the highest evidence lower bound on the validation images, uint8 `[N, 1, S, S]`.

    Raises:
        UserError: a bound is infinite or NaN.
    """

    def bound(sds: tuple[float, float]) -> float:
        gaussian = with_gaussian_poses(model, *sds)
        found = float(image_bounds(gaussian, validation, study.grid_samples, study.seed)["elbo"].mean())
        if not math.isfinite(found):
            raise UserError(f"sds of parts and objects {sds} give a bound of {found}; mend posterior.*.sd_grid")
        return found

    return max(product(study.sd_grid, study.sd_grid), key=bound)


def measure(context: Context) -> Outcome:
    """Train the guides `control`, `refined` and `scratch`, and measure all four guides.

    Metrics are the columns of `image_bounds`, averaged over the first test images, and the accuracies of probes on all
    clean test images, one for each kind of features (`GenerativeModel.features`).

    Returns:
        a table with one row per replica, metric and guide. The numbers are the metrics by guide, and the chosen sds of
        the Gaussians around delta poses, for parts and for objects.
    """
    study, params = context.settings, context.params
    run = params.runs[study.run]
    assert isinstance(run, GenerativeRun)  # params.yaml was checked
    dataset = context.dataset(run.dataset)
    test, validation = (dataset.part(part)[0] for part in ("test", "validation"))
    delta = context.models(study.run, GenerativeModel, study.replicas)
    sds = [choose_sds(model, validation, study) for model in delta]
    begin = [with_gaussian_poses(model, *sd) for model, sd in zip(delta, sds, strict=True)]
    frozen = begin[0].generative_names()

    def trained(name: str, of: GenerativeRun, start: Sequence[GenerativeModel] = ()) -> list[GenerativeModel]:
        parameters: list[dict[str, Tensor]] = [dict(model.named_parameters()) for model in start]
        _, found = context.train(name, of, start=parameters or None, frozen=frozen if start else ())
        return of_kind(GenerativeModel, found)

    control = trained("control", further(run, study, "delta"), delta)
    models = {
        "delta": begin,
        "control": [with_gaussian_poses(model, *sd) for model, sd in zip(control, sds, strict=True)],
        "refined": trained("refined", further(run, study, "gaussian"), begin),
        "scratch": trained("scratch", scratch(run, study)),
    }

    def measured(model: GenerativeModel) -> pd.DataFrame:
        means = image_bounds(model, test[: study.images], study.samples, study.seed).mean()
        probes = rotation_probes(model, dataset, 0.0, params.evaluate, context.device).set_index("features")["accuracy"]
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
