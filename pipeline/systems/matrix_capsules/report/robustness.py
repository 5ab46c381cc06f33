"""Adversarial attacks on matrix capsules and on the convolutional network: Figures 3 and B.3 of document 004."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.pictures import image_rows
from pipeline.drawing.style import FAINT, in_house_style, panels
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.report.robustness_claims import COLUMNS, METHODS, Attacked
from pipeline.systems.matrix_capsules.report.runs import LOOKS, NETWORKS

KINDS = {
    "general": ("away from the class", "accuracy (%)"),
    "targeted": ("towards another class", "success (%)"),
    "black-box": ("through another CNN", "accuracy (%)"),
}
"""Kinds of attacks, in words, and what is measured of them."""
_MANY_TIMES = 20
"""Where the largest epsilon is so many times the smallest, their axis is logarithmic."""


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """For each study the curves of Figure 3, and the images that attacks made."""
    for item, numbers in results.executed("attack"):
        study, label = Attacked(item, numbers), dataset_label(numbers.records)
        table = written.table(results, "attack", item, COLUMNS)
        if table is not None:
            yield Drawing(
                f"matrix-attacks-{item}",
                "svg",
                f"Adversarial attacks on matrix capsules and on the CNN, {item}",
                "Left: accuracy on images whose pixels are changed by up to epsilon, away from the correct class. "
                "Middle: how often an attack towards another class succeeds. Right: accuracy on images attacked "
                f"through another CNN (Figure 3 of document 004; {study.images:,} images of {label}). Bands "
                "are one sd over seeds; dotted is chance.",
                "Three line plots over epsilon, a line for each network and method.",
                numbers.records,
                partial(curves, table, study.chance),
            )
        arrays = written.examples(results, "attack", item, ())
        if arrays is None:
            continue
        yield Drawing(
            f"matrix-attacked-{item}",
            "png",
            f"Images that FGSM made, {item}",
            "Test images before and after attacks on each network, away from the correct class: is a change by epsilon "
            f"visible, and does it have a shape? (Figure B.3 of document 004; {label}).",
            "A grid of images, a row for each network and epsilon.",
            numbers.records,
            partial(attacked, arrays),
        )


@in_house_style
def curves(table: pd.DataFrame, chance: float) -> Figure:
    """Figure 3: accuracy under general attacks, success of targeted ones, accuracy under black-box ones (percent).

    Args:
        table: columns network, replica, method, kind, epsilon, value (shares).
        chance: percent.
    """
    kinds = [kind for kind in KINDS if (table["kind"] == kind).any()]
    smallest, largest = table.loc[table["epsilon"] > 0, "epsilon"].min(), table["epsilon"].max()
    figure, axes = panels(len(kinds), 2.6, sharex=True)
    for axis, kind in zip(axes, kinds, strict=True):
        title, words = KINDS[kind]
        for network, (colour, marker) in LOOKS.items():
            for method, dashes in zip(METHODS, ("-", "--"), strict=True):
                rows = table[(table["kind"] == kind) & (table["network"] == network) & (table["method"] == method)]
                values = 100 * rows.groupby("epsilon")["value"].agg(["mean", "std"])
                axis.plot(
                    values.index, values["mean"], color=colour, marker=marker, linestyle=dashes, markersize=3.5,
                    label=f"{NETWORKS[network]}, {method}",
                )  # fmt: skip
                if values["std"].notna().all():
                    low, high = values["mean"] - values["std"], values["mean"] + values["std"]
                    axis.fill_between(values.index, low, high, color=colour, alpha=0.15, linewidth=0)
        if kind != "targeted":
            axis.axhline(chance, color=FAINT, linestyle=":", linewidth=1, label="chance")
        axis.set_title(title)
        axis.set_xlabel("epsilon")
        if largest > _MANY_TIMES * smallest:
            axis.set_xscale("symlog", linthresh=smallest, linscale=0.5)
            decades = [float(f"1e{power}") for power in range(-6, 2)]
            ticks = [0.0, *(tick for tick in decades if smallest <= tick <= largest)]
            axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            axis.minorticks_off()
        axis.set_ylabel(words)
        axis.set_ylim(-2, 102)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, handlelength=2.8)
    return figure


def attacked(arrays: Mapping[str, np.ndarray]) -> Figure:
    """Figure B.3: images as they are, then a row for each network and epsilon (of a stereo pair the first image).

    Args:
        arrays: `[k, C, s, s]` in [0, 1], by "<network>-<epsilon>".
    """
    keys = [(float(name.partition("-")[2]), name.partition("-")[0], name) for name in arrays]
    changed = sorted(key for key in keys if key[0] > 0)
    rows = [("as they are", arrays[name]) for epsilon, _, name in keys if epsilon == 0][:1]
    rows += [(f"{NETWORKS[network]},\nepsilon {epsilon:g}", arrays[name]) for epsilon, network, name in changed]
    return image_rows([(words, images[:, 0]) for words, images in rows])
