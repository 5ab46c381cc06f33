"""Gauss-Newton on the analytic bound, damped as by Levenberg (1944) and Marquardt (1963), separately for each image."""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.systems.generative.inference import curvature
from pipeline.systems.generative.inference.curvature import Linearised
from pipeline.systems.generative.inference.methods import Method, Task
from pipeline.systems.generative.inference.settings import GaussNewtonEngine


class GaussNewtonMethod(Method):
    """Gauss-Newton with Levenberg and Marquardt's damping: it is lowered if the quadratic model predicted the
    improvement well, raised if not, and tripled if there was no improvement.

    The damping has a lower limit, because the routing, which the curvature holds fixed, is not quadratic.
    """

    patience = 4
    heaviest, lightest, start = 1e8, 1e-2, 1.0
    floor = 5.0
    """Added to the curvature's diagonal, in nats per unit squared: it is almost zero for absent or hidden parts."""

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
        # (H + D) move = -gradient, so the quadratic model predicts half of -gradient move + move D move.
        pull = self.damping.unsqueeze(-1) * self.at.diagonal() + self.floor
        foretold = 0.5 * ((pull * move - self.at.gradient) * move).sum(-1)
        fall = self.at.value - found.value
        taken = fall > 0  # False for NaN
        ratio = fall / foretold.clamp_min(1e-9)
        factor = torch.where(ratio > 0.75, 0.3, torch.where(ratio < 0.25, 2.0, 0.8))
        self.damping = (self.damping * torch.where(taken, factor, 3.0)).clamp(self.lightest, self.heaviest)
        self.state = torch.where(taken.unsqueeze(-1), trial, self.state)
        self.at = curvature.where(taken, found, self.at)
        return self.state, self.at.value

    def keep(self, chosen: Tensor) -> None:
        self.state, self.damping, self.at = self.state[chosen], self.damping[chosen], self.at.rows(chosen)
