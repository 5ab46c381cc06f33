"""Figures 1 and 2 of document 001, and tables of the sparsity of capsules."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import BLACK, WIDTH, in_house_style, panels
from pipeline.drawing.table import Row, Table, cells, tables_of
from pipeline.results.reading import NotMeasuredError, Results
from pipeline.systems.capsnet.report import claims

_PANELS = (
    ("routed", claims.START, "B: routing"),
    ("unrouted", claims.START, "C: no routing"),
    ("unrouted", claims.PLAIN, "D: inference"),
    ("unrouted", claims.SPARSER, "E: with L1"),
    ("as_coded", claims.CODED_PLAIN, "D, as coded"),
    ("as_coded", claims.CODED_SPARSER, "E, as coded"),
)
"""Panels of Figure 1. Each has a role in `evidence`, a condition in the results of its study, and a title."""
_SPARSITY = {
    "hoyer": ("Hoyer's index", 3),
    "hoyer_standard_error": ("standard error of index", 3),
    "entropy": ("entropy (nats)", 3),
    "effective_number": ("effective capsules", 2),
    "silent": ("silent (%)", 1),
    "saturated": ("saturated (%)", 1),
    "length_sd": ("sd of lengths", 3),
    "hoyer_inputs": ("Hoyer's index before squash", 3),
    "right": ("correct (%)", 1),
    "length_right": ("length, correct class", 3),
    "length_others": ("mean length, other classes", 3),
    "energy": ("energy", 4),
    "falls": ("energy never rose (%)", 1),
    "last_drop": ("last fall of energy (%)", 1),
}


def draw(results: Results) -> Iterator[Drawing]:
    """Yield Figure 2 (losses), then Figure 1 (class capsules). A figure is left out if its results were not measured.
    Figure 1 is also left out if a study has no example arrays. Without the study `as_coded`, it has fewer panels.
    """
    with suppress(NotMeasuredError):
        trained = claims.trained_conditions(results)
        dataset = trained["routed"][0].run.dataset
        yield Drawing(
            f"capsnet-losses-{dataset}",
            "svg",
            f"CapsNet's loss with and without routing, {dataset}",
            "Lines are means over seeds. Figure 2 of document 001 shows losses on test images. Here, shifted "
            "validation images take their place. Losses with reconstruction include a term for it. This term is small "
            "if its weight is small.",
            "Training and validation loss against the epoch, with and without routing and reconstruction.",
            [record for found, _ in trained.values() for record in found.numbers.records],
            partial(losses_by_condition, {role: table for role, (_, table) in trained.items()}),
        )
    with suppress(NotMeasuredError):
        studies = claims.inferred_pair(results)
        named, dataset = ("images", "labels"), studies["routed"].run.dataset
        with suppress(NotMeasuredError):
            studies["as_coded"] = claims.network(results, "infer", results.evidence.capsnet.inference.get("as_coded"))
        arrays = {role: results.examples("infer", each.item, named) or {} for role, each in studies.items()}
        panels_of = [panel for panel in _PANELS if panel[0] in studies]
        found = ((title, arrays[role].get(f"capsules_{condition}")) for role, condition, title in panels_of)
        shown = {title: capsules for title, capsules in found if capsules is not None}
        if len(shown) < len(panels_of):
            for role in (role for role, _, title in panels_of if title not in shown):
                results.miss(f"infer/{studies[role].item} (its examples)")
            return
        yield Drawing(
            f"capsnet-capsules-{dataset}",
            "png",
            f"Class capsules with routing, without routing, and after iterative inference, {dataset}",
            "Each row shows the numbers of a class capsule and, on the right, its length. The image's class is framed. "
            "Letters are those of Figure 1 of document 001. B has routing, C has none. D and E show C after iterative "
            "inference with the label clamped: D without a penalty, E with an L1 penalty. As coded: as in the "
            "document's code, where class capsules are inferred, too, and the first layer has no ReLU.",
            "Heat maps of the class capsules of two images, one map for each condition.",
            [record for study in studies.values() for record in study.numbers.records],
            partial(class_capsules, arrays["unrouted"]["images"], arrays["unrouted"]["labels"], shown),
        )


@in_house_style
def losses_by_condition(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Figure 2: training and validation losses (log axis) against epochs. `tables` has the losses by condition."""
    figure, axes = panels(2, 2.5, sharey=True)
    for axis, part in zip(axes, ("train", "validation"), strict=True):
        for role, table in tables.items():
            _, colour, dashes, words = claims.CONDITIONS[role]
            means = table.groupby("epoch")[f"{part}_loss"].mean()
            axis.plot(means, color=colour, linestyle=dashes, label=words)
        axis.set(yscale="log", title=part.replace("train", "training"), xlabel="epoch")
    axes[0].set_ylabel("loss")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


@in_house_style
def class_capsules(images: np.ndarray, labels: np.ndarray, capsules: Mapping[str, np.ndarray]) -> Figure:
    """Figure 1B-E: each row shows the numbers of a class capsule, then its length. The correct class is framed. At most
    the first two of k `images [k, S, S]` are drawn. `capsules` maps panel titles to n capsules per image, `[k, n, D]`.
    """
    count = min(2, *(len(values) for values in capsules.values()))
    figure = Figure(figsize=(WIDTH, 2.05 * count + 0.7))
    grid = figure.subplots(count, 1 + len(capsules), squeeze=False, width_ratios=[0.7, *[1.0] * len(capsules)])
    largest = max(float(np.abs(values[:count]).max()) for values in capsules.values())
    for row in range(count):
        grid[row, 0].imshow(images[row], cmap="gray_r")
        grid[row, 0].axis("off")
        for axis, (title, values) in zip(grid[row, 1:], capsules.items(), strict=True):
            n, size = values[row].shape
            corner = -0.5, labels[row] - 0.5
            colours = axis.imshow(values[row], cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
            axis.add_patch(Rectangle(corner, size, 1, fill=False, edgecolor=BLACK, linewidth=1.6, zorder=5))
            for j, length in enumerate(np.linalg.norm(values[row], axis=1)):
                weight = "bold" if j == labels[row] else "normal"
                axis.text(size - 0.1, j, f"{length:.2f}", va="center", ha="left", fontsize=6.5, weight=weight)
            axis.set(yticks=range(n), xticks=[], title=title if row == 0 else "")
            axis.tick_params(length=0, labelsize=6.5)
            axis.grid(visible=False)
            axis.spines[:].set_visible(False)
        grid[row, 1].set_ylabel("class")
    figure.colorbar(colours, ax=grid[:, 1:], location="bottom", shrink=0.5, aspect=40, label="value in a capsule")
    return figure


def build(results: Results) -> list[Table]:
    """A table of sparsity for each data set. It has a row for each layer in each condition of each study."""
    rows: dict[str, list[Row]] = {}
    for item, numbers in results.executed("infer"):
        of_dataset = rows.setdefault(claims.network(results, "infer", item).run.dataset, [])
        for condition in numbers.names("condition"):
            for layer in numbers.names("condition", condition):
                images = numbers.measured("condition", condition, layer, "images")
                keys: list[object] = [item, condition, layer, f"{images.mean:.0f}" if images else ""]
                of_dataset.append((keys, cells(numbers, _SPARSITY, "condition", condition, layer), numbers))
    caption = (
        "Sparsity of the lengths of a layer's capsules, means over images. Hoyer's index: 1 if a single capsule is "
        "active, 0 if all have the same length. Silent: images without an active capsule; index, entropy and effective "
        "capsules leave these images out. Effective capsules: exp of the entropy, the number of equally long capsules "
        "with this entropy. Saturated: capsules longer than 0.9. `forward` is the forward pass of all test images, "
        "`start` that of images used in inference. Other conditions are after inference, which lowers an energy. Their "
        "names give class capsules (predicted from below, or free: inferred, too), label (clamped, or free: unused), "
        "penalty, weight, and `unrectified` without the first layer's ReLU. Correct: the class's capsule is longest. "
        "Last fall of energy: in the last tenth of the steps, in percent of the energy before."
    )
    head = ["study", "condition", "layer", "images"]
    return tables_of("sparsity", "Sparsity before and after iterative inference", caption, head, _SPARSITY, rows)
