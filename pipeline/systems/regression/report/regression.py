"""Figures and tables of capsule regression (document 002)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import BLUE, COLUMN, FAINT, GREEN, INK, ORANGE, VERMILLION, WIDTH, in_house_style, panels
from pipeline.drawing.table import Columns, Table, study_table
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.regression.report.claims import DECISIONS, RegressionStudy, executed

PARTS = {"train": "training", "validation": "validation", "test": "test"}
LOOKS = dict(zip(DECISIONS, ((VERMILLION, "o"), (BLUE, "s"), (INK, "^")), strict=True))
"""The paper's colours: multiclass red, one-vs-all blue, all-vs-all black."""
BASELINES = {
    "logistic-regression": ("logistic regression", ":"),
    "nearest-neighbours": ("nearest neighbours", "--"),
    "random-forest": ("random forest", "-."),
    "support-vectors": ("support vectors (RBF)", "-"),
}
VARIANTS = {
    "plain": ("plain EM", INK, "-"),
    "threshold": ("threshold", INK, "--"),
    "momentum": ("momentum", BLUE, "-"),
    "both": ("momentum and threshold", BLUE, "--"),
}
METHODS = {
    "batch": ("batch", INK, "-"),
    "batch, momentum": ("batch, momentum", BLUE, "--"),
    "incremental": ("incremental", VERMILLION, "-."),
    "incremental, momentum": ("incremental, momentum", ORANGE, "--"),
    "online": ("online", GREEN, ":"),
}
LABELS = {
    "log_loss": "training log-loss / log m",
    "iteration": "iteration",
    "passes": "passes over the training images",
    "error": "training error (%)",
    "test": "test error (%)",
}
LOG_M = "Log-loss is in parts of log m (m: number of classes), which equal probabilities give."
FEWEST = 5
"""Test images in a bin of the reliability diagram, at least."""


@in_house_style
def error_over_size(table: pd.DataFrame) -> Figure:
    """Figure 5: test and training error (percent) over capsule size, one line per architecture; horizontal lines for
    other classifiers, whose size is 0 in the table.
    """
    figure, axes = panels(2, 2.6, sharey=True)
    sizes = sorted({*table["size"]} - {0})
    for each, part in zip(axes, ("test", "train"), strict=True):
        for decision, (colour, marker) in LOOKS.items():
            rows = table[table["model"] == decision].sort_values("size")
            each.plot(rows["size"], 100 * rows[part], color=colour, marker=marker, label=decision)
        each.set_xscale("log", base=2)
        each.set_xticks(sizes, [str(size) for size in sizes])
        each.set_xticks([], minor=True)
        each.set(xlabel="capsule size d", title=PARTS[part])
    for name, (words, dashes) in BASELINES.items():
        for value in table[table["model"] == name]["test"]:
            axes[0].axhline(100 * value, color=FAINT, linestyle=dashes, linewidth=1, label=words, zorder=1)
    axes[0].set(ylabel="error (%)", ylim=(0, 106 * table[["test", "train"]].to_numpy().max()))  # no marker on the frame
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


@in_house_style
def calibration(reliability: dict[str, np.ndarray]) -> Figure:
    """Reliability diagram, from `[bins, 4]` by model: images, mean confidence, share correct and its sd."""
    figure, (axes,) = panels(1, 2.8, COLUMN)
    axes.plot([0, 100], [0, 100], color=INK, linestyle="--", linewidth=0.8, label="right probabilities")
    for name, bins in reliability.items():
        colour, marker = LOOKS.get(name, (FAINT, "D"))
        _, confidence, right, sd = bins[bins[:, 0] >= FEWEST].T
        bars = 100 * np.stack([np.minimum(sd, right), np.minimum(sd, 1 - right)])
        axes.errorbar(
            100 * confidence, 100 * right, bars, color=colour, marker=marker, label=BASELINES.get(name, (name,))[0],
            linewidth=1, elinewidth=0.7, capsize=0,
        )  # fmt: skip
    axes.set(xlabel="confidence (%)", ylabel="test images correct (%)", xlim=(0, 104), ylim=(0, 104))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


@in_house_style
def squashed_planes(latents: np.ndarray, labels: np.ndarray, confident: np.ndarray) -> Figure:
    """Figures 2-3: one panel per capsule of two numbers, with the squashed vectors `[n, m, 2]` of all images, blue for
    its class, and in its corner a confident image, of `[m, S, S]`.
    """
    classes, columns = len(confident), 5
    rows = -(-classes // columns)
    figure = Figure(figsize=(WIDTH, 1.45 * rows))
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for each in axes:
        each.set_axis_off()
    for capsule, each in enumerate(axes[:classes]):
        order = np.argsort(labels == capsule, kind="stable")  # its own class last, above the others
        colours = np.where(labels[order] == capsule, BLUE, "#c4c4c4")
        each.scatter(*latents[order, capsule].T, s=0.8 if len(order) > 2000 else 4, c=colours, linewidths=0)
        angle = np.linspace(0, 2 * np.pi, 200)
        each.plot(np.cos(angle), np.sin(angle), color=INK, linewidth=0.6)
        each.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), aspect="equal")
        each.set_title(str(capsule), pad=1)
        inset = each.inset_axes((0.8, 0.8, 0.26, 0.26))
        inset.imshow(confident[capsule], cmap="gray", interpolation="nearest")
        inset.set_axis_off()
    return figure


@in_house_style
def two_losses(table: pd.DataFrame, key: str, looks: dict[str, tuple[str, str, str]], x: str, error: str) -> Figure:
    """Training log-loss and an error (percent) side by side, one line for each value of the column `key`, with its
    name, colour and dashes.
    """
    figure, axes = panels(2, 2.4)
    for each, column, factor in zip(axes, ("log_loss", error), (1.0, 100.0), strict=True):
        for value, (name, colour, dashes) in looks.items():
            rows = table[table[key] == value]
            each.plot(rows[x], factor * rows[column], color=colour, linestyle=dashes, label=name)
        each.set_xscale("log")
        each.xaxis.set_major_formatter("{x:g}")
        each.set(xlabel=LABELS[x], ylabel=LABELS[column])
        each.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


@in_house_style
def starts(table: pd.DataFrame) -> Figure:
    """Figure 8: lowest training errors from random starts by their sd, and from the subspace start."""
    errors_of = {str(start): 100 * rows.to_numpy() for start, rows in table.groupby("start", sort=False)["error"]}
    (level,) = errors_of.pop("subspace")
    figure, (axes,) = panels(1, 2.4, COLUMN)
    for place, errors in enumerate(errors_of.values()):  # side by side, so that equal ones are seen
        places = place + np.linspace(-0.2, 0.2, len(errors))
        axes.plot(places, errors, "o", color=INK, markersize=2.2, alpha=0.6, markeredgewidth=0)
    axes.axhline(level, color=BLUE, linestyle="--", linewidth=1.2, label="subspace start")
    axes.set_xticks(range(len(errors_of)), list(errors_of))
    axes.set(xlabel="sd of the random start", ylabel="lowest training error (%)")
    axes.legend(loc="best")
    return figure


def _pictures(study: RegressionStudy, table: pd.DataFrame, written: Written) -> Iterator[Drawing]:
    """What is drawn of a study's arrays."""
    arrays = study.examples(())
    if arrays is None:
        written.miss(f"{study.label} (its examples)")
        return
    name, records = study.name, study.numbers.records
    if "reliability" in arrays:
        largest = int(table["size"].max())
        measured = table[(table["size"] == largest) | ((table["size"] == 0) & table["ece"].notna())]["model"]
        yield Drawing(
            f"calibration-{name}",
            "svg",
            f"Calibration of class probabilities, {name}",
            f"With d = {largest}: share of test images classified correctly over the probability given to their class, "
            f"in bins of {FEWEST} images or more ({dataset_label(records)}); bars: one sd if the probabilities were "
            "right.",
            "A reliability diagram, one line each for multiclass, one-vs-all and all-vs-all.",
            records,
            partial(calibration, dict(zip(measured, arrays["reliability"], strict=True))),
        )
    if "latents" in arrays:
        yield Drawing(
            f"planes-{name}",
            "png",
            f"Squashed vectors of capsules of two numbers, {name}",
            "One panel per class: test images of that class (blue) should lie near the rim, others (grey) near the "
            f"middle ({dataset_label(records)}; the paper's Figures 2-3). The corner shows the image of the class that "
            "is nearest to the rim.",
            f"{len(arrays['confident'])} scatter plots within unit circles, points of the panel's class in blue.",
            records,
            partial(squashed_planes, arrays["latents"], arrays["labels"], arrays["confident"]),
        )
    if "prototypes" in arrays:
        rows = [(str(c), images.astype(np.float32) / 255) for c, images in enumerate(arrays["prototypes"])]
        yield Drawing(
            f"prototypes-{name}",
            "png",
            f"Prototypes of the elements of capsules of eight numbers, {name}",
            "For each element of each class's capsule, the training image of that class with the strongest response "
            "(the paper's Figure 4): different elements respond to different appearances.",
            "A row of images for each class, one image per element of its capsule.",
            records,
            partial(pictures.image_rows, rows, [str(a + 1) for a in range(len(rows[0][1]))], "element"),
        )


_FIGURES: dict[str, tuple[Callable[[pd.DataFrame], Figure], str, str, str]] = {
    "grid": (
        error_over_size,
        "Error over capsule size",
        "Left: in the paper's Figure 5 the test error falls with larger capsules and with more of them; here on "
        "{data}, with other classifiers on the same inputs. Right: the training error.",
        "Two plots of error over capsule size, one line each for multiclass, one-vs-all and all-vs-all, with "
        "horizontal lines for other classifiers.",
    ),
    "convergence": (
        partial(two_losses, key="variant", looks=VARIANTS, x="iteration", error="error"),
        "Momentum and thresholds",
        "In the paper momentum lowers both losses faster, and a threshold gives fewer errors at a lower likelihood "
        f"({{data}}). {LOG_M}",
        "Log-loss and training error over iterations, four lines.",
    ),
    "starts": (
        starts,
        "Random starts and the subspace start",
        "The lowest training error from each of {settings.seeds} random starts for each sd; below the dashed line it "
        "beats the subspace start ({data}).",
        "Points by sd of the random starts, and a line for the subspace start.",
    ),
    "online": (
        partial(two_losses, key="method", looks=METHODS, x="passes", error="test"),
        "Incremental and online EM",
        f"Log-loss and test error of each method after each pass over the training images ({{data}}). {LOG_M}",
        "Log-loss and test error over passes, one line per method.",
    ),
}
"""By kind of study: function of the figure of its table, title, caption and alternative text."""


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Every figure of the regression studies, sorted by kind."""
    for study in executed(results):
        records, table = study.numbers.records, study.table(())
        if table is not None and study.kind in _FIGURES:
            function, title, caption, alt = _FIGURES[study.kind]
            name = f"capsule-size-{study.name}" if study.kind == "grid" else study.name
            told = caption.format(data=dataset_label(records), settings=study.settings)
            yield Drawing(name, "svg", f"{title}, {study.name}", told, alt, records, partial(function, table))
        if table is not None and study.kind == "grid":
            yield from _pictures(study, table, written)


_ERRORS: Columns = {part: (f"{label} error (%)", ".2%") for part, label in PARTS.items()}
_TABLES: dict[str, tuple[str, str, Columns]] = {
    "grid": (
        "Errors of capsule regression by size and architecture",
        "Errors of capsule regression, and of other classifiers on the same inputs, after the schedule of section 3.1 "
        "(Figure 5). Log loss and expected calibration error are those on test images; by chance: that error if the "
        "probabilities were right. Iterations: the most of any problem. Seconds: for the whole fit, or for all "
        "strengths tried.",
        {
            "model": ("model", ""),
            "size": ("size", ""),
            **_ERRORS,
            "test_log_loss": ("test log loss (nats)", ".4f"),
            "ece": ("calibration error (%)", ".2%"),
            "ece_by_chance": ("by chance (%)", ".2%"),
            "iterations": ("iterations", ",.0f"),
            "parameters": ("parameters", ",.0f"),
            "seconds": ("seconds", ".1f"),
        },
    ),
    "ridge": (
        "Capsule regression with a penalty",
        "Errors with a penalty on squared weights. Unit of the penalty: mean square of a feature times the number of "
        "examples.",
        {"penalty": ("penalty", "g"), **_ERRORS},
    ),
    "distorted": (
        "Training on distorted copies",
        "Errors after training on the original images, and on these with distorted copies, which count among the "
        "training images. The strength is chosen on validation images.",
        {
            "data": ("data", ""),
            "strength": ("strength", "g"),
            "examples": ("examples", ""),
            **_ERRORS,
            "iterations": ("iterations", ""),
            "seconds": ("seconds", ".1f"),
        },
    ),
}
"""By kind of study whose figure does not say all: the table's title, its caption, and its columns in order."""


def build(results: Results) -> list[Table]:
    """A table for each study that was executed and has one, sorted by kind."""
    tables = []
    for study in executed(results):
        data, records = study.table(()), study.numbers.records
        if data is None or study.kind not in _TABLES:
            continue
        title, caption, columns = _TABLES[study.kind]
        told = f"{caption} On {dataset_label(records)}."
        table = study_table(study.name, f"{title}, {study.name}", told, data, columns, records)
        if study.kind == "grid":
            table.shown["size"] = table.shown["size"].replace("0", "")  # of other classifiers
        tables.append(table)
    return tables
