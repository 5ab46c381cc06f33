"""Engines of free-form inference: how each image's variational parameters climb its own bound.

    Adam            the paper's: one presence sample a step, or steps on the analytic bound
    L-BFGS          on the analytic bound, each image with its own history and line search (Liu & Nocedal 1989)
    Gauss-Newton    on the analytic bound, damped as by Levenberg and Marquardt, each image by itself

All share one loop, `climb`. In every round it asks the method for a trial state of each image still at work, evaluates
value and gradient once, and lets the method accept or reject it image by image; no image waits for another's line
search. An image whose best value has risen by less than a tolerance over a few rounds has converged and leaves the
batch.

Shapes: N images; states `[N, V]`, see `analytic_bound`. Values are negative bounds, in nats: less is better.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pipeline.inference import curvature
from pipeline.inference.analytic_bound import STATE, analytic_bound, unpack
from pipeline.inference.curvature import Linearised
from pipeline.inference.sampled_bound import expected_bound
from pipeline.models.generative import GenerativeModel
from pipeline.params import AdamEngine, Engine, GaussNewtonEngine, LBFGSEngine

_CHUNK = 128
"""Images evaluated together on a CPU, so that what a step writes stays near the processor."""


@dataclass(frozen=True)
class Task:
    """What is to be optimised: the frozen model and some images `[N, 1, S, S]` in [0, 1]."""

    model: GenerativeModel
    images: Tensor
    generator: Generator

    def rows(self, chosen: Tensor) -> Task:
        return Task(self.model, self.images[chosen], self.generator)


Value = tuple[Tensor, Tensor]
"""Negative bounds `[N]` and their gradients `[N, V]`."""


def analytic_value(task: Task, states: Tensor) -> Value:
    """The negative analytic bound and its gradient."""

    def value(model: GenerativeModel, images: Tensor, x: Tensor) -> Tensor:
        return -analytic_bound(model, images, x)

    return _value(task, states, value)


def sampled_value(task: Task, states: Tensor) -> Value:
    """The negative bound estimated with one fresh sample of the presences, and its gradient."""
    noise = task.model.draw_noise((len(states),), task.generator, states.device)

    def value(model: GenerativeModel, images: Tensor, x: Tensor, noise: Tensor) -> Tensor:
        return -expected_bound(model, images, unpack(x, model.params.parts), noise).bound

    return _value(task, states, value, noise)


def _value(task: Task, states: Tensor, function: Callable[..., Tensor], *more: Tensor) -> Value:
    size = len(states) if states.device.type == "cuda" else _CHUNK
    values, gradients = [], []
    for images, state, *others in zip(*(each.split(size) for each in (task.images, states, *more)), strict=True):
        x = state.detach().requires_grad_()
        value = function(task.model, images, x, *others)
        # The sum, not the mean: an image's steps do not depend on how many others are in the batch.
        gradients.append(torch.autograd.grad(value.sum(), x)[0])
        values.append(value.detach())
    return torch.cat(values), torch.cat(gradients)


class Method(ABC):
    """How states move. Its tensors are `[n, ...]`, one row per image still at work."""

    patience: int
    """Rounds without a rise by the tolerance after which an image has converged."""

    state: Tensor
    """`[n, V]`, the states accepted last."""

    @abstractmethod
    def begin(self, task: Task, states: Tensor) -> Tensor:
        """Take the first states; returns their values `[n]`."""

    @abstractmethod
    def step(self, task: Task) -> tuple[Tensor, Tensor]:
        """One evaluation of a trial for each image: the states `[n, V]` and values `[n]` after accepting or not."""

    @abstractmethod
    def keep(self, chosen: Tensor) -> None:
        """Go on with some of the images only."""


class AdamMethod(Method):
    """Adam (Kingma & Ba 2015), its step size falling along a cosine to a tenth so that the last steps settle.

    On the sampled bound every step is taken and none is best, since values are noisy: images work to the end.
    """

    patience = 50

    def __init__(self, settings: AdamEngine) -> None:
        self.settings = settings
        self.noisy = settings.bound == "sampled"
        self.evaluate = sampled_value if self.noisy else analytic_value
        self.count = 0

    def begin(self, task: Task, states: Tensor) -> Tensor:
        self.state = states
        self.first, self.second = torch.zeros_like(states), torch.zeros_like(states)
        return torch.full_like(states[:, 0], math.inf)

    def step(self, task: Task) -> tuple[Tensor, Tensor]:
        # The value belongs to the state before the step.
        before = self.state
        value, gradient = self.evaluate(task, before)
        rate = self.settings.learning_rate * (0.55 + 0.45 * math.cos(math.pi * self.count / self.settings.steps))
        self.count += 1
        self.first = torch.lerp(self.first, gradient, 0.1)
        self.second = torch.lerp(self.second, gradient.square(), 0.001)
        mean = self.first / (1 - 0.9**self.count)
        spread = (self.second / (1 - 0.999**self.count)).sqrt()
        self.state = before - rate * mean / (spread + 1e-8)
        return (self.state, value) if self.noisy else (before, value)

    def keep(self, chosen: Tensor) -> None:
        self.state, self.first, self.second = (each[chosen] for each in (self.state, self.first, self.second))


class LBFGSMethod(Method):
    """Limited-memory BFGS: in each round an image tries a point on its own line, and only its own.

    A trial that rises enough (Armijo) is taken and turns into curvature; a trial that does not halves the step, or
    takes the minimum of the parabola through what is known. Numbers are scaled by the Gauss-Newton curvature's
    diagonal at the start: poses and log odds differ in it by thousands.
    """

    patience = 8
    enough = 1e-4

    def __init__(self, settings: LBFGSEngine) -> None:
        self.settings = settings

    def begin(self, task: Task, states: Tensor) -> Tensor:
        n = len(states)
        found = curvature.linearise(task.model, task.images, states)
        self.scale = found.diagonal().clamp_min(1.0).rsqrt()
        self.state, self.value, self.gradient = states, found.value, found.gradient * self.scale
        shape = (n, self.settings.memory, states.shape[1])
        self.moves, self.changes = states.new_zeros(shape), states.new_zeros(shape)
        self.length = states.new_ones(n)
        self.direction = self._direction()
        return self.value

    def step(self, task: Task) -> tuple[Tensor, Tensor]:
        trial = self.state + self.length.unsqueeze(-1) * self.direction * self.scale
        value, gradient = analytic_value(task, trial)
        gradient = gradient * self.scale
        slope = (self.gradient * self.direction).sum(-1)  # negative: the direction goes down
        taken = value <= self.value + self.enough * self.length * slope  # never true of NaN

        move = self.length.unsqueeze(-1) * self.direction
        change = gradient - self.gradient
        curved = taken & ((move * change).sum(-1) > 1e-8 * change.square().sum(-1))
        self.moves = torch.where(curved[:, None, None], _push(self.moves, move), self.moves)
        self.changes = torch.where(curved[:, None, None], _push(self.changes, change), self.changes)

        # The parabola through the value and slope at 0 and the trial's value; within a tenth and half of the step.
        bend = 2 * (value - self.value - self.length * slope) / self.length
        shorter = torch.where(bend > 0, -slope * self.length / bend, self.length / 2).nan_to_num(0.0)
        shorter = torch.maximum(torch.minimum(shorter, self.length / 2), self.length / 10)
        self.length = torch.where(taken, torch.ones_like(shorter), shorter)
        self.state = torch.where(taken.unsqueeze(-1), trial, self.state)
        self.gradient = torch.where(taken.unsqueeze(-1), gradient, self.gradient)
        self.value = torch.where(taken, value, self.value)
        self.direction = torch.where(taken.unsqueeze(-1), self._direction(), self.direction)
        return self.state, self.value

    def _direction(self) -> Tensor:
        """-H^-1 gradient by the two-loop recursion; empty places of the memory are zero and change nothing."""
        q = self.gradient.clone()
        product = (self.moves * self.changes).sum(-1)  # (n, memory)
        inverse = torch.where(product > 0, 1 / product.clamp_min(1e-30), torch.zeros_like(product))
        shares = []
        for i in range(self.settings.memory):  # the newest first
            share = inverse[:, i] * (self.moves[:, i] * q).sum(-1)
            q = q - share.unsqueeze(-1) * self.changes[:, i]
            shares.append(share)
        newest = self.changes[:, 0].square().sum(-1)
        q = q * torch.where(newest > 0, product[:, 0] / newest.clamp_min(1e-30), torch.ones_like(newest)).unsqueeze(-1)
        for i in reversed(range(self.settings.memory)):
            back = inverse[:, i] * (self.changes[:, i] * q).sum(-1)
            q = q + (shares[i] - back).unsqueeze(-1) * self.moves[:, i]
        return -q

    def keep(self, chosen: Tensor) -> None:
        for name in ("scale", "state", "value", "gradient", "moves", "changes", "length", "direction"):
            setattr(self, name, getattr(self, name)[chosen])


def _push(memory: Tensor, newest: Tensor) -> Tensor:
    """`memory [n, m, V]` with `newest [n, V]` in front and the oldest gone."""
    return torch.cat([newest.unsqueeze(1), memory[:, :-1]], dim=1)


class GaussNewtonMethod(Method):
    """Gauss-Newton with Levenberg and Marquardt's damping: lighter where the quadratic foretold the rise, heavier where
    it did not, and ten times so where there was none.

    The damping never falls to nothing: the routing, which the curvature holds fixed, is not quadratic at all.
    """

    patience = 4
    heaviest, lightest, start = 1e8, 1e-2, 1.0
    floor = 5.0
    """Added to the curvature's diagonal, in nats per unit squared: parts that are off or hidden have next to none."""

    def __init__(self, settings: GaussNewtonEngine) -> None:
        self.settings = settings

    def begin(self, task: Task, states: Tensor) -> Tensor:
        self.state = states
        self.at: Linearised = curvature.linearise(task.model, task.images, states)
        self.damping = torch.full_like(self.at.value, self.start)
        return self.at.value

    def step(self, task: Task) -> tuple[Tensor, Tensor]:
        move = curvature.solve(self.at, self.damping, self.floor)
        trial = self.state + move
        found = curvature.linearise(task.model, task.images, trial)
        # (H + D) move = -gradient, so what the quadratic foretells is half of -gradient move + move D move.
        pull = self.damping.unsqueeze(-1) * self.at.diagonal() + self.floor
        foretold = 0.5 * ((pull * move - self.at.gradient) * move).sum(-1)
        fall = self.at.value - found.value
        taken = fall > 0  # never true of NaN
        ratio = fall / foretold.clamp_min(1e-9)
        factor = torch.where(ratio > 0.75, 0.3, torch.where(ratio < 0.25, 2.0, 0.8))
        self.damping = (self.damping * torch.where(taken, factor, 3.0)).clamp(self.lightest, self.heaviest)
        self.state = torch.where(taken.unsqueeze(-1), trial, self.state)
        self.at = curvature.where(taken, found, self.at)
        return self.state, self.at.value

    def keep(self, chosen: Tensor) -> None:
        self.state, self.damping, self.at = self.state[chosen], self.damping[chosen], self.at.rows(chosen)


def method_of(engine: Engine) -> Method:
    """The method that an engine's settings ask for."""
    if isinstance(engine, AdamEngine):
        return AdamMethod(engine)
    return LBFGSMethod(engine) if isinstance(engine, LBFGSEngine) else GaussNewtonMethod(engine)


@dataclass
class Climbed:
    """Where a climb has come to.

    Attributes:
        states: the best states `[N, V]`, or the last ones where values are noisy.
        values: their negative bounds `[N]`; infinite before the first.
        evaluations: gradient evaluations that each image took, `[N]`.
        rounds: evaluations of the image that took most.
        seconds: wall-clock time of the whole batch, without what `watch` took.
    """

    states: Tensor
    values: Tensor
    evaluations: Tensor
    rounds: int
    seconds: float

    @staticmethod
    def start(states: Tensor) -> Climbed:
        """Nothing done yet."""
        counts = torch.zeros(len(states), dtype=torch.long, device=states.device)
        return Climbed(states.clone(), torch.full_like(states[:, 0], math.inf), counts, 0, 0.0)


Watch = Callable[[Climbed], None]
"""Shown the climb so far."""


def climb(task: Task, states: Tensor, engine: Engine, watch: Watch | None = None, at: tuple[int, ...] = ()) -> Climbed:
    """Lower the negative bound of each image from `states [N, V]`.

    Args:
        watch: called after each number of rounds in `at`, where the climb has not ended before.
    """
    climbed = Climbed.start(states)
    _ascend(task, states, engine, climbed, watch, at)
    for _ in range(engine.restarts if isinstance(engine, GaussNewtonEngine) else 0):
        _ascend(task, _kicked(climbed.states, task.generator), engine, climbed, watch, at)
    return climbed


KICK_POSE, KICK_LOGIT = 0.03, 1.0
"""Sds of what moves a state that has converged, so that it may leave a poor local optimum."""


def _kicked(states: Tensor, generator: Generator) -> Tensor:
    """States a little off."""
    sd = torch.full_like(states, KICK_POSE).unflatten(1, (-1, STATE))
    sd[..., 0] = KICK_LOGIT
    noise = torch.randn(states.shape, generator=generator, device=states.device).to(states.dtype)
    return states + sd.flatten(1) * noise


def _ascend(
    task: Task, states: Tensor, engine: Engine, climbed: Climbed, watch: Watch | None, at: tuple[int, ...]
) -> None:
    """One climb from `states` until every image has converged or taken all its steps, into `climbed`."""
    begun = time.perf_counter()
    method = method_of(engine)
    noisy = isinstance(method, AdamMethod) and method.noisy
    active = torch.arange(len(states), device=states.device)
    best = method.begin(task, states)
    if best.isfinite().any():  # it took an evaluation to know
        climbed.evaluations += 1
    anchor, waited = best.clone(), torch.zeros_like(active)  # the value that counted as a rise last, and rounds since
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
