"""Routing of capsule networks iteration by iteration: a figure with a slider for each network, and a table of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.routing_films import RoutingFilm, strip
from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.reading import Numbers, Results
from pipeline.systems import SYSTEMS
from pipeline.systems.matrix_capsules.report.runs import class_names

NAME = "routing"
"""How the names of its figures and tables begin."""
_ARRAYS = ("images", "labels", "parts", "shares", "activations", "spreads", "used")
_HEADS = {
    "test_error": ("test error (%)", 1),
    "moved": ("moved (%)", 1),
    "activation_right": ("activation, right class", 3),
    "activation_others": ("activation, others", 3),
    "spread_right": ("spread of votes, right class", 3),
    "spread_others": ("spread of votes, others", 3),
}
_PERCENT = ("test_error", "moved")


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """A figure for each network that was followed. Raises `ResultError` if a result is corrupt."""
    for study, numbers in results.executed("routing"):
        arrays = written.examples(results, "routing", study, _ARRAYS)
        if arrays is None:
            continue
        film = _film(study, numbers, arrays)
        square = "a part" if film.one_by_one else "all parts of a position"
        yield Drawing(
            f"{NAME}-{study}",
            "png",
            f"Routing, iteration by iteration, {study}",
            "Parts are assigned to classes, equally at first, then by how well their votes fit the class capsules; a "
            f"square is {square} (the larger, the more active; the brighter, the more is assigned to the class). "
            "Numbers are the activation of the class capsule, and the spread of its votes around their mean. The "
            f"network runs {film.used} iterations; {_in_words(numbers)}.",
            f"{len(film.images)} images, each with a map of its parts for {len(film.classes)} classes in "
            f"{film.iterations} iterations.",
            numbers.records,
            partial(strip, film),
            document=document_of(study, numbers),
            film=film.to_json(),
        )


def document_of(study: str, numbers: Numbers) -> str:
    """The document of a study's system."""
    return SYSTEMS[str(numbers.run(run_of(study, numbers)).variant)].document


def run_of(study: str, numbers: Numbers) -> str:
    """The run that a study followed."""
    return str(numbers.settings.routing[study].run)


def _film(study: str, numbers: Numbers, arrays: Mapping[str, np.ndarray]) -> RoutingFilm:
    name = run_of(study, numbers)
    classes = class_names(numbers.settings, numbers.dataset_of(name), arrays["activations"].shape[-1])
    kept = {each: arrays[each] for each in _ARRAYS if each != "used"}
    return RoutingFilm(classes=classes, used=int(arrays["used"]), **kept)


def _in_words(numbers: Numbers) -> str:
    """How much moves from one iteration to the next, on all images."""
    moved = {step: numbers.measured("moved", step) for step in numbers.names("moved")}
    each = ", ".join(f"{100 * found.mean:.0f} % in iteration {step}" for step, found in moved.items() if found)
    return f"of the assignment, {each} changes the class"


def build(results: Results) -> list[Table]:
    """A table for each document whose networks were followed. Raises `ResultError` if a result is corrupt."""
    rows: dict[str, list[Row]] = {}
    for study, numbers in results.executed("routing"):
        own = numbers.number("used")
        for step in numbers.names("test_error"):
            measured = {
                name: found and found.scaled(100 if name in _PERCENT else 1)
                for name in _HEADS
                for found in [numbers.measured(name, step)]
            }
            words = "yes" if own is not None and int(step) <= own else "no"
            rows.setdefault(document_of(study, numbers), []).append(
                ([run_of(study, numbers), int(step), words], measured, numbers)
            )
    tables = []
    for document, found in rows.items():
        built = measured_table(
            f"{NAME}-{document}",
            "Routing, iteration by iteration",
            "The test error if routing ended there; the share of the assignment that goes to another class than in the "
            "iteration before; means over images of the class capsules' activations, and of the spread of votes "
            "(root mean square distance to their mean, each counted by how much of it is assigned). Iterations that "
            "are not the network's own follow them with the same votes.",
            ["run", "iteration", "the network's own"],
            _HEADS,
            found,
        )
        tables += [replace(table, document=document) for table in built]
    return tables
