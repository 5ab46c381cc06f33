"""Objects settle: the bound is maximised over the objects' states alone, with those of the parts held fixed.

Without the parts the pixels are constant, so that nothing is rendered: an evaluation takes a tenth of one of the
whole bound. The bound depends little on the objects' log odds, compared with pixels and poses. A method that stops when
the whole bound hardly rises therefore stops while they are still near where they started, and t0 has noise that says
nothing about the image. Settled objects are a function of the parts.

Shapes: N images, P parts, O objects; states as in `analytic_bound`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from pipeline.systems.generative.inference.analytic_bound import (
    STATE,
    hierarchy_bound,
    presence_moments,
    unpack,
)
from pipeline.systems.generative.inference.curvature import object_curvature, objects_diagonal
from pipeline.systems.generative.inference.l_bfgs import LBFGSMethod
from pipeline.systems.generative.inference.methods import Task, Value, minimise

MEMORY, ROUNDS, TOLERANCE = 10, 300, 1e-4
"""Steps that L-BFGS remembers; the most steps that it takes; it stops when the bound rises by less than this (nats)."""


@dataclass(frozen=True)
class ObjectTask(Task):
    """The optimisation of the objects of some images, whose parts have the states `parts [N, 7 P]`."""

    parts: Tensor

    def rows(self, chosen: Tensor) -> Self:
        return replace(self, images=self.images[chosen], parts=self.parts[chosen])


class ObjectMethod(LBFGSMethod):
    """L-BFGS on the hierarchy's part of the bound, by the objects' states `[n, 7 O]`."""

    patience = 4

    def evaluate(self, task: Task, states: Tensor) -> Value:
        value, gradient, _ = _value(task, states)
        return value, gradient

    def first(self, task: Task, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value, gradient, routing = _value(task, states)
        assert isinstance(task, ObjectTask)
        found = unpack(torch.cat([task.parts, states], dim=1), task.model.params.parts)
        with torch.no_grad():
            t = presence_moments(found.part_logits, task.model.temperature).mean
            return value, gradient, objects_diagonal(*object_curvature(task.model, found, routing, t))


def _value(task: Task, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The negative bound without its pixels `[n]`, its gradient `[n, 7 O]`, and the routing `[n, P, 1 + O]`."""
    assert isinstance(task, ObjectTask)
    x = states.detach().requires_grad_()
    with torch.enable_grad():
        found = unpack(torch.cat([task.parts, x], dim=1), task.model.params.parts)
        bound, routing = hierarchy_bound(task.model, found, presence_moments(found.part_logits, task.model.temperature))
        (gradient,) = torch.autograd.grad(-bound.sum(), x)
    return -bound.detach(), gradient, routing


def settle(task: Task, states: Tensor) -> tuple[Tensor, Tensor]:
    """Maximise the analytic bound over the objects, with the parts as they are.

    Args:
        states: `[N, 7 P + 7 O]`.

    Returns:
        the states with settled objects, and the nats `[N]` by which the bound rose, never negative.
    """
    parts, objects = states.tensor_split([STATE * task.model.params.parts], dim=1)
    layer = ObjectTask(task.model, task.images, task.generator, parts)
    before, *_ = _value(layer, objects)
    found, after = minimise(layer, objects, ObjectMethod(MEMORY), ROUNDS, TOLERANCE)
    return torch.cat([parts, found], dim=1), before - after
