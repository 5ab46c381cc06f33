"""Collects the figures, the tables and the measures of claims from all report modules.

A report module is about one question. Its file is in this folder or in the folder `report` of a system. The module
may define these names:

- `draw(results)`: yields figures (`Drawing`),
- `build(results)`: returns tables (`Table`),
- `MEASURES`: a dict from the ids of claims to the functions that measure them (`Measure`),
- `DOCUMENT`: the number of the module's document, such as "003". Modules of a system have the system's document.

Modules of systems come first, in the order of `SYSTEMS`. Modules in one folder are sorted by name.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.table import Table
from pipeline.results.findings import Measure
from pipeline.results.reading import Results
from pipeline.systems import REPORTS


def modules(part: str) -> Iterator[tuple[Any, str]]:
    """Yield each report module that defines the name `part`, with the number of its document ("" if it has none)."""
    packages = [(system.part("report"), system.document) for system in REPORTS.values()]
    for package, document in [*packages, (sys.modules[__name__], "")]:
        for name in sorted(found.name for found in iter_modules(package.__path__)):
            module = import_module(f"{package.__name__}.{name}")
            if hasattr(module, part):
                yield module, document or getattr(module, "DOCUMENT", "")


def draw(results: Results) -> Iterator[Drawing]:
    """Yield every figure of a profile's results. Raises `ResultError` if a result file is corrupt."""
    for module, document in modules("draw"):
        for drawing in module.draw(results):
            yield replace(drawing, document=drawing.document or document, code=code_of(drawing.figure))


def build(results: Results) -> Iterator[Table]:
    """Yield every table of a profile's results. Raises `ResultError` if a result file is corrupt."""
    for module, document in modules("build"):
        for table in module.build(results):
            yield replace(table, document=document, code=code_of(module.build))


def code_of(function: Callable[..., object]) -> str:
    """The path and the name of a function in the repository, such as "pipeline/report/equivariance.py#summary"."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    path = Path(inspect.getfile(function)).relative_to(Path(__file__).parents[2])
    return f"{path.as_posix()}#{function.__name__}"


def measures() -> dict[str, Measure]:
    """The functions that measure claims, by the claim's id."""
    return {claim: measure for module, _ in modules("MEASURES") for claim, measure in module.MEASURES.items()}
