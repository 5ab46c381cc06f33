"""Top-down attention and its inversion, document 001 (Kiefer et al. 2022), on generated scenes."""

from pipeline.systems.system import System

SYSTEM = System(
    name="attention",
    label="top-down attention",
    description="Top-down attention (Kiefer et al. 2022)",
    document="001",
)
