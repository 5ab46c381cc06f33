"""Accuracies of linear probes in document 000 (Table 1, Figure 4), and claims about its section 4 and appendix D. Each
model of Figure 4 is trained and tested on images with the same range of random rotations.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.features import name_of
from pipeline.drawing.style import BLUE, FAINT, GREEN, INK, ORANGE, VERMILLION, WIDTH, in_house_style, panels
from pipeline.drawing.table import Row, Table, measured_table
from pipeline.results.claims import load_claims
from pipeline.results.documents import LABELS, documents
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import NotMeasuredError, Numbers, Results
from pipeline.systems.generative.report import presences
from pipeline.systems.generative.report.shared import (
    answer,
    classes_of,
    complete_sweep,
    evaluated,
    evaluated_capsules,
    groups,
    name_of_test,
    rises,
    sweeps,
    swept_shortcomings,
)

WIDE = 90.0
"""In the comparison with the VAE, a range of rotation counts as wide if its angle (degrees) is at least this."""
LOOKS = {
    "t0": ("$t^0$", BLUE, "o"),
    "t0_A0": ("$t^0$ and $A^0$", VERMILLION, "s"),
    "posterior": ("SCAE: posterior", ORANGE, "P"),
    "mu_sigma": (r"VAE: $\mu$ and $\sigma$", GREEN, "^"),
}
"""Label, colour and marker of the features that figures show. Tables show all probed features."""
_FEATURES = {"t0": "t0", "t0A0": "t0_A0", "vae": "mu_sigma"}
_TESTS = {name: f"rotated_{name}" for name in ("0", "45", "90", "135", "180")} | {"aff": "affine"}
TABLE_1 = {
    f"000.t1.{row}.{column}": (features, test) for row, features in _FEATURES.items() for column, test in _TESTS.items()
}
"""The cells of Table 1: each has features and a test set. The key is the id of the claim about the cell."""
PAPER = f"the paper ({LABELS['mnist']})"
SOURCES = {"refit": "ours, probe refit", "fixed": "ours, probe fixed"}
PROTOCOLS = {"refit": "probe refit on equally warped images", "fixed": "probe fit on clean images only"}
FILLED: dict[str, Any] = {"markersize": 4, "markeredgewidth": 0.9, "linewidth": 1.2, "zorder": 3}
OPEN: dict[str, Any] = FILLED | {"markersize": 7.5, "markerfacecolor": "none", "linestyle": "none", "zorder": 4}
"""Open markers are larger than filled ones, so that both are visible when they overlap."""


def _probe(results: Results, features: str, test: str) -> Finding:
    """A cell of Table 1: accuracy (%) of a probe that is fit to training images warped like the test images."""
    variant, affine = "vae" if features == "mu_sigma" else "capsules", test == "affine"
    evidence = results.evidence.generative
    named = evidence.affine if affine else evidence.table_1
    run, numbers = results.answering("evaluate", named.get(variant))
    official = numbers.measured("probe", features, "refit", "affnist") if affine else None
    accuracy = official or numbers.needed("probe", features, "refit", test)
    dataset, document = numbers.dataset_of(run), f"affine_{variant}" if affine else variant
    answered = answer(results, numbers, run, accuracy.scaled(100), document, tested=dataset.test)
    said, notes = answered.remarks, answered.notes
    if affine and official is None and dataset.source == "mnist":
        # The test images are not affNIST's files. Our own warps are drawn from affNIST's published ranges.
        said.insert(0, Remark("not the paper's data (affNIST's ranges, drawn anew)", "data"))
    if features == "t0":
        notes += presences.notes(numbers, run)
    if test == "rotated_0":
        return answered
    if variant == "vae":
        said.append(Remark("probe refit (the paper's VAE row falls like that of a fixed probe)"))
    notes.insert(0, "probe refit on equally warped training images")
    if fixed := numbers.measured("probe", features, "fixed", test if official is None else "affnist"):
        answered.others["probe fit on clean images"] = fixed.scaled(100)
    return answered


def parameters(results: Results) -> Finding:
    """The number of parameters in the capsule model's generative part. The claim holds if it is below 30,000."""
    run, numbers = results.answering("train", results.evidence.generative.table_1.get("capsules"))
    count = float(numbers.at("parameters", "generative"))
    return answer(results, numbers, run, Measured(count, 0.0, 1), holds=count < 30_000)


def children_classify(results: Results) -> Finding:
    """Appendix D: accuracy (%) on clean images. The probe's features are each object's expected number of children.

    The claim holds if the probe on t0 is above chance, and the probe on children is at least half as far above chance.
    """
    run, numbers = evaluated_capsules(results)
    children, t0 = (numbers.needed("probe", of, "refit", "rotated_0").scaled(100) for of in ("children", "t0"))
    chance, tested = 100 / classes_of(numbers, run), numbers.dataset_of(run).test
    holds, notes = children.mean - chance >= (t0.mean - chance) / 2 > 0, [f"probe on t0: {t0.mean:.1f} %"]
    return answer(results, numbers, run, children, tested=tested, holds=holds, notes=notes)


def falls(accuracies: Sequence[Measured]) -> bool:
    """Whether the first value is clearly above the last, and none exceeds the previous by more than the larger sd."""
    return rises(accuracies[::-1]) and accuracies[0].clearly_above(accuracies[-1])


def _wide_training_hurts(results: Results, variant: str, features: str) -> Finding:
    """Accuracy (%) of a probe on the narrowest range of rotations, in training and test, minus that on the widest."""
    sweep, by_angle = complete_sweep(results, variant, "probe", features)
    if len(by_angle) < 2:
        raise NotMeasuredError("the sweep has a single range of rotation")
    accuracies = [each.scaled(100) for each in by_angle.values()]
    return Finding(
        accuracies[0].minus(accuracies[-1]),
        sweep.records,
        holds=falls(accuracies),
        remarks=swept_shortcomings(sweep.items.values(), seeds=min(each.n for each in accuracies)),
    )


def no_reliable_lead(results: Results) -> Finding:
    """The largest lead (points) over the VAE's probe. At each wide range of rotation (see `WIDE`), the VAE's probe is
    compared with the capsules' probe on t0 and, if SCAE was swept, with SCAE's probe on its posterior. If no range is
    wide, the widest is used. The claim holds if, in each comparison, the VAE leads or the intervals mean ± sd overlap.
    """
    probed = {"capsules": "t0", "scae": "posterior", "vae": "mu_sigma"}
    if results.evidence.generative.sweep.get("scae") not in sweeps(results):
        del probed["scae"]
    found = {role: complete_sweep(results, role, "probe", features) for role, features in probed.items()}
    _, vae = found["vae"]
    trained = [angle for angle in vae if angle > 0]
    wide = [angle for angle in trained if angle >= WIDE] or trained[-1:]
    if not wide:
        raise NotMeasuredError("the sweep has no range of rotation above 0 degrees")
    challengers = [by_angle for role, (_, by_angle) in found.items() if role != "vae"]
    pairs = [(by_angle[angle].scaled(100), vae[angle].scaled(100)) for by_angle in challengers for angle in wide]
    swept = [sweep for sweep, _ in found.values()]
    seeds = min(accuracy.n for pair in pairs for accuracy in pair)
    said = swept_shortcomings((item for sweep in swept for item in sweep.items.values()), seeds=seeds)
    return Finding(
        max((ours.minus(theirs) for ours, theirs in pairs), key=lambda lead: lead.mean),
        [record for sweep in swept for record in sweep.records],
        holds=all(ours.mean - ours.sd <= theirs.mean + theirs.sd for ours, theirs in pairs),
        remarks=said + ([] if "scae" in found else [Remark("without SCAE")]),
    )


MEASURES: dict[str, Measure] = {
    **{claim: partial(_probe, features=features, test=test) for claim, (features, test) in TABLE_1.items()},
    "000.params": parameters,
    "000.appD": children_classify,
    "000.fig4.caps": partial(_wide_training_hurts, variant="capsules", features="t0"),
    "000.fig4.scae": partial(_wide_training_hurts, variant="scae", features="posterior"),
    "000.fig4.vae": no_reliable_lead,
}


def paper_accuracies(numbers: Numbers, run: str) -> dict[str, dict[str, Measured]]:
    """The accuracies (percent) of Table 1, by features and test set. No accuracies are returned if `run` was trained on
    rotated images, because the paper's training images were upright.
    """
    found: dict[str, dict[str, Measured]] = {}
    if numbers.run(run).augmentation.rotation == 0:
        seeds = documents()["generative"]["capsules"]["replicas"]
        for claim in load_claims():
            if claim.id in TABLE_1 and claim.value is not None:
                features, test = TABLE_1[claim.id]
                found.setdefault(features, {})[test] = Measured(claim.value, claim.sd or 0.0, seeds)
    return found


def accuracies(numbers: Numbers, features: str, protocol: str) -> dict[str, Measured]:
    """Accuracies (percent) of probes on `features`, by test set. `protocol` is a key of `PROTOCOLS`."""
    place = ("probe", features, protocol)
    return {test: found.scaled(100) for test in numbers.names(*place) if (found := numbers.measured(*place, test))}


def in_order(tests: Iterable[str]) -> list[str]:
    """Sort test sets and remove repetitions. Rotations come first, by angle, then other test sets by name."""
    return sorted(set(tests), key=lambda test: (float(test[8:]) if test.startswith("rotated_") else math.inf, test))


Accuracies = Mapping[str, Mapping[str, Measured]]
"""Accuracies (percent) by features, then by test set ("rotated_<degrees>", "affine" or "affnist")."""


def draw(results: Results) -> Iterator[Drawing]:
    """Yield figures of accuracy against rotation, one per group of runs. For evaluated runs, test images are rotated,
    and the paper's accuracies may be shown, too. For runs with a sweep over more than one range, both training and test
    images are rotated.
    """
    evidence, found = results.evidence.generative, evaluated(results)
    swept = {run: sweep for run, sweep in sweeps(results).items() if len(sweep.items) > 1}
    for group in groups(evidence.table_1, found):
        drawn = {name: found[run] for run in group for name in found[run].names("probe") if name in LOOKS}
        paper = {name: tests for name, tests in paper_accuracies(found[group[0]], group[0]).items() if name in drawn}
        yield _drawing(
            "accuracy",
            "Probe accuracy against rotation",
            group,
            [found[run] for run in group],
            "Test images are rotated or warped affinely. Left: the probe is refitted to training images warped like "
            f"them. Right: it is fitted to clean images only. Open markers, if any: Table 1, {LABELS['mnist']}.",
            "range of rotation of the test images, or affine warps",
            {
                title: {name: accuracies(numbers, name, protocol) for name, numbers in drawn.items()}
                for protocol, title in PROTOCOLS.items()
            },
            paper,
        )
    for group in groups(evidence.sweep, swept):
        curves = {
            name: {f"rotated_{angle:g}": accuracy.scaled(100) for angle, accuracy in curve.items()}
            for run in group
            for name in LOOKS
            if (curve := swept[run].measured("probe", name))
        }
        yield _drawing(
            "sweep",
            "Probe accuracy after training and testing on rotations",
            group,
            [numbers for run in group for numbers in swept[run].items.values()],
            "Models are trained and tested on images rotated within the same angle. In the paper's Figure 4, the "
            "capsules' accuracy falls as the angle grows, and neither capsules nor SCAE stay ahead of the VAE.",
            "range of rotation in training and test",
            {"": curves},
            {},
        )


def _drawing(
    name: str,
    title: str,
    group: Sequence[str],
    found: Sequence[Numbers],
    words: str,
    x: str,
    plots: Mapping[str, Accuracies],
    paper: Accuracies,
) -> Drawing:
    records = [record for numbers in found for record in numbers.records]
    kinds = ", ".join(name_of(features) for features in next(iter(plots.values())))
    return Drawing(
        f"{name}-{group[0]}",
        "svg",
        f"{title}: {', '.join(group)}",
        f"Accuracy of a linear probe on {dataset_label(records)}. t0: presences of the capsules' objects; A0: poses of "
        f"the objects. {words} Error bars: one sd over seeds, if there are several.",
        f"Accuracy against the {x}, with a line for each of these features: {kinds}.",
        records,
        partial(accuracy_over_rotation, plots, paper, 100 / classes_of(found[0], group[0]), x),
    )


@in_house_style
def accuracy_over_rotation(plots: Mapping[str, Accuracies], paper: Accuracies, chance: float, x: str) -> Figure:
    """Probe accuracy by test set, in plots side by side. Each plot also shows the paper's accuracies, if there are any.

    Args:
        plots: our accuracies, by title of the plot.
        paper: accuracies of Table 1 of document 000.
        chance: accuracy of a guess, in percent.
        x: label of the horizontal axis.
    """
    kinds = list(next(iter(plots.values())))
    shown = in_order(test for by_features in (*plots.values(), paper) for each in by_features.values() for test in each)
    # A gap precedes each test set that is not a rotation, so that no line joins it to the rotations.
    tests = [each for test in shown for each in ([test] if test.startswith("rotated_") else ["", test])]
    figure, axes = panels(len(plots), 2.75, width=WIDTH * (1 + len(plots)) / 3, sharey=True)
    for each, (title, ours) in zip(axes, plots.items(), strict=True):
        for i, features in enumerate(kinds):
            places = np.arange(len(tests)) + 0.16 * (i - (len(kinds) - 1) / 2)
            label, colour, marker = LOOKS[features]
            style: dict[str, Any] = {"color": colour, "marker": marker}
            own = FILLED | {"label": label}
            for found, looks in ((ours[features], own), (paper.get(features, {}), OPEN)):
                at = [found.get(test, Measured(math.nan, math.nan, 0)) for test in tests]
                bars = [accuracy.sd if accuracy.n > 1 else math.nan for accuracy in at]
                each.errorbar(places, [accuracy.mean for accuracy in at], yerr=bars, elinewidth=0.8, **style | looks)
        each.axhline(chance, color=FAINT, linewidth=0.8, linestyle=":", label="chance")
        each.grid(False, axis="x")
        each.set_xticks(np.flatnonzero(tests), [name_of_test(test) for test in tests if test])
        each.set(title=title, xlabel=x, ylim=(0, 102), yticks=range(0, 101, 20))
    axes[0].set_ylabel("accuracy (%)")
    if paper:
        axes[0].plot([], color=INK, marker="o", label="open: the paper, MNIST", **OPEN)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, columnspacing=1.2)
    return figure


def build(results: Results) -> list[Table]:
    """Tables like Table 1, one per group of runs. A row has a run, features, and a source (the paper or a protocol)."""
    found, tables = evaluated(results), []
    caption = (
        "Accuracy (%) of a linear probe on test images rotated within the column's angle, or warped affinely. Probe "
        "refit: it is fitted again to training images warped like the test images; the paper's capsule rows agree "
        "with this protocol. Probe fixed: it is fitted to clean images only. All features are standardised, t0 as "
        "log odds. Standardising enlarges small differences of log odds, which a sample that is 0 or 1 does not show."
    )
    for group in groups(results.evidence.generative.table_1, found):
        paper = paper_accuracies(found[group[0]], group[0])
        rows: list[Row] = []
        for run in group:
            for name in found[run].names("probe"):
                ours = {source: accuracies(found[run], name, protocol) for protocol, source in SOURCES.items()}
                sources = {PAPER: paper.get(name, {}), **ours}
                rows += [([run, name_of(name), source], row, found[run]) for source, row in sources.items() if row]
        heads = {test: (name_of_test(test), 1) for test in in_order(test for _, row, _ in rows for test in row)}
        rows = [(keys, dict.fromkeys(heads) | dict(row), numbers) for keys, row, numbers in rows]
        title = f"Probe accuracy against rotation: {', '.join(group)}"
        table = measured_table(f"table1-{group[0]}", title, caption, ["run", "features", "source"], heads, rows)
        table[0].data.loc[table[0].data["source"] == PAPER, ["dataset", "tracking_run"]] = [LABELS["mnist"], ""]
        tables += table
    return tables
