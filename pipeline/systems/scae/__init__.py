"""The stacked capsule autoencoder (Kosiorek et al. 2019)."""

from pipeline.systems.scae.settings import SCAERun
from pipeline.systems.system import System

SYSTEM = System(
    name="scae",
    label="SCAE",
    description="Stacked capsule autoencoder (Kosiorek, Sabour, Teh and Hinton 2019)",
    document="000",
    colour="#E69F00",
    marker="P",
    run=SCAERun,
    model="scae.SCAE",
    swept=True,
    layers={"parts": "own", "objects": "own"},
)
