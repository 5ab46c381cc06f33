"""A figure of test errors on smallNORB against images seen in training, for our and for published matrix capsules.
The number of images seen is the number of epochs times the number of training images.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import yaml
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import BLUE, FAINT, INK, ORANGE, PURPLE, VERMILLION, in_house_style, panels
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results, training_behind, with_training
from pipeline.systems.matrix_capsules.report.runs import Trial, runs

DATA = ("smallnorb", "smallnorb48")
"""Data sources with all images of smallNORB. Their test images show other objects than their training images."""
OFF_A_PLOT = "read off a plot"
_BEST = 3
"""How many of our runs are drawn because they have the lowest errors. Two runs are drawn whatever their errors: the run
that answers the claim about the paper's best network, and the run with the authors' settings."""
_COLOURS = (BLUE, VERMILLION, ORANGE, INK, PURPLE)
_MARKERS = {1: "^", 2: "s", 3: "o", None: "D"}
"""Marker for each number of routing iterations (None: not known). Our runs with other numbers have "P", a plus."""
_PLACES: dict[str, tuple[float, float, str]] = {
    "Officium": (0, -9, "center"),
    "yl-1993, 2 iterations": (-3, -8, "left"),
}
"""Where to put names that would otherwise cover a line: offset from the marker in points, and horizontal alignment."""


@dataclass(frozen=True)
class PublicCurve:
    """Published test errors of one network, at one or more points in its training.

    Attributes:
        name: short name, the label in figures.
        source: the paper, code repository or both that give the errors, and where in them the errors are.
        parameters: number of the network's parameters; None where the source does not give it.
        iterations: number of routing iterations; None where the source does not give it.
        read: where the points come from: "printed" (numbers in a text), "log" (a training's log) or `OFF_A_PLOT`.
        points: pairs (millions of images seen, test error in percent). An image counts again in each epoch.
    """

    name: str
    source: str
    parameters: int | None
    iterations: int | None
    read: str
    points: list[tuple[float, float]]
    note: str = ""


def load_public_curves() -> list[PublicCurve]:
    """The curves, in the order of `public_curves.yaml`."""
    rows = yaml.safe_load(Path(__file__).with_name("public_curves.yaml").read_text(encoding="utf-8"))
    return [PublicCurve(**row) for row in rows]


class Seen(NamedTuple):
    """One of our runs, with its test errors.

    Attributes:
        images: millions of images seen in training, averaged over seeds.
        error: test error (percent) after training, on the central crops of all test images.
        curve: test error (percent) during training, averaged over seeds, by millions of images seen. It is measured on
            random test images, whose number is the run's setting `watched`. Empty if `watched` is 0.
    """

    trial: Trial
    images: float
    error: Measured
    curve: "pd.Series[float]"


def seen_by_runs(results: Results) -> list[Seen]:
    """All evaluated runs of matrix capsules on smallNORB whose training has a result. The lowest error comes first.

    Runs with the setting `holdout` are left out, because their settings do not give the number of training images.
    """
    found = []
    for trial in runs(results, "matrix_capsules"):
        error = trial.numbers.measured("test", "centre")
        trained = training_behind(results, trial.numbers, trial.item)
        epochs = trained.measured("epochs") if trained else None
        if trial.dataset.source not in DATA or trial.run.get("holdout") or not (error and epochs):
            continue
        millions, curve = trial.dataset.train / 1e6, pd.Series(dtype=float)
        history = results.table("train", trial.item, ("replica", "epoch"))
        if history is not None and "test_accuracy" in history:
            curve = 100 * (1 - history.groupby(history["epoch"] * millions)["test_accuracy"].mean())
        found.append(Seen(trial, epochs.mean * millions, error.scaled(100), curve))
    return sorted(found, key=lambda each: each.error.mean)


def draw(results: Results) -> Iterator[Drawing]:
    """Yield the figure, if there are evaluated runs. It shows our runs with the lowest errors, the run that answers the
    claim about the paper's best network, the run with the authors' settings, and published errors.
    """
    evidence, found = results.evidence.matrix_capsules, seen_by_runs(results)
    named = (evidence.table_1.get("iterations_3"), evidence.published)
    ours = found[:_BEST] + [each for each in found[_BEST:] if each.trial.item in named]
    if not ours:
        return
    records = [record for each in ours for record in with_training(results, each.trial.numbers, each.trial.item)]
    yield Drawing(
        "matrix-images-seen",
        "svg",
        "Test errors on smallNORB against images seen in training",
        f"Colours show our runs with the lowest errors on {dataset_label(records)}, our run of the paper's best "
        "network (Table 1), and one with the authors' settings. Markers are errors on all test images after "
        "training, bars are one sd over seeds, and lines are errors on some test images during training. Grey shows "
        "errors that others published on the original files; public_curves.yaml names their sources and recipes, which "
        "differ. Errors at open markers are estimated from plots.",
        "Test error against the number of images seen, on logarithmic axes, with a coloured marker for each of our "
        "runs and a grey line or marker for each public implementation.",
        records,
        partial(errors, ours, load_public_curves()),
    )


@in_house_style
def errors(ours: Sequence[Seen], public: Sequence[PublicCurve]) -> Figure:
    """Draw test error against images seen, on log-log axes. Our runs have colours. Public curves are grey and named."""
    figure, (axis,) = panels(1, 4.0)
    for curve in public:
        x, y = zip(*curve.points, strict=True)
        axis.plot(
            x, y, color=FAINT, marker=_MARKERS[curve.iterations], linewidth=0.9 if len(x) > 2 else 0,
            markerfacecolor="white" if curve.read == OFF_A_PLOT else FAINT,
        )  # fmt: skip
        right, up, side = _PLACES.get(curve.name, (-5, 0, "right") if x[-1] > 50 else (5, 0, "left"))
        axis.annotate(
            curve.name.removesuffix(f", {curve.iterations} iterations"),  # markers show the iterations
            (x[-1], y[-1]), (right, up), textcoords="offset points", fontsize=7, ha=side, va="center", zorder=6,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
        )  # fmt: skip
    for each, colour in zip(ours, _COLOURS, strict=False):
        axis.plot(each.curve.index, each.curve, color=colour, linewidth=1.1, zorder=4)
        axis.errorbar(
            each.images, each.error.mean, each.error.sd if each.error.n > 1 else None, zorder=5, color=colour,
            marker=_MARKERS.get(each.trial.run.model.iterations, "P"), markersize=6, markeredgecolor="white",
            linestyle="", label=f"{each.trial.item}, {each.error.mean:.1f} %",
        )  # fmt: skip
    kinds = {2: "2 iterations of routing", 3: "3 iterations", None: "iterations not known"}
    handles = [Line2D([], [], color=FAINT, linestyle="", marker=_MARKERS[n], label=kinds[n]) for n in kinds]
    axis.legend(handles=handles, loc="lower left", title="grey: published by others", alignment="left")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    axis.set(xscale="log", xlim=(0.1, 200), xlabel="images seen in training (millions)")
    axis.set(yscale="log", ylim=(0.7, 70), ylabel="test error (%)")
    axis.set_xticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axis.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axis.minorticks_off()
    return figure
