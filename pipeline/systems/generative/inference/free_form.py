"""Free-form variational inference: the bound is optimised for each image separately (document 000, section 2.4).

Every image has its own variational parameters (log odds and poses of its parts and objects), which start at the
encoder's output. The generative model is not changed; only the guide is replaced. All images are one batch.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Generator, Tensor

from pipeline.systems.generative.inference.analytic_bound import pack, unpack
from pipeline.systems.generative.inference.engines import Progress, minimise_bound
from pipeline.systems.generative.inference.methods import Problem, analytic_value
from pipeline.systems.generative.inference.sampled_bound import mean_bound
from pipeline.systems.generative.inference.settings import Engine
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.model.posteriors import Capsules

EVALUATION_SAMPLES = 16
"""Presence samples over which the bounds before and after are averaged, the same for both."""

CURVE_SAMPLES = 4
"""The first of these samples, over which each point of a curve is averaged."""

CURVE_POINTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10_000)
"""Rounds after which the progress is measured, in addition to the last one."""


@dataclass(frozen=True)
class Optimised:
    """The result of free-form inference of N images.

    Attributes:
        start, once, end: the posteriors before, without restarts, and after the last one.
        bound_start, bound_end: bounds `[N]`, in nats, averaged over the same presence samples. No step and no choice
            used these samples, so that a bound can end below its start.
        error_start, error_end: squared pixel errors `[N]`, summed over the pixels, averaged in the same way.
        evaluations: gradient evaluations of each image, `[N]`.
        seconds: wall-clock time of the minimisation.
        curve: columns round, evaluations (mean per image so far), seconds, bound, pixel_error: means over the images,
            estimated from the same few samples.
    """

    start: Capsules
    once: Capsules
    end: Capsules
    bound_start: Tensor
    bound_end: Tensor
    error_start: Tensor
    error_end: Tensor
    evaluations: Tensor
    seconds: float
    curve: pd.DataFrame


def optimise(
    model: GenerativeModel,
    images: Tensor,
    engine: Engine,
    generator: Generator,
    start: Capsules | None = None,
    *,
    logit_sd: float = 0.0,
    refine: bool = True,
) -> Optimised:
    """Maximise the bound of each image over its own variational parameters.

    An image whose analytic bound ends below its start keeps its start.

    Args:
        images: `[N, 1, S, S]` in [0, 1], on the model's device.
        engine: the method and its settings.
        generator: for the presence samples and restarts.
        start: the posteriors to start from; by default, the encoder's output.
        logit_sd, refine: see `engines.minimise_bound`.

    Raises:
        ValueError: the model has `slots: any` or Gaussian poses, for which there is no analytic bound.
    """
    if model.params.slots != "own" or model.gaussian:
        raise ValueError("free-form inference needs slots: own and pose_posterior: delta")
    model = copy.deepcopy(model).requires_grad_(False)  # no gradients of its own parameters are computed
    start = model.encode(images) if start is None else start
    states = pack(start)
    noise = model.draw_noise((EVALUATION_SAMPLES, len(images)), generator, images.device)
    points: list[dict[str, float]] = []

    def measure(progress: Progress) -> None:
        bound, error = mean_bound(model, images, unpack(progress.states, model.params.parts), noise[:CURVE_SAMPLES])
        work = {"round": progress.rounds, "evaluations": float(progress.evaluations.float().mean())}
        took = {"seconds": progress.seconds, "bound": float(bound.mean()), "pixel_error": float(error.mean())}
        points.append(work | took)

    def watch(progress: Progress) -> None:
        if progress.rounds in CURVE_POINTS:
            measure(progress)

    measure(Progress.start(states))
    problem = Problem(model, images, generator)
    progress = minimise_bound(problem, states, engine, watch, logit_sd=logit_sd, refine=refine)
    if points[-1]["round"] == progress.rounds:  # measured before the objects were refined
        points.pop()
    measure(progress)
    better = (analytic_value(problem, progress.states)[0] < analytic_value(problem, states)[0]).unsqueeze(-1)
    once, end = (
        unpack(torch.where(better, found, states), model.params.parts) for found in (progress.once, progress.states)
    )
    bound_start, error_start = mean_bound(model, images, start, noise)
    bound_end, error_end = mean_bound(model, images, end, noise)
    return Optimised(
        start=start,
        once=once,
        end=end,
        bound_start=bound_start,
        bound_end=bound_end,
        error_start=error_start,
        error_end=error_end,
        evaluations=progress.evaluations,
        seconds=progress.seconds,
        curve=pd.DataFrame(points),
    )
