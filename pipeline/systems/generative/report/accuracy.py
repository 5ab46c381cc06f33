"""Table 1 of document 000: accuracies of probes over rotation; and two claims about the run behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import FAINT, INK, in_house_style, panels
from pipeline.drawing.table import Table, spread, tracked
from pipeline.results.claims import load_claims
from pipeline.results.documents import LABELS, documents
from pipeline.results.findings import NOT_THE_PAPERS_DATA, Finding, Measure, Remark
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report import presences
from pipeline.systems.generative.report.shared import (
    answer,
    classes_of,
    evaluated,
    evaluated_capsules,
    groups,
    name_of_test,
)

MAX_PARAMETERS = 30_000
FEATURES_DRAWN = ("t0", "t0_A0", "posterior", "mu_sigma")
"""The features in the figures; others that were probed are in the tables."""
_FEATURES = {"t0": "t0", "t0A0": "t0_A0", "vae": "mu_sigma"}
_TESTS = {name: f"rotated_{name}" for name in ("0", "45", "90", "135", "180")} | {"aff": "affine"}
TABLE_1 = {
    f"000.t1.{row}.{column}": (features, test) for row, features in _FEATURES.items() for column, test in _TESTS.items()
}
"""The claims about the cells of Table 1: features and test of each."""
PAPER = f"the paper ({LABELS['mnist']})"
SOURCES = {"refit": "ours, probe refit", "fixed": "ours, probe fixed"}
PROTOCOLS = {"refit": "probe refit on equally warped images", "fixed": "probe fit on clean images only"}
RING: dict[str, Any] = {"markersize": 7.5, "markeredgewidth": 0.9, "markerfacecolor": "none", "linestyle": "none"}
FILLED: dict[str, Any] = {"markersize": 4, "markeredgewidth": 0.9, "zorder": 3}
OPEN = RING | {"zorder": 4}
"""Open markers are larger than filled ones, so that both are visible when they overlap."""


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
        ours, n = accuracy.scaled(100), accuracy.n
        answered = answer(results, numbers, run, ours, document, replicas=n, tested=dataset.test)
        said, notes = answered.remarks, answered.notes
        if affine and official is None and dataset.source == "mnist":
            # The test images are warped here, within affNIST's published ranges; they are not affNIST's files.
            said.insert(0, Remark(f"{NOT_THE_PAPERS_DATA} (affNIST's ranges, drawn anew)", "data"))
        if variant == "vae" and test != "rotated_0":
            said.append(Remark("probe refit (the paper's VAE row falls like that of a fixed probe)"))
        if features == "t0":
            notes += presences.notes(numbers, run)
        if variant == "vae":
            model = numbers.run(run).model
            sizes = f"{model.latent} latent dimensions, {model.hidden} hidden units, {model.pixels} pixels"
            notes.append(f"{sizes} (the paper gives none of these)")
        if test != "rotated_0":
            notes.insert(0, "probe refit on equally warped training images")
        fixed = numbers.measured("probe", features, "fixed", test if official is None else "affnist")
        if fixed and test != "rotated_0":
            notes.append(f"probe fit on clean images: {100 * fixed.mean:.1f} %")
        return answered

    return measure


def parameters(results: Results) -> Finding | None:
    """Fewer than 30,000 parameters in the generative part of the capsule model."""
    run, numbers = results.answering("train", results.evidence.generative.table_1.get("capsules"))
    count = numbers.number("parameters", "generative")
    if count is None:
        return None
    return answer(results, numbers, run, Measured(count, 0.0, 1), holds=count < MAX_PARAMETERS)


def children_classify(results: Results) -> Finding:
    """Appendix D: the expected number of children classifies clean images too.

    "Too" means at least half as far above chance as the probe on t0 of the same run.
    """
    run, numbers = evaluated_capsules(results)
    children, t0 = (numbers.needed("probe", of, "refit", "rotated_0").scaled(100) for of in ("children", "t0"))
    chance = 100 / classes_of(numbers, run)
    holds, notes = children.mean - chance >= (t0.mean - chance) / 2 > 0, [f"probe on t0: {t0.mean:.1f} %"]
    tested = numbers.dataset_of(run).test
    return answer(results, numbers, run, children, replicas=children.n, tested=tested, holds=holds, notes=notes)


MEASURES: dict[str, Measure] = {
    **{claim: _probe(features, test) for claim, (features, test) in TABLE_1.items()},
    "000.params": parameters,
    "000.appD": children_classify,
}


def paper_table(numbers: Numbers, run: str) -> pd.DataFrame:
    """Table 1 as its claims give it: columns features, test, mean, sd (percent). Without rows beside a run that is
    trained on rotated images: the paper's were upright.
    """
    upright = numbers.run(run).augmentation.rotation == 0
    rows = [(*TABLE_1[claim.id], claim.value, claim.sd) for claim in load_claims() if upright and claim.id in TABLE_1]
    return pd.DataFrame(rows, columns=["features", "test", "mean", "sd"])


def probe_table(numbers: Numbers) -> pd.DataFrame:
    """The accuracies of one evaluated run: columns features, protocol, test, mean, sd, n (percent)."""
    rows = [
        (features, protocol, test, 100 * found.mean, 100 * found.sd, found.n)
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
    """Accuracy over rotation, beside the paper's."""
    found = evaluated(results)
    for group in groups(results.evidence.generative.table_1, found):
        table, first = drawn(probe_table(found[run]) for run in group), found[group[0]]
        records = [record for run in group for record in found[run].records]
        paper = paper_table(first, group[0])
        paper = paper[paper["features"].isin(table["features"])]
        theirs = "" if paper.empty else f"; open markers: Table 1 of the paper ({LABELS['mnist']}), in both plots"
        yield Drawing(
            f"accuracy-{group[0]}",
            "svg",
            f"Probe accuracy over rotation, {' and '.join(group)}",
            f"Accuracy of a linear probe on {dataset_label(records)} (of capsules, t0: presences of the objects; A0: "
            "their poses) as test images are rotated further than the training images. Left: the probe is refit on "
            "equally warped images; right: it is fit on clean images. Bars: one sd over seeds, where there are "
            f"several{theirs}.",
            "Two plots of accuracy by range of test rotation and for affine warps, one line each for "
            f"{', '.join(look(features).name for features in table['features'].unique())}.",
            records,
            partial(accuracy_over_rotation, table, paper, 100 / classes_of(first, group[0])),
        )


def drawn(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Tables of several runs as one, without the features that are not drawn."""
    table = pd.concat(parts, ignore_index=True)
    return table[table["features"].isin(FEATURES_DRAWN)]


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
            shift = 0.16 * (i - (len(kinds) - 1) / 2)
            for of, looks in ((table[table["protocol"] == protocol], FILLED), (paper, OPEN)):
                rows = of[of["features"] == features]
                rows = rows.assign(x=[position[test] + shift for test in rows["test"]]).sort_values("x")
                turned = rows["test"] != "affine"
                plot(each, features, rows[turned], **looks)
                plot(each, features, rows[~turned], **looks | {"linestyle": "none"})  # not joined to the rotations
        accuracy_axis(each, chance)
        each.set_title(title)
        each.set_xticks(list(position.values()), [name_of_test(test) for test in position])
        each.set_xlim(-0.4, position["affine"] + 0.45)
        each.set_xlabel("range of rotation of the test images, or affine warps")
    axes[0].set_ylabel("accuracy (%)")
    theirs = Line2D([], [], color=INK, marker="o", label="open: the paper, MNIST", **RING)
    legend(figure, kinds, ", ours", [] if paper.empty else [theirs], most=5, handletextpad=0.5)
    return figure


def plot(axes: Axes, features: str, rows: pd.DataFrame, **looks: Any) -> None:
    """Accuracies (columns x, mean, sd, n), with bars of one sd where there are several replicas."""
    style = {"color": look(features).colour, "marker": look(features).marker, "linewidth": 1.2, "elinewidth": 0.8}
    if not rows.empty:
        axes.errorbar(rows["x"], rows["mean"], yerr=rows["sd"].where(rows["n"] > 1), **{**style, **looks})


def accuracy_axis(axes: Axes, chance: float) -> None:
    axes.set_ylim(0, 102)
    axes.set_yticks(range(0, 101, 20))
    axes.axhline(chance, color=FAINT, linewidth=0.8, linestyle=":")
    axes.grid(False, axis="x")


def legend(figure: Figure, kinds: Sequence[str], ours: str, more: list[Line2D], most: int, **options: float) -> None:
    """A line for each kind of features, `more`, and chance, in rows of about the same length, at most `most`."""
    looks = [look(kind) for kind in kinds]
    lines = [Line2D([], [], color=each.colour, marker=each.marker, label=f"{each.label}{ours}") for each in looks]
    chance = Line2D([], [], color=FAINT, linestyle=":", linewidth=0.8, label="chance")
    handles = [*lines, *more, chance]
    ncols = math.ceil(len(handles) / math.ceil(len(handles) / most))
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, columnspacing=1.2, **options)


def build(results: Results) -> list[Table]:
    """Table 1: our numbers by both protocols and the paper's; one table per set of training images."""
    found, tables = evaluated(results), []
    for group in groups(results.evidence.generative.table_1, found):
        records = [record for run in group for record in found[run].records]
        parts = [
            probe_table(found[run]).assign(run=run, dataset=dataset_label(each), tracking_run=tracked(each))
            for run in group
            for each in [found[run].records]
        ]
        ours = pd.concat(parts, ignore_index=True).rename(columns={"mean": "accuracy_percent", "sd": "sd_percent"})
        # The paper's numbers are shown with the protocol that they come from only.
        paper = paper_table(found[group[0]], group[0]).assign(protocol="refit")
        paper = paper.rename(columns={"mean": "paper_percent", "sd": "paper_sd_percent"})
        data = ours.merge(paper, on=["features", "protocol", "test"], how="left")
        caption = (
            f"Accuracy (%) of a linear probe on {dataset_label(records)}, with test images rotated within the angle or "
            "warped affinely: mean ± sd over seeds. Probe refit: fit again on equally warped training images, the "
            "protocol that the paper's capsule rows agree with (MNIST, five seeds). Probe fixed: fit on clean images "
            "only. All features are standardised, those of t0 as log odds: this enlarges traces that a sample of t0 "
            "does not show."
        )
        title = f"Probe accuracy over rotation: {' and '.join(group)}"
        tables.append(Table(f"table1-{group[0]}", title, caption, data, _shown(data), records))
    return tables


def _shown(data: pd.DataFrame) -> pd.DataFrame:
    """Features by features, first the paper's row, then ours."""
    ours = with_text(data.assign(source=data["protocol"].map(SOURCES)), ["features", "source"])
    theirs = data[data["paper_percent"].notna()].assign(source=PAPER, seeds="")
    theirs["text"] = [spread(*row) for row in theirs[["paper_percent", "paper_sd_percent"]].itertuples(index=False)]
    both, order = pd.concat([theirs, ours]), [*data["features"].unique(), PAPER, *SOURCES.values()]
    both = both.sort_values(["features", "source"], kind="stable", key=lambda names: names.map(order.index))
    shown = wide(both, ["features", "source", "seeds"], "test")[in_order(data["test"])].rename(columns=name_of_test)
    shown = shown.reset_index()
    first = ~shown["features"].duplicated()
    return shown.assign(features=shown["features"].map(lambda features: look(features).name).where(first, ""))


def with_text(data: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Accuracies with their `text`, and the `seeds` that all rows of the same `keys` have at least."""
    rows = data[["accuracy_percent", "sd_percent", "n"]].itertuples(index=False)
    seeds = data.groupby(keys)["n"].transform("min").astype(str)
    return data.assign(seeds=seeds, text=[spread(*row) for row in rows])


def wide(data: pd.DataFrame, keys: list[str], column: str) -> pd.DataFrame:
    """The `text` of tidy data in a row for each of `keys`, with a column for each value of `column`."""
    return data.pivot_table(index=keys, columns=column, values="text", aggfunc="first", sort=False).fillna("")
