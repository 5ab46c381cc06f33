"""Capsule regression (Saul 2021, document 002): closed forms, fits, and an estimator for scikit-learn."""

from pipeline.systems.system import System

SYSTEM = System(
    name="regression",
    label="capsule regression",
    description="Capsule regression (Saul 2021)",
    document="002",
    colour="#1a1a1a",
    marker="X",
)
