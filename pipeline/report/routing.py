"""Shows how capsule networks route. Each network has a figure of its iterations, with a slider. All networks share a
table of iterations and a table of layers.
"""

from collections.abc import Iterator
from functools import partial

from pipeline.drawing.drawings import Drawing, Written
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
    "moved": ("moved (%)", 1),
    "activation_right": ("activation, right class", 3),
    "activation_others": ("activation, others", 3),
    "spread_right": ("spread of votes, right class", 3),
    "spread_others": ("spread of votes, others", 3),
}
_LAYER_HEADS = {
    "entropy": ("entropy of routing", 3),
    "dead": ("dead types (%)", 1),
    "range": ("dynamic range", 3),
    "types": ("types", 0),
}


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Yield a figure for each study of routing that has arrays. Raises `ResultError` if a result is corrupt."""
    for study, numbers in results.executed("routing"):
        arrays = written.examples(results, "routing", study, (*_ARRAYS, "used"))
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
            f"Routing, iteration by iteration, {study}",
            "Parts are assigned to classes, equally at first, then by how well their votes fit the class capsules. A "
            "square is all parts of a position: the larger, the more active; the brighter, the more is assigned to the "
            "class. On the left, the most active class and its activation; an orange edge marks the image's own class. "
            "Numbers in the page's film: activation of the class capsule; spread of its votes around their mean. "
            f"The network runs {film.used} iterations: the first with equal shares, the others after an update of the "
            f"shares. Share of the assignment that moves to another class: {words}.",
            f"{len(film.images)} images, each with a map of its parts for {len(film.classes)} classes in "
            f"{film.iterations} iterations.",
            numbers.records,
            partial(strip, film),
            document=SYSTEMS[numbers.run(run).variant].document,
            film=film.to_json(),
        )


def build(results: Results) -> list[Table]:
    """A table of iterations and a table of layers of all networks, if not empty. Raises `ResultError` as `draw`."""
    iterations: list[Row] = []
    layers: list[Row] = []
    for study, numbers in results.executed("routing"):
        run, own = numbers.settings.routing[study].run, int(numbers.number("used") or 0)
        for step in numbers.names("test_error"):
            at_step = Numbers(numbers.path, {name: numbers.at(name, step) for name in _HEADS})
            keys = [run, int(step), "yes" if int(step) <= own else "no"]
            iterations.append((keys, cells(at_step, _HEADS), numbers))
        names = numbers.names("layers")
        for place, layer in enumerate(names, 1 - len(names)):
            of_layer = [run, f"{-place} below" if place else "classes", own]
            layers.append((of_layer, cells(numbers, _LAYER_HEADS, "layers", layer), numbers))
    of_iterations = (
        "The test error if routing ended there; the share of the assignment that goes to another class than in the "
        "iteration before; means over images of the class capsules' activations, and of the spread of votes (root mean "
        "square distance to their mean, each weighted by its part's activation and by how much of the part is "
        "assigned). Iteration 1 has equal shares, each later one follows an update of them. Iterations that are not "
        "the network's own follow its last one, with the same votes."
    )
    of_layers = (
        "Entropy of routing: how evenly capsules are divided among the capsules above, from 0 (one parent, as in a "
        "tree) to 1 (equal shares), mean weighted by activations of the divided capsules. Dead: types of capsules "
        "whose activation is at most 0.01 at all positions of all images. Dynamic range: sd over images of a type's "
        "largest activation, mean over types. Layers are counted down from the class capsules."
    )
    steps, places = ["run", "iteration", "the network's own"], ["run", "layer", "iterations"]
    return [
        *measured_table(NAME, "Routing, iteration by iteration", of_iterations, steps, _HEADS, iterations),
        *measured_table(f"{NAME}-layers", "Routing, layer by layer", of_layers, places, _LAYER_HEADS, layers),
    ]
