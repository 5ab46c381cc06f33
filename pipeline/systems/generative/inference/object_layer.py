"""Objects are refined: the bound is maximised over their states alone, with those of the parts held fixed.

Without the parts the pixels are constant, so that nothing is rendered: an evaluation takes a tenth of one of the
whole bound. The bound depends little on the objects' log odds, compared with pixels and poses. A method that stops when
the whole bound hardly rises therefore stops while they are still near where they started, and t0 has noise that says
nothing about the image. Refined objects are a function of the parts.

Shapes: N images, P parts, O objects; states as in `analytic_bound`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pipeline.systems.generative.inference.analytic_bound import (
    STATE,
    hierarchy_bound,
    presence_moments,
    unpack,
)
from pipeline.systems.generative.inference.curvature import object_curvature, objects_diagonal
from pipeline.systems.generative.inference.methods import LBFGSMethod, Problem, Value, minimise
from pipeline.systems.generative.model.generative_model import GenerativeModel

MEMORY, ROUNDS, TOLERANCE = 10, 300, 1e-4
"""Steps that L-BFGS remembers; the most steps that it takes; it stops when the bound rises by less than this (nats)."""


class ObjectMethod(LBFGSMethod):
    """L-BFGS on the hierarchy's part of the bound, by the objects' states `[n, 7 O]`.

    Args:
        parts: the states `[n, 7 P]` of the parts.
    """

    patience = 4

    def __init__(self, parts: Tensor) -> None:
        super().__init__(MEMORY)
        self.parts = parts

    def evaluate(self, problem: Problem, states: Tensor) -> Value:
        value, gradient, _ = _value(problem.model, self.parts, states)
        return value, gradient

    def first(self, problem: Problem, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, gradient, routing = _value(problem.model, self.parts, states)
        found = unpack(torch.cat([self.parts, states], dim=1), problem.model.params.parts)
        with torch.no_grad():
            t = presence_moments(found.part_logits, problem.model.temperature).mean
            return value, gradient, objects_diagonal(*object_curvature(problem.model, found, routing, t))

    def keep(self, chosen: Tensor) -> None:
        super().keep(chosen)
        self.parts = self.parts[chosen]


def _value(model: GenerativeModel, parts: Tensor, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The negative bound without its pixels `[n]`, its gradient `[n, 7 O]`, and the routing `[n, P, 1 + O]`."""
    x = states.detach().requires_grad_()
    with torch.enable_grad():
        found = unpack(torch.cat([parts, x], dim=1), model.params.parts)
        bound, routing = hierarchy_bound(model, found, presence_moments(found.part_logits, model.temperature))
        (gradient,) = torch.autograd.grad(-bound.sum(), x)
    return -bound.detach(), gradient, routing


def refine_objects(problem: Problem, states: Tensor) -> tuple[Tensor, Tensor]:
    """Maximise the analytic bound over the objects, with the parts as they are.

    Args:
        states: `[N, 7 P + 7 O]`.

    Returns:
        the states with refined objects, and the nats `[N]` by which the bound rose, never negative.
    """
    parts, objects = states.tensor_split([STATE * problem.model.params.parts], dim=1)
    before, *_ = _value(problem.model, parts, objects)
    found, after = minimise(problem, objects, ObjectMethod(parts), ROUNDS, TOLERANCE)
    return torch.cat([parts, found], dim=1), before - after
