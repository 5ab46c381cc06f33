"""The stacked capsule autoencoder (Kosiorek et al. 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.systems.scae.settings import SCAEModelParams, SCAERun
from pipeline.systems.system import System

if TYPE_CHECKING:
    from pipeline.systems.scae.model.scae import SCAE


def _build(settings: SCAEModelParams, size: int) -> SCAE:
    from pipeline.systems.scae.model.scae import SCAE

    return SCAE(settings, size)


SYSTEM = System(
    name="scae",
    label="SCAE",
    description="Stacked capsule autoencoder (Kosiorek, Sabour, Teh and Hinton 2019)",
    document="000",
    colour="#E69F00",
    marker="P",
    run=SCAERun,
    build=_build,
    swept=True,
    layers={"parts": "own", "objects": "own"},
)
