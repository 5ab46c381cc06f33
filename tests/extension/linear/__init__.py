"""Logistic regression, a system that the project does not have."""

from __future__ import annotations

from pipeline.systems.linear.settings import LinearRun
from pipeline.systems.system import System

SYSTEM = System(
    name="linear",
    label="logistic regression",
    description="Logistic regression",
    document="004",
    colour="#000000",
    marker="+",
    run=LinearRun,
    model="linear.Linear",
    capsules=False,
)
