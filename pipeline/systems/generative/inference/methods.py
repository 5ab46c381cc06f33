"""Methods of free-form inference, with the loop that runs them: Adam (as in document 000), L-BFGS and Gauss-Newton.

Every image has its own posterior. The parameters of this posterior are the image's state, which is optimised. The bound
is estimated from a sample of the presences (`expected_bound`), or the noise is integrated out (`analytic_bound`).

Shapes: N images, n of them active (not yet converged); states `[N, V]`, where V = 7 P + 7 O for P parts and O objects
(see `analytic_bound`). Values are negative bounds, in nats.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyro
import pyro.distributions as dist
import torch
from torch import Generator, Tensor

from pipeline.systems.generative.inference import curvature
from pipeline.systems.generative.inference.analytic_bound import (
    STATE,
    analytic_bound,
    hierarchy_bound,
    presence_moments,
    unpack,
)
from pipeline.systems.generative.model.distributions import BoundTrace, Capsules, PartPosterior, RelaxedPresence
from pipeline.systems.generative.model.generative_model import GenerativeModel
from pipeline.systems.generative.settings import AdamEngine

_CHUNK = 128
"""Number of images evaluated at a time. It is small enough for their arrays to fit the CPU's cache."""


def expected_bound(model: GenerativeModel, images: Tensor, posterior: Capsules, noise: Tensor) -> BoundTrace:
    """The bound and its terms for a `posterior` with delta poses, from one sample `noise [N, P + O]` per image."""
    P, temperature = model.params.parts, model.temperature

    def guide() -> None:
        with pyro.plate("images", len(images)):
            presence = RelaxedPresence(posterior.part_logits, temperature, noise[:, :P])
            pyro.sample("parts", PartPosterior(presence, posterior.part_poses))
            pyro.sample("y0", RelaxedPresence(posterior.object_logits, temperature, noise[:, P:]).to_event(1))
            pyro.sample("A0", dist.Delta(posterior.object_poses, event_dim=2))

    return model.trace_bound(images, noise, guide=guide)


def value_of(
    model: GenerativeModel, images: Tensor, states: Tensor, noise: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The negative bound `[N]` and its gradient `[N, V]`. Without `noise`, the bound is analytic. With
    `noise [N, P + O]`, the bound is estimated from one sample of the presences.
    """
    values, gradients = [], []
    given = (images, states) if noise is None else (images, states, noise)
    for image, state, *sample in zip(*(each.split(_CHUNK) for each in given), strict=True):
        x = state.detach().requires_grad_()
        if sample:
            value = -expected_bound(model, image, unpack(x, model.params.parts), *sample).bound
        else:
            value = -analytic_bound(model, image, x)
        # The sum is differentiated, not the mean, so that an image's steps do not depend on the batch size.
        gradients.append(torch.autograd.grad(value.sum(), x)[0])
        values.append(value.detach())
    return torch.cat(values), torch.cat(gradients)


class Method(ABC):
    """An update rule for the states of images `[N, 1, S, S]` in [0, 1]. The model is fixed. All attributes that are
    tensors have the shape `[n, ...]`, with one row per active image.
    """

    patience: float
    """An image has converged after this number of rounds without an improvement by more than the tolerance."""

    noisy = False
    """Whether values are estimated with samples. If so, the last state is kept, not the best."""

    def __init__(self, model: GenerativeModel, images: Tensor) -> None:
        self.model, self.images = model, images

    @abstractmethod
    def begin(self, states: Tensor) -> Tensor:
        """Set the initial states. Returns their values `[n]`, infinite if `begin` does not evaluate them."""

    @abstractmethod
    def step(self) -> tuple[Tensor, Tensor]:
        """Evaluate one trial state per image, and accept or reject it. Returns states `[n, V]` and values `[n]`."""

    def keep(self, chosen: Tensor) -> None:
        """Keep only the images for which the mask `chosen [n]` is true."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[chosen])


class Best:
    """The best states so far, `[N, V]` (the last if values are noisy), and their values `[N]`, at first infinite."""

    def __init__(self, states: Tensor) -> None:
        self.states, self.values = states.clone(), torch.full_like(states[:, 0], math.inf)

    def improve(self, active: Tensor, states: Tensor, values: Tensor, noisy: bool) -> None:
        """Replace states of the images `active [n]` (indices) by `states [n, V]` if these are better, or if `noisy`."""
        better = torch.ones_like(active, dtype=torch.bool) if noisy else values < self.values[active]
        self.values[active] = torch.where(better, values, self.values[active])
        self.states[active] = torch.where(better.unsqueeze(-1), states, self.states[active])


def minimise(method: Method, states: Tensor, steps: int, tolerance: float) -> Iterator[tuple[Tensor, Best]]:
    """Let `method` minimise the value of each image, starting from `states [N, V]`, in at most `steps` rounds.

    In a round, the method proposes a trial state for each active image, evaluates its value and gradient once, and
    accepts or rejects it separately. So no image waits for the line search of another image. An image has converged,
    and leaves the batch, if its best value has not fallen by more than `tolerance` over `method.patience` rounds.

    Yields:
        after each round, the indices of the images that took part in the round, and the best states so far.
    """
    active, best = torch.arange(len(states), device=states.device), Best(states)
    best.values = method.begin(states).clone()
    anchor, waited = best.values.clone(), torch.zeros_like(active)  # value at the last improvement, and rounds since
    for _ in range(steps):
        best.improve(active, *method.step(), method.noisy)
        yield active, best
        fallen = best.values[active] < anchor - tolerance
        anchor = torch.where(fallen, best.values[active], anchor)
        waited = torch.where(fallen, 0, waited + 1)
        working = waited < method.patience
        if not working.all():
            method.keep(working)
            active, anchor, waited = active[working], anchor[working], waited[working]
        if not len(active):
            break


class AdamMethod(Method):
    """Adam (Kingma & Ba 2015) with cosine decay of the step size to a tenth, so that the last steps converge.

    Every step is accepted. With the sampled bound, which is too noisy to compare states, the last state is kept.
    """

    patience = 50.0

    def __init__(self, model: GenerativeModel, images: Tensor, settings: AdamEngine, generator: Generator) -> None:
        super().__init__(model, images)
        self.settings, self.generator, self.count = settings, generator, 0
        if settings.bound == "sampled":
            self.noisy, self.patience = True, math.inf

    def begin(self, states: Tensor) -> Tensor:
        self.state = states
        self.first, self.second = torch.zeros_like(states), torch.zeros_like(states)
        return torch.full_like(states[:, 0], math.inf)

    def step(self) -> tuple[Tensor, Tensor]:
        # The value belongs to the state before the step.
        before = self.state
        noise = self.model.draw_noise((len(before),), self.generator) if self.noisy else None
        value, gradient = value_of(self.model, self.images, before, noise)
        rate = self.settings.learning_rate * (0.55 + 0.45 * math.cos(math.pi * self.count / self.settings.steps))
        self.count += 1
        self.first = torch.lerp(self.first, gradient, 0.1)
        self.second = torch.lerp(self.second, gradient.square(), 0.001)
        mean = self.first / (1 - 0.9**self.count)
        spread = (self.second / (1 - 0.999**self.count)).sqrt()
        self.state = before - rate * mean / (spread + 1e-8)
        return (self.state, value) if self.noisy else (before, value)


class LBFGSMethod(Method):
    """Limited-memory BFGS (Liu & Nocedal 1989). In each round, every image tries one point of its own line search.

    A trial state is accepted if the value decreases sufficiently (Armijo's condition). An accepted trial updates the
    curvature estimate if the slope has risen along the step. After a rejected trial, the step is shortened to the
    minimum of a parabola. The curvatures of poses and of log odds differ by a factor of thousands. So the variables are
    scaled by the inverse square root of their initial Gauss-Newton curvature.
    """

    patience = 8

    def __init__(self, model: GenerativeModel, images: Tensor, memory: int) -> None:
        super().__init__(model, images)
        self.memory = memory

    def evaluate(self, states: Tensor, first: bool = False) -> tuple[Tensor, ...]:
        """The values `[n]` and their gradients `[n, V]`. With `first`, also the curvature's diagonal `[n, V]`."""
        if not first:
            return value_of(self.model, self.images, states)
        found = curvature.linearise(self.model, self.images, states)
        return found.value, found.gradient, found.diagonal()

    def begin(self, states: Tensor) -> Tensor:
        value, gradient, diagonal = self.evaluate(states, first=True)
        self.scale = diagonal.clamp_min(1.0).rsqrt()
        self.state, self.value, self.gradient = states, value, gradient * self.scale
        self.moves, self.changes = states.new_zeros(2, len(states), self.memory, states.shape[1]).unbind()
        self.length = states.new_ones(len(states))
        self.direction = self._direction()
        return self.value

    def step(self) -> tuple[Tensor, Tensor]:
        move = self.length.unsqueeze(-1) * self.direction
        trial = self.state + move * self.scale
        value, gradient = self.evaluate(trial)
        gradient = gradient * self.scale
        slope = (self.gradient * self.direction).sum(-1)  # negative: a descent direction
        taken = value <= self.value + 1e-4 * self.length * slope  # sufficient decrease; False for NaN

        change = gradient - self.gradient
        curved = taken & ((move * change).sum(-1) > 1e-8 * change.square().sum(-1))
        # The newest move, and the change of the gradient over it, come first. The oldest move and change are dropped.
        moves = torch.cat([move.unsqueeze(1), self.moves[:, :-1]], dim=1)
        changes = torch.cat([change.unsqueeze(1), self.changes[:, :-1]], dim=1)
        self.moves = torch.where(curved[:, None, None], moves, self.moves)
        self.changes = torch.where(curved[:, None, None], changes, self.changes)

        # The new length is at the minimum of the parabola that has the current value and slope, and the trial's value.
        # It is limited to 0.1 to 0.5 of the old length.
        second = 2 * (value - self.value - self.length * slope) / self.length
        shorter = torch.where(second > 0, -slope * self.length / second, self.length / 2).nan_to_num(0.0)
        shorter = torch.maximum(torch.minimum(shorter, self.length / 2), self.length / 10)
        self.length = torch.where(taken, torch.ones_like(shorter), shorter)
        self.state = torch.where(taken.unsqueeze(-1), trial, self.state)
        self.gradient = torch.where(taken.unsqueeze(-1), gradient, self.gradient)
        self.value = torch.where(taken, value, self.value)
        self.direction = torch.where(taken.unsqueeze(-1), self._direction(), self.direction)
        return self.state, self.value

    def _direction(self) -> Tensor:
        """The direction -H^-1 gradient, for the estimated H, by the two-loop recursion. Unused memory has no effect."""
        q = self.gradient.clone()
        product = (self.moves * self.changes).sum(-1)  # (n, memory)
        inverse = torch.where(product > 0, 1 / product.clamp_min(1e-30), torch.zeros_like(product))
        shares = []
        for i in range(self.memory):  # the newest first
            share = inverse[:, i] * (self.moves[:, i] * q).sum(-1)
            q = q - share.unsqueeze(-1) * self.changes[:, i]
            shares.append(share)
        newest = self.changes[:, 0].square().sum(-1)
        q = q * torch.where(newest > 0, product[:, 0] / newest.clamp_min(1e-30), torch.ones_like(newest)).unsqueeze(-1)
        for i in reversed(range(self.memory)):
            back = inverse[:, i] * (self.changes[:, i] * q).sum(-1)
            q = q + (shares[i] - back).unsqueeze(-1) * self.moves[:, i]
        return -q


class ObjectMethod(LBFGSMethod):
    """L-BFGS over the objects' states `[n, 7 O]` on `hierarchy_bound`, with the parts fixed at `parts [n, 7 P]`."""

    patience = 4

    def __init__(self, model: GenerativeModel, images: Tensor, parts: Tensor) -> None:
        super().__init__(model, images, memory=10)
        self.parts = parts

    def evaluate(self, states: Tensor, first: bool = False) -> tuple[Tensor, ...]:
        model, x = self.model, states.detach().requires_grad_()
        found = unpack(torch.cat([self.parts, x], dim=1), model.params.parts)
        t, _ = presence_moments(found.part_logits, model.temperature)
        bound, routing = hierarchy_bound(model, found, t)
        (gradient,) = torch.autograd.grad(-bound.sum(), x)
        if not first:
            return -bound.detach(), gradient
        with torch.no_grad():
            of_objects = curvature.object_curvature(model, found, routing, t)
        return -bound.detach(), gradient, curvature.objects_diagonal(*of_objects)


def refine_objects(model: GenerativeModel, images: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
    """Maximise the analytic bound with respect to the objects in states `[N, 7 P + 7 O]`, with the parts fixed.

    The bound depends much less on the objects' log odds (t0) than on the parts. So a method that stops when the whole
    bound hardly rises leaves these log odds near their initial values, with the noise that these may have. Refinement
    removes this noise. The pixels' term is constant, because the parts are fixed. So nothing is rendered, and an
    evaluation takes a tenth of the time that the whole bound takes.

    Returns:
        the states with refined objects, and the rise of each bound, `[N]`, in nats, at least 0.
    """
    parts, objects = states.tensor_split([STATE * model.params.parts], dim=1)
    method = ObjectMethod(model, images, parts)
    before, *_ = method.evaluate(objects)
    *_, (_, best) = minimise(method, objects, steps=300, tolerance=1e-4)
    return torch.cat([parts, best.states], dim=1), before - best.values


class GaussNewtonMethod(Method):
    """Gauss-Newton on the analytic bound, with a damping for each image (Levenberg 1944, Marquardt 1963).

    A step goes to the minimum of a damped quadratic model of the value. If the value falls by at least a quarter of the
    predicted fall, the damping is lowered. If it falls by less, the damping is doubled. If it does not fall, the step
    is rejected and the damping tripled. The damping has a minimum, because the model ignores changes of the routing.
    """

    patience = 4
    floor = 5.0
    """Added to the curvature's diagonal (nats per unit squared), which is near 0 for absent or hidden parts."""

    def begin(self, states: Tensor) -> Tensor:
        self.state = states
        self.at = curvature.linearise(self.model, self.images, states)
        self.damping = torch.ones_like(self.at.value)
        return self.at.value

    def step(self) -> tuple[Tensor, Tensor]:
        move = curvature.solve(self.at, self.damping, self.floor)
        trial = self.state + move
        found = curvature.linearise(self.model, self.images, trial)
        # `pull` is the diagonal of D in `curvature.solve`. As (H + D) move = -gradient, the quadratic model predicts a
        # fall of (D move - gradient) move / 2.
        pull = self.damping.unsqueeze(-1) * self.at.diagonal() + self.floor
        predicted_reduction = 0.5 * ((pull * move - self.at.gradient) * move).sum(-1)
        fall = self.at.value - found.value
        taken = fall > 0  # False for NaN
        ratio = fall / predicted_reduction.clamp_min(1e-9)
        factor = torch.where(ratio > 0.75, 0.3, torch.where(ratio < 0.25, 2.0, 0.8))
        self.damping = (self.damping * torch.where(taken, factor, 3.0)).clamp(1e-2, 1e8)
        self.state = torch.where(taken.unsqueeze(-1), trial, self.state)
        for kept, new in zip(self.at, found, strict=True):
            kept[taken] = new[taken]
        return self.state, self.at.value

    def keep(self, chosen: Tensor) -> None:
        super().keep(chosen)
        self.at = curvature.Linearised(*(each[chosen] for each in self.at))
