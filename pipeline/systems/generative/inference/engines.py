"""Engines (optimisers) of free-form inference: each image's variational parameters maximise its own bound.

    Adam            the paper's method: one presence sample per step, or on the analytic bound
    L-BFGS          on the analytic bound
    Gauss-Newton    on the analytic bound

All share one loop, `minimise`. In every round the method proposes a trial state for each active image, evaluates value
and gradient once, and accepts or rejects it for each image separately; no image waits for another's line search. An
image whose best value has improved by less than a tolerance over a few rounds has converged and leaves the batch.

Then the objects are refined (`object_layer`). A restart minimises again from the best state with its poses perturbed,
and counts if the bound then is higher.

Shapes: N images; states `[N, V]`, see `analytic_bound`. Values are negative bounds, in nats: lower is better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.systems.generative.inference.analytic_bound import STATE
from pipeline.systems.generative.inference.l_bfgs import LBFGSMethod
from pipeline.systems.generative.inference.methods import AdamMethod, GaussNewtonMethod, Method, Problem, minimise
from pipeline.systems.generative.inference.object_layer import refine_objects
from pipeline.systems.generative.inference.settings import AdamEngine, Engine, LBFGSEngine


def method_of(engine: Engine) -> Method:
    """The method for an engine's settings."""
    if isinstance(engine, AdamEngine):
        return AdamMethod(engine)
    return LBFGSMethod(engine.memory) if isinstance(engine, LBFGSEngine) else GaussNewtonMethod()


@dataclass
class Progress:
    """How far the minimisation of a batch has come.

    Attributes:
        states: the best states `[N, V]`, or the last ones if values are noisy.
        values: their negative bounds `[N]`; infinite before the first.
        evaluations: gradient evaluations of each image, `[N]`.
        rounds: rounds so far, with those of restarts; each has one evaluation of every active image.
        seconds: wall-clock time of the whole batch, without that of `watch`.
        once: the states `[N, V]` without restarts.
    """

    states: Tensor
    values: Tensor
    evaluations: Tensor
    rounds: int
    seconds: float
    once: Tensor

    @staticmethod
    def start(states: Tensor) -> Progress:
        """The progress before the first round."""
        counts = torch.zeros(len(states), dtype=torch.long, device=states.device)
        return Progress(states.clone(), torch.full_like(states[:, 0], math.inf), counts, 0, 0.0, states)

    def improve(self, active: Tensor, states: Tensor, values: Tensor, noisy: bool) -> None:
        """Keep new `states [n, V]` of the images with the index `active [n]` where they are better, or all if noisy."""
        better = torch.ones_like(active, dtype=torch.bool) if noisy else values < self.values[active]
        self.values[active] = torch.where(better, values, self.values[active])
        self.states[active] = torch.where(better.unsqueeze(-1), states, self.states[active])


def minimise_bound(
    problem: Problem,
    states: Tensor,
    engine: Engine,
    watch: Callable[[Progress], None] = lambda progress: None,
    *,
    logit_sd: float = 0.0,
    refine: bool = True,
) -> Progress:
    """Minimise the negative bound of each image from `states [N, V]`, until it has converged or used all its steps.

    Args:
        watch: called with the progress after each round.
        logit_sd: sd of the noise that a restart adds to the log odds of presence. Only to measure its effect: noise of
            sd 1 is more than images differ by in t0, and if objects are not refined, most of it stays.
        refine: whether objects are refined after each minimisation.
    """
    progress = Progress.start(states)
    everyone = torch.arange(len(states), device=states.device)
    for restart in range(1 if isinstance(engine, AdamEngine) else 1 + engine.restarts):
        begin = _perturbed(progress.states, problem.generator, logit_sd) if restart else states
        begun = time.perf_counter()
        method = method_of(engine)
        if not isinstance(method, AdamMethod):  # the initial values take one evaluation
            progress.evaluations += 1

        def record(active: Tensor, state: Tensor, value: Tensor, noisy: bool = method.noisy) -> None:
            nonlocal begun
            progress.evaluations[active] += 1
            progress.rounds += 1
            progress.improve(active, state, value, noisy)
            progress.seconds += time.perf_counter() - begun
            watch(progress)
            begun = time.perf_counter()

        found, values = minimise(problem, begin, method, engine.steps, engine.tolerance, record)
        if refine:
            refined, rise = refine_objects(problem, found)
            progress.improve(everyone, refined, values - rise, method.noisy)
        progress.seconds += time.perf_counter() - begun
        if not restart:
            progress.once = progress.states.clone()
    return progress


POSE_SD = 0.03
"""Sd of the perturbation of the poses of a converged state, so that it can leave a poor local optimum."""


def _perturbed(states: Tensor, generator: Generator, logit_sd: float) -> Tensor:
    """The states with small random perturbations of the poses, and of the log odds with sd `logit_sd`."""
    sd = torch.full_like(states, POSE_SD).unflatten(1, (-1, STATE))
    sd[..., 0] = logit_sd
    noise = torch.randn(states.shape, generator=generator, device=states.device).to(states.dtype)
    return states + sd.flatten(1) * noise
