"""CapsNet with and without routing, document 001 (Kiefer et al. 2022)."""

from pipeline.systems.capsnet.settings import CapsNetRun
from pipeline.systems.system import System

SYSTEM = System(
    name="capsnet",
    label="CapsNet",
    description="CapsNet with dynamic routing (Sabour, Frosst and Hinton 2017; Kiefer et al. 2022)",
    document="001",
    colour="#56B4E9",
    marker="D",
    run=CapsNetRun,
    model="capsnet.CapsNet",
    swept=True,
    layers={"capsules": "fitted"},
)
