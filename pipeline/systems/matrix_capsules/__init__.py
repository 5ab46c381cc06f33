"""Matrix capsules with EM routing, document 004 (Hinton, Sabour and Frosst 2018)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.systems.matrix_capsules.settings import MatrixCapsulesModelParams, MatrixCapsulesRun
from pipeline.systems.system import System

if TYPE_CHECKING:
    from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules


def _build(settings: MatrixCapsulesModelParams, size: int) -> MatrixCapsules:
    from pipeline.systems.matrix_capsules.model.matrix_capsules import MatrixCapsules

    return MatrixCapsules(settings, size)


SYSTEM = System(
    name="matrix_capsules",
    label="matrix capsules",
    description="Matrix capsules with EM routing (Hinton, Sabour and Frosst 2018) or with variational Bayes",
    document="004",
    colour="#0072B2",
    marker="o",
    run=MatrixCapsulesRun,
    build=_build,
    layers={"poses": "own"},
)
