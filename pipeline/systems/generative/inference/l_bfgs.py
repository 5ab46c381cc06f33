"""L-BFGS on the analytic bound, each image with its own history and line search (Liu & Nocedal 1989)."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.systems.generative.inference import curvature
from pipeline.systems.generative.inference.methods import Method, Problem, Value, analytic_value


class LBFGSMethod(Method):
    """Limited-memory BFGS: in each round every image tries one point of its own line search.

    A trial with sufficient improvement (Armijo) is accepted and updates the curvature; otherwise the step is reduced to
    the minimum of the parabola through the known values, within limits. Variables are scaled by the diagonal of the
    initial Gauss-Newton curvature, which differs by a factor of thousands between poses and log odds.
    """

    patience = 8
    sufficient_decrease = 1e-4

    def __init__(self, memory: int) -> None:
        self.memory = memory

    def evaluate(self, problem: Problem, states: Tensor) -> Value:
        """The values `[n]` and their gradients `[n, V]`."""
        return analytic_value(problem, states)

    def first(self, problem: Problem, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The values `[n]`, their gradients and the diagonal of their curvature, `[n, V]`, at the initial states."""
        found = curvature.linearise(problem.model, problem.images, states)
        return found.value, found.gradient, found.diagonal()

    def begin(self, problem: Problem, states: Tensor) -> Tensor:
        n = len(states)
        value, gradient, diagonal = self.first(problem, states)
        self.scale = diagonal.clamp_min(1.0).rsqrt()
        self.state, self.value, self.gradient = states, value, gradient * self.scale
        shape = (n, self.memory, states.shape[1])
        self.moves, self.changes = states.new_zeros(shape), states.new_zeros(shape)
        self.length = states.new_ones(n)
        self.direction = self._direction()
        return self.value

    def step(self, problem: Problem) -> tuple[Tensor, Tensor]:
        trial = self.state + self.length.unsqueeze(-1) * self.direction * self.scale
        value, gradient = self.evaluate(problem, trial)
        gradient = gradient * self.scale
        slope = (self.gradient * self.direction).sum(-1)  # negative: a descent direction
        taken = value <= self.value + self.sufficient_decrease * self.length * slope  # False for NaN

        move = self.length.unsqueeze(-1) * self.direction
        change = gradient - self.gradient
        curved = taken & ((move * change).sum(-1) > 1e-8 * change.square().sum(-1))
        self.moves = torch.where(curved[:, None, None], _push(self.moves, move), self.moves)
        self.changes = torch.where(curved[:, None, None], _push(self.changes, change), self.changes)

        # Minimum of the parabola through value and slope at 0 and the trial's value, limited to 0.1 to 0.5 of the step.
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
        """-H^-1 gradient by the two-loop recursion; empty entries of the memory are zero and have no effect."""
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

    def keep(self, chosen: Tensor) -> None:
        for name in ("scale", "state", "value", "gradient", "moves", "changes", "length", "direction"):
            setattr(self, name, getattr(self, name)[chosen])


def _push(memory: Tensor, newest: Tensor) -> Tensor:
    """`memory [n, m, V]` with `newest [n, V]` inserted in front and the oldest removed."""
    return torch.cat([newest.unsqueeze(1), memory[:, :-1]], dim=1)
