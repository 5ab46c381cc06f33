"""What everything else knows of a model family of the documents: a record that needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.learning.settings import RunSettings


@dataclass(frozen=True, kw_only=True)
class System:
    """A model family.

    Attributes:
        name: of its package, and the `variant` of its runs.
        label: in figures and tables.
        description: on the cards of its models.
        document: that makes claims about it, or compares its own systems with it.
        colour, marker: in figures; `#rrggbb`, and matplotlib's name. Empty for a system that no figure compares.
        run: settings of an entry of `runs`; None where nothing is trained by gradient.
        model: the class of its models, in the package `model`: module and name. It is made from the settings of a model
            and the pixels a side of the images that it sees.
        swept: whether the sweep over rotations can train it.
        capsules: whether its layers are capsules.
        layers: those that are meant to move with the image, and how they are judged: "own", by the action that theory
            gives them, or else "fitted", by a linear map.
    """

    name: str
    label: str
    description: str
    document: str
    colour: str = ""
    marker: str = ""
    run: type[RunSettings] | None = None
    model: str = ""
    swept: bool = False
    capsules: bool = True
    layers: Mapping[str, str] = field(default_factory=dict)

    def has(self, part: str) -> bool:
        """Whether its package has a module or a folder of this name."""
        place = Path(__file__).parent / self.name
        return (place / f"{part}.py").exists() or (place / part).is_dir()

    def part(self, name: str) -> ModuleType:
        """A module of its package, such as `evaluation`, `equivariance`, `routing`, `sweep`, or `report.claims`."""
        return import_module(f"{__package__}.{self.name}.{name}")
