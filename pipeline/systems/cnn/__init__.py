"""The convolutional network, a baseline of document 004."""

from pipeline.systems.cnn.settings import CNNRun
from pipeline.systems.system import System

SYSTEM = System(
    name="cnn",
    label="CNN",
    description="Convolutional network, to compare with matrix capsules",
    document="004",
    colour="#CC79A7",
    marker="v",
    run=CNNRun,
    model="cnn.CNN",
    capsules=False,
    layers={"maps": "own", "hidden": "fitted"},
)
