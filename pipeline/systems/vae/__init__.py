"""The variational autoencoder, a baseline of document 000."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.systems.system import System
from pipeline.systems.vae.settings import VAEModelParams, VAERun

if TYPE_CHECKING:
    from pipeline.systems.vae.model.vae import VAE


def _build(settings: VAEModelParams, size: int) -> VAE:
    from pipeline.systems.vae.model.vae import VAE

    return VAE(settings, size)


SYSTEM = System(
    name="vae",
    label="VAE",
    description="Variational autoencoder, to compare with capsules",
    document="000",
    colour="#009E73",
    marker="^",
    run=VAERun,
    build=_build,
    swept=True,
    capsules=False,
    layers={"code": "fitted"},
)
