"""Published test errors of networks like ours, by number of images seen in training: `public_curves.yaml`."""

from dataclasses import dataclass
from pathlib import Path

import yaml

OFF_A_PLOT = "read off a plot"


@dataclass(frozen=True)
class PublicCurve:
    """The errors of one network.

    Attributes:
        name: short name, the label in figures.
        source: paper, repository, and the place in it.
        parameters: number of the network's parameters; None where the source does not give it.
        iterations: number of routing iterations; None where the source does not give it.
        read: how the points were read: "printed", from a "log", or `OFF_A_PLOT`.
        points: pairs of millions of images seen in training and test error in percent.
    """

    name: str
    source: str
    parameters: int | None
    iterations: int | None
    read: str
    points: list[tuple[float, float]]
    note: str = ""


def load_public_curves() -> list[PublicCurve]:
    """The curves in the file's order."""
    rows = yaml.safe_load(Path(__file__).with_name("public_curves.yaml").read_text(encoding="utf-8"))
    return [PublicCurve(**row) for row in rows]
