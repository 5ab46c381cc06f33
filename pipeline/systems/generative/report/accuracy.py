"""Table 1 of document 000: accuracies of probes over rotation; and two claims about the run behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import Look, look
from pipeline.drawing.style import INK, in_house_style, panels
from pipeline.drawing.table import Table, spread, tracked
from pipeline.results.claims import load_claims
from pipeline.results.documents import LABELS, documents
from pipeline.results.findings import NOT_THE_PAPERS_DATA, Finding, Measure
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report import presences
from pipeline.systems.generative.report.shared import (
    ACCURACY,
    CHANCE,
    accuracy_axis,
    answer,
    chance_of,
    classes_of,
    drawn,
    evaluated,
    evaluated_capsules,
    groups,
    legend_columns,
    lines_of,
    name_of_test,
    names_of,
    other_images,
    percent,
    plot_accuracy,
    symbols,
    wide,
)

MAX_PARAMETERS = 30_000
_FEATURES = {"t0": "t0", "t0A0": "t0_A0", "vae": "mu_sigma"}
_TESTS = {name: f"rotated_{name}" for name in ("0", "45", "90", "135", "180")} | {"aff": "affine"}
TABLE_1 = {
    f"000.t1.{row}.{column}": (features, test) for row, features in _FEATURES.items() for column, test in _TESTS.items()
}
"""The claims about the cells of Table 1: features and test of each."""
PAPER = f"the paper ({LABELS['mnist']})"
SOURCES = {"refit": "ours, probe refit", "fixed": "ours, probe fixed"}
PROTOCOLS = {"refit": "probe refit on equally warped images", "fixed": "probe fit on clean images only"}
RING = 7.5
"""Size of an open (unfilled) marker, in points."""


def _probe(features: str, test: str) -> Measure:
    """Accuracy (%) of the probe refit on equally warped images, the protocol that matches the paper's numbers."""
    variant, affine = "vae" if features == "mu_sigma" else "capsules", test == "affine"

    def measure(results: Results) -> Finding | None:
        evidence = results.evidence.generative
        named = evidence.affine if affine else evidence.table_1
        run, numbers = results.answering("evaluate", named.get(variant))
        official = numbers.measured("probe", features, "refit", "affnist") if affine else None
        accuracy = official or numbers.needed("probe", features, "refit", test)
        dataset, document = numbers.dataset_of(run), f"affine_{variant}" if affine else variant
        answered = answer(
            results, numbers, run, accuracy.scaled(100), document, replicas=accuracy.n, tested=dataset.test
        )
        said, notes = answered.remarks, answered.notes
        if affine and official is None and dataset.source == "mnist":
            # The test images are warped here, within affNIST's published ranges; they are not affNIST's files.
            said.insert(0, f"{NOT_THE_PAPERS_DATA} (affNIST's ranges, drawn anew)")
        if variant == "vae" and test != "rotated_0":
            said.append("probe refit (the paper's VAE row falls like that of a fixed probe)")
        if features == "t0":
            notes += presences.notes(numbers, classes_of(numbers, run))
        if variant == "vae":
            model = numbers.run(run).model
            sizes = f"{model.latent} latent dimensions, {model.hidden} hidden units"
            notes.append(f"{sizes}, {model.pixels} pixels (the paper gives none of these)")
        if test != "rotated_0":
            notes.insert(0, "probe refit on equally warped training images")
        fixed = numbers.measured("probe", features, "fixed", test if official is None else "affnist")
        if fixed and test != "rotated_0":
            answered.others["probe fit on clean images"] = fixed.scaled(100)
        return answered

    return measure


def parameters(results: Results) -> Finding | None:
    """Fewer than 30,000 parameters in the generative part of the capsule model."""
    run, numbers = results.answering("train", results.evidence.generative.table_1.get("capsules"))
    count = numbers.number("parameters", "generative")
    if count is None:
        return None
    return answer(results, numbers, run, Measured(count, 0.0, 1), holds=count < MAX_PARAMETERS)


def children_classify(results: Results) -> Finding | None:
    """Appendix D: the expected number of children classifies clean images too.

    "Too" means at least half as far above chance as the probe on t0 of the same run.
    """
    run, numbers = evaluated_capsules(results)
    children, t0 = (
        numbers.needed("probe", features, "refit", "rotated_0").scaled(100) for features in ("children", "t0")
    )
    chance = chance_of(numbers, run)
    return answer(
        results,
        numbers,
        run,
        children,
        replicas=children.n,
        tested=numbers.dataset_of(run).test,
        holds=children.mean - chance >= (t0.mean - chance) / 2 > 0,
        notes=[f"probe on t0: {t0.mean:.1f} %"],
    )


MEASURES: dict[str, Measure] = {
    **{claim: _probe(features, test) for claim, (features, test) in TABLE_1.items()},
    "000.params": parameters,
    "000.appD": children_classify,
}


def paper_table() -> pd.DataFrame:
    """Table 1 as its claims give it: columns features, test, mean, sd (percent)."""
    rows = [(*TABLE_1[claim.id], claim.value, claim.sd) for claim in load_claims() if claim.id in TABLE_1]
    return pd.DataFrame(rows, columns=["features", "test", "mean", "sd"])


def probe_table(numbers: Numbers) -> pd.DataFrame:
    """The accuracies of one evaluated run: columns features, protocol, test, mean, sd, n (percent)."""
    rows = [
        (features, protocol, test, *percent(found))
        for features in numbers.names("probe")
        for protocol in numbers.names("probe", features)
        for test in numbers.names("probe", features, protocol)
        if (found := numbers.measured("probe", features, protocol, test))
    ]
    return pd.DataFrame(rows, columns=["features", "protocol", "test", "mean", "sd", "n"])


def in_order(tests: pd.Series[str]) -> list[str]:
    """Test sets without repetitions: rotations by angle, then the others."""
    return sorted(tests.unique(), key=lambda test: float(test[8:]) if test.startswith("rotated_") else math.inf)


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Accuracy over rotation, beside the paper's where the training images were upright."""
    found, paper = evaluated(results), paper_table()
    for group in groups(results.evidence.generative.table_1, found):
        table = drawn(probe_table(found[run]) for run in group)
        if table.empty:
            continue
        records = [record for run in group for record in found[run].records]
        upright = found[group[0]].run(group[0]).augmentation.rotation == 0
        beside = paper[paper["features"].isin(table["features"])] if upright else paper.head(0)
        label = dataset_label(records)
        papers = LABELS["mnist"]
        stand_in = "" if label == papers or not upright else f" (ours: {label}; the paper's: {papers})"
        theirs = "" if beside.empty else "; open markers: Table 1 of the paper, in both plots"
        yield Drawing(
            f"accuracy-{group[0]}",
            "svg",
            f"Probe accuracy over rotation, {' and '.join(group)}",
            f"Accuracy of a linear probe on each representation{symbols(table)} as test images are rotated further "
            "than the training images. Left: the probe is refit on equally warped images; right: it is fit on clean "
            f"images. Bars: one sd over seeds, where there are several{theirs}{stand_in}"
            f"{other_images(found, group)}.",
            "Two plots of accuracy by range of test rotation and for affine warps, one line each for "
            f"{names_of(table)}.",
            records,
            partial(accuracy_over_rotation, table, beside, chance_of(found[group[0]], group[0])),
        )


@in_house_style
def accuracy_over_rotation(table: pd.DataFrame, paper: pd.DataFrame, chance: float) -> Figure:
    """Probe accuracy by test set, with the paper's numbers. Left: probe refit on equally warped images; right: fixed.

    Args:
        table: columns features, protocol ("refit" or "fixed"), test ("rotated_<degrees>" or "affine"), mean, sd, n:
            percent over n seeds.
        paper: columns features, test, mean, sd: percent; Table 1 of document 000.
        chance: accuracy of a guess, in percent.
    """
    tests = in_order(pd.concat([table["test"], paper["test"]]))
    position = {test: float(i) for i, test in enumerate(tests) if test != "affine"}
    position["affine"] = len(position) + 0.25
    kinds = list(table["features"].unique())
    paper = paper.assign(n=documents()["generative"]["capsules"]["replicas"])
    figure, axes = panels(2, 2.75, sharey=True)
    for each, (protocol, title) in zip(axes, PROTOCOLS.items(), strict=True):
        for i, features in enumerate(kinds):
            style, shift = look(features), 0.16 * (i - (len(kinds) - 1) / 2)
            ours = table[(table["features"] == features) & (table["protocol"] == protocol)]
            _with_intervals(each, ours, position, shift, style, filled=True)
            _with_intervals(each, paper[paper["features"] == features], position, shift, style, filled=False)
        accuracy_axis(each, chance)
        each.set_title(title)
        each.set_xticks(list(position.values()), [name_of_test(test) for test in position])
        each.set_xlim(-0.4, position["affine"] + 0.45)
        each.set_xlabel("range of rotation of the test images, or affine warps")
        each.grid(False, axis="x")
    axes[0].set_ylabel(ACCURACY)
    handles = lines_of(kinds, ", ours")
    if not paper.empty:
        ring: Any = {"marker": "o", "markersize": RING, "markeredgewidth": 0.9, "markerfacecolor": "none"}
        handles.append(Line2D([], [], color=INK, linestyle="none", label="open: the paper, MNIST", **ring))
    handles.append(CHANCE)
    ncols = legend_columns(len(handles), 5)
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, columnspacing=1.2, handletextpad=0.5)
    return figure


def _with_intervals(
    axes: Axes, table: pd.DataFrame, position: dict[str, float], shift: float, style: Look, *, filled: bool
) -> None:
    """Plot means with their sds; rotations are joined by a line, the affine test is not.

    Open markers are larger than filled ones, so that both are visible when they overlap.
    """
    for turned in (True, False):
        chosen = table[(table["test"] != "affine") == turned]
        if chosen.empty:
            continue
        chosen = chosen.assign(x=chosen["test"].map(position)).sort_values("x")
        plot_accuracy(
            axes,
            chosen["x"] + shift,
            chosen,
            style,
            markersize=4 if filled else RING,
            markeredgewidth=0.9,
            markerfacecolor=style.colour if filled else "none",
            linestyle="-" if turned and filled else "none",
            zorder=3 if filled else 4,
        )


def build(results: Results) -> list[Table]:
    """Table 1: our numbers by both protocols and the paper's; one table per set of training images."""
    found, tables = evaluated(results), []
    paper = paper_table().rename(columns={"mean": "paper_percent", "sd": "paper_sd_percent"})
    for group in groups(results.evidence.generative.table_1, found):
        parts = []
        for run in group:
            part = probe_table(found[run]).rename(columns={"mean": "accuracy_percent", "sd": "sd_percent"})
            label, run_ids = dataset_label(found[run].records), tracked(found[run].records)
            parts.append(part.assign(run=run, dataset=label, tracking_run=run_ids))
        upright = found[group[0]].run(group[0]).augmentation.rotation == 0
        # The paper's numbers are shown with the protocol that they come from only.
        beside = (paper if upright else paper.head(0)).assign(protocol="refit")
        data = pd.concat(parts, ignore_index=True).merge(beside, on=["features", "protocol", "test"], how="left")
        records = [record for run in group for record in found[run].records]
        caption = (
            f"Accuracy (%) of a linear probe on {dataset_label(records)}, with test images rotated within the angle or "
            "warped affinely: mean ± sd over seeds. Probe refit: fit again on equally warped training images, the "
            "protocol that the paper's capsule rows agree with (MNIST, five seeds). Probe fixed: fit on clean images "
            f"only{other_images(found, group)}. All features are standardised, those of t0 as log odds: this "
            "enlarges traces that a sample of t0 does not show."
        )
        title = f"Probe accuracy over rotation: {' and '.join(group)}"
        tables.append(Table(f"table1-{group[0]}", title, caption, data, _shown(data), records))
    return tables


def _shown(data: pd.DataFrame) -> pd.DataFrame:
    """Features by features, first the paper's row, then ours."""
    ours = data.assign(source=data["protocol"].map(SOURCES))
    ours["seeds"] = ours.groupby(["features", "source"])["n"].transform("min").astype(str)
    ours["text"] = [spread(*row) for row in data[["accuracy_percent", "sd_percent", "n"]].itertuples(index=False)]
    theirs = data[data["paper_percent"].notna()].assign(source=PAPER, seeds="")
    theirs["text"] = [spread(*row) for row in theirs[["paper_percent", "paper_sd_percent"]].itertuples(index=False)]
    both = pd.concat([theirs, ours])
    both["features"] = pd.Categorical(both["features"], data["features"].unique())
    both["source"] = pd.Categorical(both["source"], [PAPER, *SOURCES.values()])
    both = both.sort_values(["features", "source"], kind="stable").astype({"features": str, "source": str})
    shown = wide(both, ["features", "source", "seeds"], "test")[in_order(data["test"])].rename(columns=name_of_test)
    shown = shown.reset_index()
    first = ~shown["features"].duplicated()
    return shown.assign(features=shown["features"].map(lambda features: look(features).name).where(first, ""))
