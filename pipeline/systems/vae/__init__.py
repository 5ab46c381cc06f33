"""The variational autoencoder, a baseline of document 000."""

from pipeline.systems.system import System
from pipeline.systems.vae.settings import VAERun

SYSTEM = System(
    name="vae",
    label="VAE",
    description="Variational autoencoder, to compare with capsules",
    document="000",
    colour="#009E73",
    marker="^",
    run=VAERun,
    model="vae.VAE",
    swept=True,
    capsules=False,
    layers={"code": "fitted"},
)
