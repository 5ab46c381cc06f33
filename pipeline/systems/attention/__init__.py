"""Top-down attention as a generative model, and inference that inverts it: document 001 (Kiefer et al. 2022)."""

from pipeline.systems.system import System

SYSTEM = System(
    name="attention",
    label="top-down attention",
    description="Top-down attention (Kiefer et al. 2022)",
    document="001",
)
