"""Logistic regression, a system that the project does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.systems.linear.settings import LinearModelParams, LinearRun
from pipeline.systems.system import System

if TYPE_CHECKING:
    from pipeline.systems.linear.model.linear import Linear


def _build(settings: LinearModelParams, size: int) -> Linear:
    from pipeline.systems.linear.model.linear import Linear

    return Linear(settings, size)


SYSTEM = System(
    name="linear",
    label="logistic regression",
    description="Logistic regression",
    document="004",
    colour="#000000",
    marker="+",
    run=LinearRun,
    build=_build,
    capsules=False,
)
