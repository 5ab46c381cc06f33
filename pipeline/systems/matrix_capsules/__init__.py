"""Matrix capsules with EM routing, document 004 (Hinton, Sabour and Frosst 2018)."""

from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun
from pipeline.systems.system import System

SYSTEM = System(
    name="matrix_capsules",
    label="matrix capsules",
    description="Matrix capsules with EM routing (Hinton, Sabour and Frosst 2018) or with variational Bayes",
    document="004",
    colour="#0072B2",
    marker="o",
    run=MatrixCapsulesRun,
    model="matrix_capsules.MatrixCapsules",
    layers={"poses": "own"},
)
