"""The description of a system (a model family of the documents) for other code. This module must not import torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pipeline.learning.settings import RunSettings


@dataclass(frozen=True, kw_only=True)
class System:
    """A model family.

    Attributes:
        name: name of the system's package, and `variant` of its runs.
        label: name in figures and tables.
        description: text on the system's model cards.
        document: the document that makes claims about the system or has it as a baseline, such as "004".
        colour, marker: colour `#rrggbb` and matplotlib marker in figures. Empty if no figure compares the system.
        run: settings class of the system's runs; None if no model of the system is trained by gradient descent.
        model: class of the system's models, as `<module>.<class>` in the system's package `model`. The class takes the
            settings of a model, and the side of the square images that the model sees, in pixels.
        swept: whether the study `sweep` (training on rotations up to an angle) can train the system.
        capsules: whether the system's layers are capsules.
        layers: for each layer that should be equivariant, its name and what predicts its values for a moved image:
            "own" (the map that theory gives) or "fitted" (a linear map that is fitted to data).
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
        """Whether the system's package has a module or a folder `part`."""
        place = Path(__file__).parent / self.name
        return (place / f"{part}.py").exists() or (place / part).is_dir()

    def part(self, name: str) -> ModuleType:
        """Import the module `name` of the system's package, for example `evaluation`, `sweep` or `model.vae`."""
        return import_module(f"{__package__}.{self.name}.{name}")
