"""Routing of capsule networks: iteration by iteration, a figure with a slider for each network and a table of all; and
layer by layer, a figure of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import cycle

import numpy as np
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.routing_films import RoutingFilm, strip
from pipeline.drawing.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, in_house_style, panels, plain
from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.measured import Measured
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

PANELS = {
    "entropy": ("how evenly capsules divide", "entropy (0: a tree, 1: even)", 1),
    "dead": ("dead types of capsules", "share of the layer (%)", 100),
    "range": ("dynamic range", "sd over images", 1),
}
"""Title, vertical axis and factor of each measure."""
LOOKS = tuple(zip((BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK), "osD^vPX", strict=True))
"""Colour and marker of each network, in order."""
_BESIDE = 0.1
"""Layers: how far marks of different networks stand beside each other."""


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """A figure for each network that was followed, and one of all. Raises `ResultError` if a result is corrupt."""
    yield from _iterations(results, written)
    yield from _layers(results)


def _iterations(results: Results, written: Written) -> Iterator[Drawing]:
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


def _layers(results: Results) -> Iterator[Drawing]:
    """A figure of all networks whose layers were measured, if any: is routing a tree, and which capsules take part?"""
    networks = {study: numbers for study, numbers in results.executed("routing") if numbers.names("layers")}
    if not networks:
        return
    types = "; ".join(
        f"{study} {', '.join(f'{found.mean:.0f}' for found in _by_layer(numbers, 'types'))}"
        for study, numbers in networks.items()
    )
    yield Drawing(
        "routing-layers",
        "svg",
        "Routing, layer by layer",
        "How evenly a capsule divides itself among those that see it (by entropy, each counting by its activation; in "
        "a tree, with one parent for each, it is 0); types of capsules whose activation is never above 0.01, on any "
        "test image at any position; and how much a type's largest activation varies over images (0: always the same, "
        "on or off; mean over types). Layers are counted down from the class capsules, networks run their own "
        f"iterations, and bars are one sd over seeds. Types in each layer: {types}.",
        "Three plots over routed layers of the entropy of routing, dead types of capsules and the dynamic range of "
        f"activations, with a line for each of {', '.join(networks)}.",
        [record for numbers in networks.values() for record in numbers.records],
        partial(over_layers, networks),
    )


def _by_layer(numbers: Numbers, measure: str) -> list[Measured]:
    """Of every layer, class capsules last."""
    found = (numbers.measured("layers", layer, measure) for layer in numbers.names("layers"))
    return [each for each in found if each]


@in_house_style
def over_layers(networks: dict[str, Numbers]) -> Figure:
    """A panel for each measure; networks of any depth end on the right, at their class capsules."""
    figure, axes = panels(len(PANELS), 2.6)
    deepest = max(len(numbers.names("layers")) for numbers in networks.values())
    for axis, (measure, (title, label, factor)) in zip(axes, PANELS.items(), strict=True):
        for place, ((study, numbers), (colour, marker)) in enumerate(zip(networks.items(), cycle(LOOKS), strict=False)):
            found = [each.scaled(factor) for each in _by_layer(numbers, measure)]
            aside = _BESIDE * (place - (len(networks) - 1) / 2)
            axis.errorbar(
                [layer - len(found) + 1 + aside for layer in range(len(found))],
                [each.mean for each in found],
                [each.sd if each.n > 1 else 0 for each in found],
                color=colour, marker=marker, linewidth=1, clip_on=False, zorder=3,
                label=f"{plain(study)} (iterations: {numbers.number('used'):.0f})",
            )  # fmt: skip
        axis.set(title=title, ylabel=label, xlim=(0.5 - deepest, 0.5))
        below = [f"{layer} below" for layer in range(deepest - 1, 0, -1)]
        axis.set_xticks(range(1 - deepest, 1), [*below, "classes"])
    axes[0].set_ylim(0, 1.03)
    axes[1].set_ylim(0, 103)
    axes[2].set_ylim(0, None)
    figure.supxlabel("routed layer", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


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
