"""Routing layer by layer, of every network that was followed: is it a tree, and which capsules take part in it?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import cycle

from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, in_house_style, panels, plain
from pipeline.results.measured import Measured
from pipeline.results.reading import Numbers, Results

NAME = "routing-layers"
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
    """A figure of all networks whose layers were measured, if any. Raises `ResultError` if a result is corrupt."""
    networks = {study: numbers for study, numbers in results.executed("routing") if numbers.names("layers")}
    if not networks:
        return
    types = "; ".join(
        f"{study} {', '.join(f'{found.mean:.0f}' for found in _by_layer(numbers, 'types'))}"
        for study, numbers in networks.items()
    )
    yield Drawing(
        NAME,
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
