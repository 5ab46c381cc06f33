"""Figures, tables and measures of claims, by question: a module each, here or in the folder `report` of a system.

Modules are found by their files. Each defines what it has to show:

- `draw(results, written)`: an iterator of figures (`Drawing`); names of items whose arrays are missing go to `written`,
- `build(results)`: tables (`Table`),
- `MEASURES`: how claims are measured, by their ids (`Measure`),
- `DOCUMENT`: the document it is about, where figures and tables do not say so themselves; in a system's folder, always
  the system's.

Modules of systems come first, in the order of the systems; those of one folder are sorted by name.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from pipeline.results.reading import NotMeasuredError
from pipeline.systems import REPORTS

if TYPE_CHECKING:
    from pipeline.drawing.drawings import Drawing, Written
    from pipeline.drawing.table import Table
    from pipeline.results.findings import Finding, Measure
    from pipeline.results.reading import Results


def modules(part: str) -> Iterator[tuple[Any, str]]:
    """Every module that defines `part`, such as `draw`, and the number of its document; "" if none is declared."""
    packages = [(system.part("report"), system.document) for system in REPORTS.values()]
    for package, document in [*packages, (sys.modules[__name__], "")]:
        for name in sorted(found.name for found in iter_modules(package.__path__)):
            module = import_module(f"{package.__name__}.{name}")
            if hasattr(module, part):
                yield module, document or getattr(module, "DOCUMENT", "")


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Every figure that the results of a profile give, one at a time; `ResultError` if a result file is corrupt."""
    for module, document in modules("draw"):
        for drawing in module.draw(results, written):
            yield replace(drawing, document=drawing.document or document, code=code_of(drawing.figure))


def build(results: Results) -> Iterator[Table]:
    """Every table that the results of a profile give; `ResultError` if a result file is corrupt."""
    for module, document in modules("build"):
        for table in module.build(results):
            yield replace(table, document=table.document or document, code=code_of(module.build))


def code_of(function: Callable[..., object]) -> str:
    """The file of a function in the repository, and its name: `pipeline/report/equivariance.py#summary`."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    path = Path(inspect.getfile(function)).relative_to(Path(__file__).parents[2])
    return f"{path.as_posix()}#{function.__name__}"


def measures() -> dict[str, Measure]:
    """The measure of each claim, by its id, which returns None wherever results are missing.

    Raises:
        ValueError: two modules measure the same claim.
    """
    found: dict[str, Measure] = {}
    for module, _ in modules("MEASURES"):
        if twice := sorted(found.keys() & module.MEASURES.keys()):
            raise ValueError(f"{module.__name__} has a measure for {', '.join(twice)}, and so has another module")
        found |= module.MEASURES
    return {claim: partial(_finding, measure) for claim, measure in found.items()}


def _finding(measure: Measure, results: Results) -> Finding | None:
    try:
        return measure(results)
    except NotMeasuredError:
        return None
