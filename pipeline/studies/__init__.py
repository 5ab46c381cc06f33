"""Studies, one module each. Studies of any system are here. A study of one system is in the system's `studies`.

A study's kind is the name of its module, of its stage in `dvc.yaml` and of its section in `params.yaml`. A module has

- `measure`, a function from a `Context` to an `Outcome`, which `stages/study.py` calls;
- `SETTINGS`, if it has a section: the class of an entry or, with `ONE_SECTION`, of a section that all items share;
- `SET`, if it has sets: the class of an item that runs several short studies;
- `check`, if needed: a function that raises `ValueError` if an entry does not fit other sections of `params.yaml`.

Importing a study needs no torch: `measure` imports the code that computes.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pipeline.errors import UserError

ROOM = Path(__file__).parent
SETS = "_sets"
"""Suffix of the section for sets of short studies, `<kind>_sets`."""


@cache
def _files() -> dict[str, Path]:
    """The files of all studies by kind, such as "attack"."""
    places = [ROOM, *sorted(ROOM.parent.glob("systems/*/studies"))]
    return {file.stem: file for place in places for file in sorted(place.glob("[!_]*.py"))}


def file_of(kind: str) -> Path | None:
    """The file of a kind of study, also by the name of its sets (`<kind>_sets`); None if there is none."""
    return _files().get(kind.removesuffix(SETS))


def study_of(kind: str) -> ModuleType:
    """The module of a kind of study, also by the name of its sets (`<kind>_sets`).

    Raises:
        UserError: there is no study of that kind.
    """
    if (file := file_of(kind)) is None:
        raise UserError(f"'{kind}' is not one of the studies {', '.join(_files())}")
    return import_module(".".join(file.relative_to(ROOM.parents[1]).with_suffix("").parts))


def studies() -> dict[str, ModuleType]:
    """The modules, by kind, of all studies that have a section in `params.yaml`."""
    found = {kind: study_of(kind) for kind in _files()}
    return {kind: study for kind, study in found.items() if hasattr(study, "SETTINGS")}
