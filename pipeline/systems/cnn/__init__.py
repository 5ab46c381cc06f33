"""The convolutional network that document 004 compares with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.systems.cnn.settings import CNNModelParams, CNNRun
from pipeline.systems.system import System

if TYPE_CHECKING:
    from pipeline.systems.cnn.model.cnn import CNN


def _build(settings: CNNModelParams, size: int) -> CNN:
    from pipeline.systems.cnn.model.cnn import CNN

    return CNN(settings, size)


SYSTEM = System(
    name="cnn",
    label="CNN",
    description="Convolutional network, to compare with matrix capsules",
    document="004",
    colour="#CC79A7",
    marker="v",
    run=CNNRun,
    build=_build,
    capsules=False,
    layers={"maps": "own", "hidden": "fitted"},
)
