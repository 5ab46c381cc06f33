"""Figures and tables of capsule regression (document 002)."""

from collections.abc import Iterator
from functools import partial
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import BLUE, COLUMN, FAINT, INK, VERMILLION, WIDTH, in_house_style, panels
from pipeline.drawing.table import Table, tracked
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.regression.report.claims import DECISIONS, executed

LOOKS = dict(zip(DECISIONS, ((VERMILLION, "o"), (BLUE, "s"), (INK, "^")), strict=True))
"""Colour and marker of each architecture. As in the paper, multiclass is red, one-vs-all blue, all-vs-all black."""
VARIANTS = {
    "plain": ("plain EM", INK, "-"),
    "threshold": ("threshold", INK, "--"),
    "momentum": ("momentum", BLUE, "-"),
    "both": ("momentum and threshold", BLUE, "--"),
}


@in_house_style
def error_over_size(table: pd.DataFrame) -> Figure:
    """Figure 5: test error (percent) against capsule size, with a line for each architecture. Classifiers without
    capsules have horizontal lines. Their size in `table` is 0.
    """
    figure, (axes,) = panels(1, 2.8, COLUMN)
    for decision, (colour, marker) in LOOKS.items():
        rows = table[table["model"] == decision].sort_values("size")
        axes.plot(rows["size"], 100 * rows["test"], color=colour, marker=marker, label=decision)
    others = table[table["size"] == 0]
    for name, error, dashes in zip(others["model"], others["test"], cycle((":", "--", "-.", "-"))):
        axes.axhline(100 * error, color=FAINT, linestyle=dashes, linewidth=1, label=name, zorder=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="capsule size d", ylabel="test error (%)", ylim=(0, 106 * table["test"].max()))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


@in_house_style
def squashed_planes(latents: np.ndarray, labels: np.ndarray, confident: np.ndarray) -> Figure:
    """Figures 2-3: the squashed vectors `latents [n, m, 2]` of n images, with a panel for each of m capsules. Images of
    the capsule's class (see `labels [n]`) are blue. Each panel's corner shows an image of `confident [m, S, S]`: the
    image of the capsule's class whose vector is longest.
    """
    classes, columns = len(confident), 5
    rows = -(-classes // columns)
    figure = Figure(figsize=(WIDTH, 1.45 * rows))
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for each in axes:
        each.set_axis_off()
    for capsule, each in enumerate(axes[:classes]):
        order = np.argsort(labels == capsule, kind="stable")  # draw images of the capsule's class last, on top
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
def two_losses(table: pd.DataFrame) -> Figure:
    """Figures 6-7: training log-loss and error (percent) against iterations, with a line for each variant of EM."""
    figure, axes = panels(2, 2.4)
    labels = {"log_loss": "training log-loss / log m", "error": "training error (%)"}
    for each, (column, label), factor in zip(axes, labels.items(), (1.0, 100.0), strict=True):
        for variant, (name, colour, dashes) in VARIANTS.items():
            rows = table[table["variant"] == variant]
            each.plot(rows["iteration"], factor * rows[column], color=colour, linestyle=dashes, label=name)
        each.set_xscale("log")
        each.xaxis.set_major_formatter("{x:g}")
        each.set(xlabel="iteration", ylabel=label)
        each.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


@in_house_style
def starts(table: pd.DataFrame) -> Figure:
    """Figure 8: lowest training error from each random start, by its sd. A line shows that from the subspace start."""
    errors_of = {str(start): 100 * rows.to_numpy() for start, rows in table.groupby("start", sort=False)["error"]}
    (level,) = errors_of.pop("subspace")
    figure, (axes,) = panels(1, 2.4, COLUMN)
    for place, errors in enumerate(errors_of.values()):  # side by side, so that equal errors do not overlap
        places = place + np.linspace(-0.2, 0.2, len(errors))
        axes.plot(places, errors, "o", color=INK, markersize=2.2, alpha=0.6, markeredgewidth=0)
    axes.axhline(level, color=BLUE, linestyle="--", linewidth=1.2, label="subspace start")
    axes.set_xticks(range(len(errors_of)), list(errors_of))
    axes.set(xlabel="sd of the random start", ylabel="lowest training error (%)")
    axes.legend(loc="best")
    return figure


def prototypes(images: np.ndarray) -> Figure:
    """Figure 4: the prototypes `images [m, d, S, S]`. Rows are classes, columns are elements of a class's capsule."""
    rows = [(str(c), each.astype(np.float32) / 255) for c, each in enumerate(images)]
    return pictures.image_rows(rows, [str(a + 1) for a in range(images.shape[1])], "element")


def draw(results: Results) -> Iterator[Drawing]:
    """Yield every figure of the executed studies of capsule regression, sorted by kind of study."""
    for study in executed(results):
        table, name, records = study.table(()), study.name, study.numbers.records
        if table is None:
            continue
        if study.kind == "convergence":
            yield Drawing(
                name,
                "svg",
                f"Momentum and thresholds, {name}",
                "In the paper, momentum lowers log-loss and error faster, and a threshold (images that are clearly "
                "right have no effect) gives fewer errors at a lower likelihood. Log-loss is divided by that of equal "
                f"probabilities for all classes (data: {dataset_label(records)}).",
                "Log-loss and training error against iterations, with four lines each.",
                records,
                partial(two_losses, table),
            )
        if study.kind == "starts":
            yield Drawing(
                name,
                "svg",
                f"Random starts and the subspace start, {name}",
                f"The lowest training error in any iteration, from each of {study.settings.seeds} random starts for "
                "each sd of initial weights. The dashed line is the lowest error from the subspace start "
                f"({dataset_label(records)}; the paper's Figure 8).",
                "A point for each random start, by its sd, and a dashed line for the subspace start.",
                records,
                partial(starts, table),
            )
        if study.kind != "grid":
            continue
        yield Drawing(
            f"capsule-size-{name}",
            "svg",
            f"Test error against capsule size, {name}",
            "Test errors of capsule regression, and of other classifiers on the same inputs. In the paper's Figure 5, "
            f"errors fall if capsules are larger or if there are more capsules (data: {dataset_label(records)}).",
            "Test error against capsule size, with a line each for multiclass, one-vs-all and all-vs-all, and a "
            "horizontal line for each other classifier.",
            records,
            partial(error_over_size, table),
        )
        arrays = study.examples()
        if arrays is None:
            continue
        if "latents" in arrays:
            yield Drawing(
                f"planes-{name}",
                "png",
                f"Squashed vectors of capsules of size 2, {name}",
                "A panel for each class. Test images of the class (blue) should lie near the unit circle, other images "
                f"(grey) near its centre ({dataset_label(records)}; the paper's Figures 2-3). The corner shows the "
                "class's image nearest to the circle.",
                f"{len(arrays['confident'])} scatter plots within unit circles, points of the panel's class in blue.",
                records,
                partial(squashed_planes, arrays["latents"], arrays["labels"], arrays["confident"]),
            )
        if "prototypes" in arrays:
            yield Drawing(
                f"prototypes-{name}",
                "png",
                f"Prototypes of the elements of capsules of size 8, {name}",
                "For each element of a class's capsule, the class's training image with the strongest response. "
                "Different elements respond to different appearances (the paper's Figure 4).",
                "A row of images for each class, one image per element of its capsule.",
                records,
                partial(prototypes, arrays["prototypes"]),
            )


_COLUMNS = {
    "model": ("model", ""),
    "size": ("size", ""),
    "train": ("training error (%)", ".2%"),
    "validation": ("validation error (%)", ".2%"),
    "test": ("test error (%)", ".2%"),
    "test_log_loss": ("test log-loss (nats)", ".4f"),
    "ece": ("calibration error (%)", ".2%"),
    "ece_by_chance": ("calibration error by chance (%)", ".2%"),
    "iterations": ("iterations", ",.0f"),
    "parameters": ("parameters", ",.0f"),
    "seconds": ("seconds", ".1f"),
}
"""Heading and format of each column. Cells have no percent sign. They are blank where a value is missing."""


def build(results: Results) -> list[Table]:
    """A table for each study of kind "grid", with a row per architecture and size, and a row per other classifier."""
    tables = []
    for study in executed(results):
        data, records = study.table(()), study.numbers.records
        if data is not None and study.kind == "grid":
            title = f"Errors of capsule regression by size and architecture, {study.name}"
            told = (
                "Errors of capsule regression after the schedule of section 3.1 (Figure 5), and of other classifiers "
                "on the same inputs. Log-loss and expected calibration error: on test images. By chance: the mean "
                "calibration error if probabilities are right. Iterations: the most that a class or a pair of classes "
                f"took. Seconds: for the fit, or for all hyperparameters that are tried. On {dataset_label(records)}."
            )
            shown = {
                head: data[column].map(f"{{:{form}}}".format).str.removesuffix("%").where(data[column].notna(), "")
                for column, (head, form) in _COLUMNS.items()
            }
            shown["size"] = shown["size"].replace("0", "")  # other classifiers have size 0 in `data`
            tidy = data[list(_COLUMNS)].assign(dataset=dataset_label(records), tracking_run=tracked(records))
            tables.append(Table(study.name, title, told, tidy, pd.DataFrame(shown), records))
    return tables
