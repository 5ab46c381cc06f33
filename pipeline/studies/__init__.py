"""Studies, one module each. Studies for any system are in this folder, those for one system in its folder `studies`.

A study's kind is the name of its module, of its stage in `dvc.yaml` and of its section in `params.yaml`. A module has

- `measure`, a function from a `Context` to an `Outcome`, which `stages/study.py` calls;
- `SETTINGS`, if the study has a section: the class of an entry or, if there is `ONE_SECTION`, of the whole section;
- `SET`, if the study has sets: the class of an entry that lists several short studies, which run as one item;
- `check`, if needed: a function that raises `ValueError` if an entry does not fit other sections of `params.yaml`.

Importing a study does not import torch. Only a call of `measure` imports the code that computes.
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
    """The file of a kind of study; None if there is none. The file of `<kind>_sets` is that of `<kind>`."""
    return _files().get(kind.removesuffix(SETS))


def study_of(kind: str) -> ModuleType:
    """The module of a kind of study. `kind` is as for `file_of`. Raises `UserError` if there is no such study."""
    if (file := file_of(kind)) is None:
        raise UserError(f"'{kind}' is not one of the studies {', '.join(_files())}")
    return import_module(".".join(file.relative_to(ROOM.parents[1]).with_suffix("").parts))


def studies() -> dict[str, ModuleType]:
    """The modules, by kind, of all studies that have a section in `params.yaml`."""
    found = {kind: study_of(kind) for kind in _files()}
    return {kind: study for kind, study in found.items() if hasattr(study, "SETTINGS")}
