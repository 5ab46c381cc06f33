"""Questions asked of models, one module each: a study of any system here, one of a system's own in its `studies`.

A module of a study is called as its stage in `dvc.yaml` and its section of `params.yaml`. It has a function `measure`
from a `Context` to an `Outcome`; the stage `study` runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.results.outcome import Outcome
    from pipeline.studies.context import Context

ROOM = Path(__file__).parent


def file_of(kind: str) -> Path | None:
    """The module of a kind of study, such as "attack"; None if there is none."""
    places = [ROOM, *sorted(ROOM.parent.glob("systems/*/studies"))]
    return next((file for place in places if (file := place / f"{kind}.py").exists()), None)


def measure_of(kind: str) -> Callable[[Context], Outcome]:
    """The function that measures a kind of study.

    Raises:
        ValueError: there is no such kind.
    """
    file = file_of(kind)
    if file is None:
        raise ValueError(f"no kind of study is called {kind}")
    module = file.relative_to(ROOM.parents[1]).with_suffix("")
    measure: Callable[[Context], Outcome] = import_module(".".join(module.parts)).measure
    return measure
