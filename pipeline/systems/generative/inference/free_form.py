"""Free-form variational inference: the bound is optimised for each image separately (document 000, section 2.4).

Every image has its own variational parameters: log odds and poses of its parts and objects. The encoder's output gives
their initial values. All images are optimised in one batch. The generative model is fixed. The engines (optimisers) are

    Adam            on the sampled bound (the paper's method), or on the analytic bound
    L-BFGS          on the analytic bound
    Gauss-Newton    on the analytic bound

All engines use the loop `methods.minimise`. After it, the objects alone are optimised (`refine_objects`). L-BFGS and
Gauss-Newton can restart: they add noise to the poses of the best states and repeat both steps. The best result is kept.

Shapes: N images; states `[N, V]`, where V = 7 P + 7 O for P parts and O objects. Values are negative bounds, in nats.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Generator, Tensor

from pipeline.systems.generative.inference.analytic_bound import STATE, pack, unpack
from pipeline.systems.generative.inference.methods import (
    AdamMethod,
    Best,
    GaussNewtonMethod,
    LBFGSMethod,
    Method,
    expected_bound,
    minimise,
    refine_objects,
    value_of,
)
from pipeline.systems.generative.model.distributions import Capsules
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import AdamEngine, Engine, LBFGSEngine

EVALUATION_SAMPLES = 16
"""Number of presence samples for the bounds before and after optimisation. Both use the same samples."""

CURVE_SAMPLES = 4
"""Number of presence samples for the bound during optimisation: the first of the `EVALUATION_SAMPLES` samples."""

CURVE_POINTS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10_000)
"""Rounds after which the bound is measured. It is also measured at the start and after the last round."""

POSE_SD = 0.03
"""Sd of the noise that a restart adds to each component of the poses, to escape from a poor local optimum."""


@torch.no_grad()
def mean_bound(model: GenerativeModel, images: Tensor, posterior: Capsules, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds and squared pixel errors, each `[N]`, averaged over the samples `noise [samples, N, noise_size]`."""
    traces = [expected_bound(model, images, posterior, sample) for sample in noise]
    bound = torch.stack([trace.bound for trace in traces]).mean(0)
    return bound, torch.stack([trace.error for trace in traces]).mean(0)


class Progress(Best):
    """The states kept so far while a batch is minimised (see `Best`), and the work done.

    Attributes:
        once: the states kept before the first restart, `[N, V]`.
        evaluations: number of gradient evaluations per image, `[N]`. Those of `refine_objects` are not counted.
        rounds: number of rounds so far, restarts included. A round has one evaluation per image that has not converged.
        seconds: wall-clock time for the whole batch, without the time in `watch` (see `minimise_bound`).
    """

    def __init__(self, states: Tensor) -> None:
        super().__init__(states)
        self.once = states
        self.evaluations = torch.zeros(len(states), dtype=torch.long, device=states.device)
        self.rounds, self.seconds = 0, 0.0


def minimise_bound(
    model: GenerativeModel,
    images: Tensor,
    states: Tensor,
    engine: Engine,
    generator: Generator,
    watch: Callable[[Progress], None] = lambda progress: None,
    *,
    logit_sd: float = 0.0,
    refine: bool = True,
) -> Progress:
    """Minimise each image's negative bound from `states [N, V]`, in at most `engine.steps` rounds per start or restart.

    Args:
        watch: called with the progress after each round.
        logit_sd: sd of the noise that a restart adds to the log odds of presence. Only a study of this noise sets it.
            Noise of sd 1 exceeds the differences of t0 between images. Without `refine`, most of this noise remains.
        refine: whether `refine_objects` follows each minimisation.
    """
    progress = Progress(states)
    everyone = torch.arange(len(states), device=states.device)
    sd = torch.full_like(states, POSE_SD).unflatten(1, (-1, STATE))
    sd[..., 0] = logit_sd
    begin = states
    for restart in range(1 if isinstance(engine, AdamEngine) else 1 + engine.restarts):
        if restart:
            noise = torch.randn(states.shape, generator=generator, device=states.device)
            begin = progress.states + sd.flatten(1) * noise.to(states.dtype)
        begun = time.perf_counter()
        if isinstance(engine, AdamEngine):
            method: Method = AdamMethod(model, images, engine, generator)
        else:
            progress.evaluations += 1  # for the initial values
            method = GaussNewtonMethod(model, images)
            if isinstance(engine, LBFGSEngine):
                method = LBFGSMethod(model, images, engine.memory)
        for active, best in minimise(method, begin, engine.steps, engine.tolerance):
            progress.evaluations[active] += 1
            progress.rounds += 1
            progress.improve(everyone, best.states, best.values, method.noisy)
            progress.seconds += time.perf_counter() - begun
            watch(progress)
            begun = time.perf_counter()
        if refine:
            refined, rise = refine_objects(model, images, best.states)
            progress.improve(everyone, refined, torch.sub(best.values, rise), method.noisy)
        progress.seconds += time.perf_counter() - begun
        if not restart:
            progress.once = progress.states.clone()
    return progress


@dataclass(frozen=True)
class Optimised:
    """The result of free-form inference for N images. The keys of `posteriors` are "before", "once" (without restarts)
    and "after". The keys of `bounds` and `errors` are "before" and "after".

    Bounds (nats) and squared pixel errors (summed over the pixels), `[N]`, are averages over presence samples that the
    optimisation does not use. So the bound "after" can be below the bound "before".
    """

    posteriors: dict[str, Capsules]
    bounds: dict[str, Tensor]
    errors: dict[str, Tensor]
    evaluations: Tensor  # (N,), gradient evaluations of each image
    seconds: float  # wall-clock time of the minimisation
    curve: pd.DataFrame
    """One row per measured round. Columns: round, evaluations (mean per image so far), seconds, bound and pixel_error
    (means over images). All rounds use the same `CURVE_SAMPLES` samples.
    """


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
    """Maximise the bound of each image with respect to the image's variational parameters.

    An image whose analytic bound does not rise keeps its initial posterior.

    Args:
        model: must have `slots: own` and delta poses. The analytic bound is derived only for these.
        images: `[N, 1, S, S]` in [0, 1], on the model's device.
        engine: the method and its settings.
        generator: draws the noise of presences and of restarts.
        start: the posteriors to start from; by default, the encoder's output.
        logit_sd, refine: see `minimise_bound`.
    """
    model = copy.deepcopy(model).requires_grad_(False)  # only states need gradients
    start = model.encode(images) if start is None else start
    states = pack(start)
    noise = model.draw_noise((EVALUATION_SAMPLES, len(images)), generator)
    points: dict[int, dict[str, float]] = {}

    def watch(progress: Progress, last: bool = False) -> None:
        if last or progress.rounds in (0, *CURVE_POINTS):
            found = mean_bound(model, images, unpack(progress.states, model.params.parts), noise[:CURVE_SAMPLES])
            work = {"evaluations": float(progress.evaluations.float().mean()), "seconds": progress.seconds}
            bound, error = (float(each.mean()) for each in found)
            points[progress.rounds] = {"round": progress.rounds, **work, "bound": bound, "pixel_error": error}

    watch(Progress(states))
    progress = minimise_bound(model, images, states, engine, generator, watch, logit_sd=logit_sd, refine=refine)
    watch(progress, last=True)  # replaces the last round's measurement, made before objects were refined
    better = (value_of(model, images, progress.states)[0] < value_of(model, images, states)[0]).unsqueeze(-1)
    ends = {"once": progress.once, "after": progress.states}
    kept = {when: unpack(torch.where(better, end, states), model.params.parts) for when, end in ends.items()}
    posteriors = {"before": start, **kept}
    measured = {when: mean_bound(model, images, posteriors[when], noise) for when in ("before", "after")}
    bounds, errors = ({when: each[i] for when, each in measured.items()} for i in (0, 1))
    return Optimised(posteriors, bounds, errors, progress.evaluations, progress.seconds, pd.DataFrame(points.values()))
