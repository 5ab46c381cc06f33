"""Figures of CapsNet and of iterative inference in it (document 001, Figures 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import (
    BLACK,
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    WIDTH,
    in_house_style,
    panels,
)
from pipeline.results.provenance import Record, dataset_label
from pipeline.results.reading import Recorded, Results
from pipeline.systems.capsnet.report.runs import (
    CONDITIONS,
    PLAIN,
    SPARSER,
    START,
    Condition,
    Network,
    inferred_pair,
    studies,
    trained_conditions,
)

_LOOKS = {
    Condition(routed=True, reconstructed=True): (BLUE, "o", "-"),
    Condition(routed=False, reconstructed=True): (VERMILLION, "s", "-"),
    Condition(routed=True, reconstructed=False): (SKY, "o", "--"),
    Condition(routed=False, reconstructed=False): (ORANGE, "s", "--"),
}
_TERMS = ((BLUE, "-"), (GREEN, "--"), (ORANGE, "-."), (PURPLE, (0, (5, 1, 1, 1, 1, 1))))
"""Colour and dashes of each layer's errors. Other terms have markers."""
_PANELS = (
    ("routed", START, "B: routing"),
    ("unrouted", START, "C: no routing"),
    ("unrouted", PLAIN, "D: inference"),
    ("unrouted", SPARSER, "E: inference with L1"),
)
"""The panels of Figure 1: network, condition, title."""
_EXAMPLES = 2


@in_house_style
def losses_by_condition(tables: dict[Condition, pd.DataFrame]) -> Figure:
    """Figure 2: training and validation loss per epoch on a logarithmic axis, and the best validation losses."""
    figure, axes = panels(3, 2.5, sharey=True)
    for condition, table in tables.items():
        colour, marker, dashes = _LOOKS[condition]
        means = table.groupby("epoch")[["train_loss", "validation_loss"]].mean()
        for axis, column in zip(axes, means, strict=False):
            axis.plot(means.index, means[column], color=colour, linestyle=dashes, label=condition.words)
        best = table.groupby("replica")["validation_loss"].min()
        place = CONDITIONS.index(condition)
        axes[2].errorbar(
            place, best.mean(), best.std() if len(best) > 1 else 0, color=colour, marker=marker,
            markerfacecolor=colour if condition.reconstructed else "white",
        )  # fmt: skip
    for axis, title in zip(axes, ("training", "validation", "best validation"), strict=True):
        axis.set_yscale("log")
        axis.set_title(title)
    axes[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # of all: they share it
    axes[0].yaxis.set_major_formatter("{x:g}")
    axes[0].yaxis.set_minor_locator(NullLocator())
    for axis in axes[:2]:
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("loss")
    axes[2].set_xticks(range(4), ["routing", "none"] * 2)
    axes[2].set_xticks([0.5, 2.5], ["\nreconstruction", "\nno reconstruction"], minor=True)
    axes[2].tick_params(axis="x", which="minor", length=0, pad=7)
    axes[2].set_xlim(-0.6, 3.6)
    axes[2].grid(axis="x", visible=False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


@in_house_style
def class_capsules(images: np.ndarray, labels: np.ndarray, capsules: dict[str, np.ndarray]) -> Figure:
    """Figure 1B-E: the numbers of each class capsule in a row, followed by its length; the correct class is framed.

    Args:
        images: `[k, S, S]`, of which the first few are drawn.
        capsules: by title, `[k, n, D]`.
    """
    count = min(_EXAMPLES, *(len(values) for values in capsules.values()))
    figure = Figure(figsize=(WIDTH, 2.05 * count + 0.7))
    grid = figure.subplots(count, 1 + len(capsules), squeeze=False, width_ratios=[0.7, *[1.0] * len(capsules)])
    largest = max(float(np.abs(values[:count]).max()) for values in capsules.values())
    for row in range(count):
        grid[row, 0].imshow(images[row], cmap="gray_r")
        grid[row, 0].axis("off")
        for axis, (title, values) in zip(grid[row, 1:], capsules.items(), strict=True):
            _capsules(axis, values[row], int(labels[row]), largest)
            if row == 0:
                axis.set_title(title)
        grid[row, 1].set_ylabel("class")
    (colours,) = grid[0, 1].images  # all panels have the same
    figure.colorbar(
        colours, ax=grid[:, 1:], location="bottom", shrink=0.5, aspect=40, label="values of a class capsule"
    )
    return figure


def _capsules(axis: Axes, capsules: np.ndarray, label: int, largest: float) -> None:
    n, size = capsules.shape
    axis.imshow(capsules, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    axis.add_patch(Rectangle((-0.5, label - 0.5), size, 1, fill=False, edgecolor=BLACK, linewidth=1.6, zorder=5))
    for j, length in enumerate(np.linalg.norm(capsules, axis=1)):
        weight = "bold" if j == label else "normal"
        axis.text(size - 0.1, j, f"{length:.2f}", va="center", ha="left", fontsize=6.5, weight=weight)
    axis.set_yticks(range(n))
    axis.set_xticks([])
    axis.tick_params(length=0, labelsize=6.5)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)


@in_house_style
def energies_over_steps(energies: dict[str, np.ndarray]) -> Figure:
    """Terms of the energy over the steps of inference, means over images, one panel for each condition.

    Args:
        energies: by title, `[steps + 1, terms]`: the layers from the bottom up, the label, the penalty.
    """
    figure, axes = panels(len(energies), 2.4, sharey=True)
    for axis, (title, terms) in zip(axes, energies.items(), strict=True):
        layers = terms.shape[1] - 2
        for number in range(layers):
            colour, dashes = _TERMS[number % len(_TERMS)]
            axis.plot(terms[:, number], color=colour, linestyle=dashes, label=f"errors of layer {number + 1}")
        axis.plot(terms[:, -2], color=VERMILLION, marker="s", markersize=3, markevery=0.1, label="error of the label")
        if terms[:, -1].any():
            axis.plot(terms[:, -1], color=SKY, marker="^", markersize=3, markevery=0.1, label="penalty")
        axis.plot(terms.sum(1), color=INK, linestyle=":", label="all")
        axis.set_yscale("log")
        axis.set_title(title)
        axis.set_xlabel("step")
    top = max(float(terms.sum(1).max()) for terms in energies.values())
    axes[0].set_ylim(1e-5 * top, 2 * top)
    axes[0].set_ylabel("energy")
    most = max(axes, key=lambda axis: len(axis.get_lines()))
    figure.legend(*most.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Figures 1 and 2 for the networks that evidence names, and energies of each inference study."""
    yield from _figure_2(results)
    yield from _figure_1(results)
    for study in studies(results):
        arrays = _examples(study, results)
        if arrays is None:
            written.miss(f"infer/{study.item} (its examples)")
        else:
            yield from _energies(study, arrays)


def _figure_2(results: Results) -> Iterator[Drawing]:
    """Figure 2: the network with routing and reconstruction, and those that differ from it in nothing else."""
    trained = trained_conditions(results)
    tables: dict[Condition, pd.DataFrame] = {}
    records: list[Record] = []
    for condition, network in trained.items():
        table = results.table("train", network.item, ("replica", "epoch", "train_loss", "validation_loss"))
        if table is not None:
            tables[condition] = table
            records += network.numbers.records
    if tables:
        run = trained[CONDITIONS[0]].run
        dataset, weight = run.dataset, _weight(run.model)
        yield Drawing(
            f"capsnet-losses-{dataset}",
            "svg",
            f"CapsNet's loss with and without routing, {dataset}",
            "In the paper, learning without routing is slower at first and ends at nearly the same loss (Figure 2 of "
            f"document 001; here with shifted validation images in place of test images). {weight}",
            "Training and validation loss per epoch of four conditions, and their best validation losses.",
            records,
            partial(losses_by_condition, tables),
        )


def _weight(model: Recorded) -> str:
    """How losses with and without reconstruction compare: a sentence."""
    if model.reconstruction == "mean":
        return (
            f"The reconstruction's weight ({model.reconstruction_weight:g} of the mean error) is so small that lines "
            "with and without it coincide."
        )
    return "Losses with and without reconstruction are different functions and cannot be compared."


def _figure_1(results: Results) -> Iterator[Drawing]:
    """Figure 1, for the studies with routing and without, if both have examples."""
    pair = inferred_pair(results)
    if pair is None:
        return
    dataset = pair[0].run.dataset
    found = {role: _examples(study, results) for role, study in zip(("routed", "unrouted"), pair, strict=True)}
    arrays = found["unrouted"]
    if arrays is None or found["routed"] is None:
        return
    shown = {
        title: values
        for role, condition, title in _PANELS
        if (values := (found[role] or {}).get(f"capsules_{condition}")) is not None
    }
    yield Drawing(
        f"capsnet-capsules-{dataset}",
        "png",
        f"Class capsules with routing, without routing, and after inference, {dataset}",
        "The numbers of each class capsule (rows) and its length (right); the image's class is framed. "
        "From left: with routing, without, and after iterative inference with the label clamped, without a penalty "
        "and with L1 (Figure 1B-E of document 001).",
        "Heat maps of ten class capsules for two digits under four conditions.",
        [record for study in pair for record in study.numbers.records],
        partial(class_capsules, arrays["images"], arrays["labels"], shown),
    )


def _examples(study: Network, results: Results) -> dict[str, np.ndarray] | None:
    return results.examples("infer", study.item, ("images", "labels"))


def _energies(study: Network, arrays: Mapping[str, np.ndarray]) -> Iterator[Drawing]:
    prefix = "energies_predicted-clamped-"
    energies = {_title(name.removeprefix(prefix)): values for name, values in arrays.items() if name.startswith(prefix)}
    if energies:
        yield Drawing(
            f"inference-{study.item}",
            "svg",
            f"Energy during inference, {study.item}",
            "Squared prediction errors of each layer and of the clamped label, and the penalty, as means over images "
            f"of {dataset_label(study.numbers.records)}. Their sum should never rise. Class capsules are the last "
            "layer's predictions.",
            "Lines of energy over steps on a logarithmic axis, one panel for each penalty.",
            study.numbers.records,
            partial(energies_over_steps, energies),
        )


def _title(penalty: str) -> str:
    kind, _, weight = penalty.partition("-")
    return f"{kind}, weight {weight}" if weight else "no penalty"
