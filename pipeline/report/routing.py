"""Shows how capsule networks route. A figure shows the iterations of one network, on the page as a film with a slider.
One table compares the iterations of all networks, and another table compares their layers.
"""

from collections.abc import Iterator
from functools import partial

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.films import RoutingFilm, strip
from pipeline.drawing.table import Row, Table, cells, measured_table
from pipeline.results.reading import Numbers, Results
from pipeline.systems import SYSTEMS
from pipeline.systems.matrix_capsules.report.runs import class_names

NAME = "routing"
"""Prefix of the names of the figures and tables."""
_ARRAYS = ("images", "labels", "parts", "shares", "activations", "spreads")
_HEADS = {
    "test_error": ("test error (%)", 1),
    "moved": ("assignment moved (%)", 1),
    "activation_right": ("activation, correct class", 3),
    "activation_others": ("activation, other classes", 3),
    "spread_right": ("spread of votes, correct class", 3),
    "spread_others": ("spread of votes, other classes", 3),
}
_LAYER_HEADS = {
    "entropy": ("entropy of routing", 3),
    "dead": ("dead types (%)", 1),
    "range": ("dynamic range", 3),
    "types": ("number of types", 0),
}


def draw(results: Results) -> Iterator[Drawing]:
    """Yield a figure for each routing study, if its arrays exist. Raises `ResultError` if a result is corrupt."""
    for study, numbers in results.executed("routing"):
        arrays = results.examples("routing", study, (*_ARRAYS, "used"))
        if arrays is None:
            continue
        run = numbers.settings.routing[study].run
        classes = class_names(numbers.settings, numbers.dataset_of(run), arrays["activations"].shape[-1])
        film = RoutingFilm(classes=classes, used=int(arrays["used"]), **{name: arrays[name] for name in _ARRAYS})
        moved = {step: numbers.needed("moved", step).mean for step in numbers.names("moved")}
        words = ", ".join(f"{100 * share:.0f} % in iteration {step}" for step, share in moved.items())
        yield Drawing(
            f"{NAME}-{study}",
            "png",
            f"Routing after each iteration, {study}",
            "Parts are assigned to classes: equally at first, then by how well their votes fit the class capsules. A "
            "square shows all parts at a position: larger if they are more active, brighter if assigned more to the "
            "map's class. Labels on the left give the most active class and its activation. An orange edge marks the "
            "correct class. The page's film also gives each class capsule's activation, and the spread of the votes "
            f"for it around their mean. The network runs {film.used} iterations: iteration 1 has equal shares, each "
            "later iteration follows an update of the shares. Share of all assignments that moves to another class: "
            f"{words}.",
            f"{len(film.images)} images, each with a map of its parts for {len(film.classes)} classes in "
            f"{film.iterations} iterations.",
            numbers.records,
            partial(strip, film),
            document=SYSTEMS[numbers.run(run).variant].document,
            film=film.to_json(),
        )


def build(results: Results) -> list[Table]:
    """A table with a row for each iteration of each network, and one with a row for each layer. A table without rows is
    left out. Raises `ResultError` if a result is corrupt.
    """
    iterations: list[Row] = []
    layers: list[Row] = []
    for study, numbers in results.executed("routing"):
        run, own = numbers.settings.routing[study].run, numbers.at("used")
        for step in numbers.names("test_error"):
            at_step = Numbers(numbers.path, {name: numbers.at(name, step) for name in _HEADS})
            keys = [run, int(step), "yes" if int(step) <= own else "no"]
            iterations.append((keys, cells(at_step, _HEADS), numbers))
        names = numbers.names("layers")
        for place, layer in enumerate(names, 1 - len(names)):
            of_layer = [run, f"{-place} below" if place else "classes", own]
            layers.append((of_layer, cells(numbers, _LAYER_HEADS, "layers", layer), numbers))
    of_iterations = (
        "Test error if routing ended after the iteration; share of all assignments that moved to another class since "
        "the previous iteration; activations of class capsules, and spreads of the votes for them, as means over "
        "images. A spread is the root mean square distance of votes to their mean. The weight of a vote is its part's "
        "activation times the assigned share of the part. Iteration 1 has equal shares; each later iteration follows "
        "an update of the shares. Iterations beyond the network's own follow its last one, with the same votes."
    )
    of_layers = (
        "Entropy of routing: how evenly capsules below are shared by those of the layer, from 0 (each goes to one, as "
        "in a tree) to 1 (equally), as a mean weighted by activations. Dead types: capsule types whose activation is "
        "at most 0.01 at all positions of all images. Dynamic range: sd over images of a type's largest activation, "
        'averaged over types. "1 below" is the layer below the class capsules.'
    )
    steps, places = ["run", "iteration", "the network's own"], ["run", "layer", "iterations"]
    return [
        *measured_table(NAME, "Routing after each iteration", of_iterations, steps, _HEADS, iterations),
        *measured_table(f"{NAME}-layers", "Routing in each layer", of_layers, places, _LAYER_HEADS, layers),
    ]
