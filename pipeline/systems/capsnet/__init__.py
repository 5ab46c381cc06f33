"""CapsNet with and without routing, document 001 (Kiefer et al. 2022)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.systems.capsnet.settings import CapsNetModelParams, CapsNetRun
from pipeline.systems.system import System

if TYPE_CHECKING:
    from pipeline.systems.capsnet.model.capsnet import CapsNet


def _build(settings: CapsNetModelParams, size: int) -> CapsNet:
    from pipeline.systems.capsnet.model.capsnet import CapsNet

    return CapsNet(settings, size)


SYSTEM = System(
    name="capsnet",
    label="CapsNet",
    description="CapsNet with dynamic routing (Sabour, Frosst and Hinton 2017; Kiefer et al. 2022)",
    document="001",
    colour="#56B4E9",
    marker="D",
    run=CapsNetRun,
    build=_build,
    swept=True,
    layers={"capsules": "fitted"},
)
