"""Engines (optimisers) of free-form inference: each image's variational parameters maximise its own bound.

    Adam            the paper's method: one presence sample per step, or on the analytic bound
    L-BFGS          on the analytic bound
    Gauss-Newton    on the analytic bound

All share one loop, `minimise`. In every round the method proposes a trial state for each active image, evaluates value
and gradient once, and accepts or rejects it for each image separately; no image waits for another's line search. An
image whose best value has improved by less than a tolerance over a few rounds has converged and leaves the batch.

After each climb the objects settle (`object_layer`). A restart climbs again from the best state with its poses
perturbed, and counts if the bound then is higher.

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
from pipeline.systems.generative.inference.methods import AdamMethod, GaussNewtonMethod, Method, Task, minimise
from pipeline.systems.generative.inference.object_layer import settle
from pipeline.systems.generative.inference.settings import AdamEngine, Engine, LBFGSEngine


def method_of(engine: Engine) -> Method:
    """The method for an engine's settings."""
    if isinstance(engine, AdamEngine):
        return AdamMethod(engine)
    return LBFGSMethod(engine.memory) if isinstance(engine, LBFGSEngine) else GaussNewtonMethod()


@dataclass
class Climbed:
    """The progress of a climb.

    Attributes:
        states: the best states `[N, V]`, or the last ones if values are noisy.
        values: their negative bounds `[N]`; infinite before the first.
        evaluations: gradient evaluations of each image, `[N]`.
        rounds: rounds of all climbs so far; each has one evaluation of every active image.
        seconds: wall-clock time of the whole batch, without that of `watch`.
        once: the states `[N, V]` after the first climb, without restarts.
    """

    states: Tensor
    values: Tensor
    evaluations: Tensor
    rounds: int
    seconds: float
    once: Tensor

    @staticmethod
    def start(states: Tensor) -> Climbed:
        """The progress before the first round."""
        counts = torch.zeros(len(states), dtype=torch.long, device=states.device)
        return Climbed(states.clone(), torch.full_like(states[:, 0], math.inf), counts, 0, 0.0, states)

    def improve(self, active: Tensor, states: Tensor, values: Tensor, noisy: bool) -> None:
        """Keep new `states [n, V]` of the images with the index `active [n]` where they are better, or all if noisy."""
        better = torch.ones_like(active, dtype=torch.bool) if noisy else values < self.values[active]
        self.values[active] = torch.where(better, values, self.values[active])
        self.states[active] = torch.where(better.unsqueeze(-1), states, self.states[active])


def climb(
    task: Task,
    states: Tensor,
    engine: Engine,
    watch: Callable[[Climbed], None] = lambda climbed: None,
    *,
    kick_logit: float = 0.0,
    settles: bool = True,
) -> Climbed:
    """Minimise the negative bound of each image from `states [N, V]`.

    Args:
        watch: called with the progress after each round.
        kick_logit: sd of the noise that a restart adds to the log odds of presence. Only to measure its effect: noise
            of sd 1 is more than images differ by in t0, and if objects do not settle, most of it stays.
        settles: whether objects settle after each climb.
    """
    climbed = Climbed.start(states)
    _climb_once(task, states, engine, climbed, watch, settles)
    climbed.once = climbed.states.clone()
    for _ in range(0 if isinstance(engine, AdamEngine) else engine.restarts):
        kicked = _kicked(climbed.states, task.generator, kick_logit)
        _climb_once(task, kicked, engine, climbed, watch, settles)
    return climbed


KICK_POSE = 0.03
"""Sd of the perturbation of the poses of a converged state, so that it can leave a poor local optimum."""


def _kicked(states: Tensor, generator: Generator, kick_logit: float) -> Tensor:
    """The states with small random perturbations of the poses, and of the log odds with sd `kick_logit`."""
    sd = torch.full_like(states, KICK_POSE).unflatten(1, (-1, STATE))
    sd[..., 0] = kick_logit
    noise = torch.randn(states.shape, generator=generator, device=states.device).to(states.dtype)
    return states + sd.flatten(1) * noise


def _climb_once(
    task: Task, states: Tensor, engine: Engine, climbed: Climbed, watch: Callable[[Climbed], None], settles: bool
) -> None:
    """One climb from `states`, recorded in `climbed`, until every image has converged or used all its steps.

    Then the objects settle, and the result counts if it is the best so far.
    """
    begun = time.perf_counter()
    method = method_of(engine)
    if not isinstance(method, AdamMethod):  # the initial values take one evaluation
        climbed.evaluations += 1

    def record(active: Tensor, state: Tensor, value: Tensor) -> None:
        nonlocal begun
        climbed.evaluations[active] += 1
        climbed.rounds += 1
        climbed.improve(active, state, value, method.noisy)
        climbed.seconds += time.perf_counter() - begun
        watch(climbed)
        begun = time.perf_counter()

    found, values = minimise(task, states, method, engine.steps, engine.tolerance, record)
    if settles:
        settled, rise = settle(task, found)
        climbed.improve(torch.arange(len(states), device=states.device), settled, values - rise, method.noisy)
    climbed.seconds += time.perf_counter() - begun
