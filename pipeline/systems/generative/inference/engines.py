"""Engines (optimisers) of free-form inference: each image's variational parameters maximise its own bound.

    Adam            the paper's method: one presence sample per step, or on the analytic bound
    L-BFGS          on the analytic bound
    Gauss-Newton    on the analytic bound

All share one loop, `climb`. In every round the method proposes a trial state for each active image, evaluates value and
gradient once, and accepts or rejects it for each image separately; no image waits for another's line search. An image
whose best value has improved by less than a tolerance over a few rounds has converged and leaves the batch.

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
from pipeline.systems.generative.inference.gauss_newton import GaussNewtonMethod
from pipeline.systems.generative.inference.l_bfgs import LBFGSMethod
from pipeline.systems.generative.inference.methods import AdamMethod, Method, Task
from pipeline.systems.generative.inference.settings import AdamEngine, Engine, LBFGSEngine


def method_of(engine: Engine) -> Method:
    """The method for an engine's settings."""
    if isinstance(engine, AdamEngine):
        return AdamMethod(engine)
    return LBFGSMethod(engine) if isinstance(engine, LBFGSEngine) else GaussNewtonMethod(engine)


@dataclass
class Climbed:
    """The progress of a climb.

    Attributes:
        states: the best states `[N, V]`, or the last ones if values are noisy.
        values: their negative bounds `[N]`; infinite before the first.
        evaluations: gradient evaluations of each image, `[N]`.
        rounds: rounds of all climbs so far; each has one evaluation of every active image.
        seconds: wall-clock time of the whole batch, without that of `watch`.
    """

    states: Tensor
    values: Tensor
    evaluations: Tensor
    rounds: int
    seconds: float

    @staticmethod
    def start(states: Tensor) -> Climbed:
        """The progress before the first round."""
        counts = torch.zeros(len(states), dtype=torch.long, device=states.device)
        return Climbed(states.clone(), torch.full_like(states[:, 0], math.inf), counts, 0, 0.0)


Watch = Callable[[Climbed], None]
"""Called with the progress so far."""


def climb(task: Task, states: Tensor, engine: Engine, watch: Watch | None = None, at: tuple[int, ...] = ()) -> Climbed:
    """Minimise the negative bound of each image from `states [N, V]`.

    Args:
        watch: called after each number of rounds in `at`, unless the climb has ended before.
    """
    climbed = Climbed.start(states)
    _ascend(task, states, engine, climbed, watch, at)
    for _ in range(0 if isinstance(engine, AdamEngine) else engine.restarts):
        _ascend(task, _kicked(climbed.states, task.generator), engine, climbed, watch, at)
    return climbed


KICK_POSE, KICK_LOGIT = 0.03, 1.0
"""Sds of the perturbation of a converged state, so that it can leave a poor local optimum."""


def _kicked(states: Tensor, generator: Generator) -> Tensor:
    """The states with a small random perturbation."""
    sd = torch.full_like(states, KICK_POSE).unflatten(1, (-1, STATE))
    sd[..., 0] = KICK_LOGIT
    noise = torch.randn(states.shape, generator=generator, device=states.device).to(states.dtype)
    return states + sd.flatten(1) * noise


def _ascend(
    task: Task, states: Tensor, engine: Engine, climbed: Climbed, watch: Watch | None, at: tuple[int, ...]
) -> None:
    """One climb from `states`, recorded in `climbed`, until every image has converged or used all its steps."""
    begun = time.perf_counter()
    method = method_of(engine)
    noisy = isinstance(method, AdamMethod) and method.noisy
    active = torch.arange(len(states), device=states.device)
    best = method.begin(task, states)
    if best.isfinite().any():  # the initial values took one evaluation
        climbed.evaluations += 1
    anchor, waited = best.clone(), torch.zeros_like(active)  # last value that counted as progress, rounds since
    for _ in range(engine.steps):
        state, value = method.step(task)
        climbed.evaluations[active] += 1
        climbed.rounds += 1
        best = torch.minimum(best, value)
        better = torch.ones_like(active, dtype=torch.bool) if noisy else value < climbed.values[active]
        climbed.values[active] = torch.where(better, value, climbed.values[active])
        climbed.states[active] = torch.where(better.unsqueeze(-1), state, climbed.states[active])
        if not noisy:
            risen = best < anchor - engine.tolerance
            anchor = torch.where(risen, best, anchor)
            waited = torch.where(risen, 0, waited + 1)
            working = waited < method.patience
            if not working.all():
                method.keep(working)
                task, active = task.rows(working), active[working]
                best, anchor, waited = best[working], anchor[working], waited[working]
        if watch and climbed.rounds in at:
            climbed.seconds += time.perf_counter() - begun
            watch(climbed)
            begun = time.perf_counter()
        if not len(active):
            break
    climbed.seconds += time.perf_counter() - begun
