"""Accuracies of probes: Table 1 of document 000, two claims about the run behind it, and Figure 4, models that are
trained and tested on rotations within an angle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import FAINT, INK, in_house_style, panels
from pipeline.drawing.table import Row, Table, cells, measured_table
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
    complete_sweep,
    evaluated,
    evaluated_capsules,
    groups,
    name_of_test,
    rises,
    sweeps,
    swept_shortcomings,
)

MAX_PARAMETERS = 30_000
WIDE = 90.0
"""Degrees: training ranges from here on count as wide in the comparison with the VAE."""
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


def falls(accuracies: Sequence[Measured]) -> bool:
    """Whether the last is clearly below the first, and no step rises by more than the larger sd of its two ends."""
    return rises(accuracies[::-1]) and accuracies[0].clearly_above(accuracies[-1])


def _wide_training_hurts(variant: str, features: str) -> Measure:
    """The accuracy of the probe on `features` falls as the range of training and testing grows."""

    def measure(results: Results) -> Finding | None:
        sweep, by_angle = complete_sweep(results, variant, "probe", features)
        if len(by_angle) < 2:
            return None
        accuracies = [each.scaled(100) for each in by_angle.values()]
        sampled = sweep.measured("probe", f"{features}_sampled")
        told = ", ".join(f"{100 * of.mean:.1f} % within ±{angle:g}°" for angle, of in sampled.items())
        return Finding(
            accuracies[0].minus(accuracies[-1]),
            sweep.records,
            holds=falls(accuracies),
            remarks=swept_shortcomings(sweep.items.values(), seeds=min(each.n for each in accuracies)),
            notes=[f"probe on samples: {told}"] if told else [],
        )

    return measure


def no_reliable_lead(results: Results) -> Finding | None:
    """On every wide range the VAE is ahead of t0, or their intervals mean ± sd overlap; the same for SCAE if it was
    swept.
    """
    probed = {"capsules": "t0", "scae": "posterior", "vae": "mu_sigma"}
    if results.evidence.generative.sweep.get("scae") not in sweeps(results):
        del probed["scae"]
    found = {role: complete_sweep(results, role, "probe", features) for role, features in probed.items()}
    _, vae = found["vae"]
    trained = [angle for angle in vae if angle > 0]
    wide = [angle for angle in trained if angle >= WIDE] or trained[-1:]
    if not wide:
        return None
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
    **{claim: _probe(features, test) for claim, (features, test) in TABLE_1.items()},
    "000.params": parameters,
    "000.appD": children_classify,
    "000.fig4.caps": _wide_training_hurts("capsules", "t0"),
    "000.fig4.scae": _wide_training_hurts("scae", "posterior"),
    "000.fig4.vae": no_reliable_lead,
}


def paper_accuracies(numbers: Numbers, run: str) -> dict[str, dict[str, Measured]]:
    """Table 1 as its claims give it, percent by features and test; empty beside a run that is trained on rotated
    images: the paper's were upright.
    """
    found: dict[str, dict[str, Measured]] = {}
    if numbers.run(run).augmentation.rotation == 0:
        seeds = documents()["generative"]["capsules"]["replicas"]
        for claim in load_claims():
            if claim.id in TABLE_1 and claim.value is not None:
                features, test = TABLE_1[claim.id]
                found.setdefault(features, {})[test] = Measured(claim.value, claim.sd or 0.0, seeds)
    return found


def accuracies(numbers: Numbers, *place: str) -> dict[str, Measured]:
    """The accuracies of probes (percent) by the names under `place`, such as those of tests."""
    names = numbers.names("probe", *place)
    return {name: found.scaled(100) for name in names if (found := numbers.measured("probe", *place, name))}


def in_order(tests: Iterable[str]) -> list[str]:
    """Test sets without repetitions: rotations by angle, then the others."""
    return sorted(set(tests), key=lambda test: float(test[8:]) if test.startswith("rotated_") else math.inf)


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Accuracy over rotation, and over the range of training."""
    yield from _over_rotation(results)
    yield from _over_training(results)


def _over_rotation(results: Results) -> Iterator[Drawing]:
    """Accuracy over rotation, beside the paper's, a figure for each group of runs."""
    found = evaluated(results)
    for group in groups(results.evidence.generative.table_1, found):
        first, records = found[group[0]], [record for run in group for record in found[run].records]
        kinds = {
            name: {protocol: accuracies(found[run], name, protocol) for protocol in PROTOCOLS}
            for run in group
            for name in found[run].names("probe")
            if name in FEATURES_DRAWN
        }
        paper = {name: tests for name, tests in paper_accuracies(first, group[0]).items() if name in kinds}
        theirs = f"; open markers: Table 1 of the paper ({LABELS['mnist']}), in both plots" if paper else ""
        yield Drawing(
            f"accuracy-{group[0]}",
            "svg",
            f"Probe accuracy over rotation, {' and '.join(group)}",
            f"Accuracy of a linear probe on {dataset_label(records)} (of capsules, t0: presences of the objects; A0: "
            "their poses) as test images are rotated further than the training images. Left: the probe is refit on "
            "equally warped images; right: it is fit on clean images. Bars: one sd over seeds, where there are "
            f"several{theirs}.",
            "Two plots of accuracy by range of test rotation and for affine warps, one line each for "
            f"{', '.join(look(name).name for name in kinds)}.",
            records,
            partial(accuracy_over_rotation, kinds, paper, 100 / classes_of(first, group[0])),
        )


@in_house_style
def accuracy_over_rotation(
    kinds: Mapping[str, Mapping[str, Mapping[str, Measured]]],
    paper: Mapping[str, Mapping[str, Measured]],
    chance: float,
) -> Figure:
    """Probe accuracy by test set, with the paper's numbers. Left: probe refit on equally warped images; right: fixed.

    Args:
        kinds: percent by features, protocol ("refit" or "fixed") and test ("rotated_<degrees>" or "affine").
        paper: percent by features and test; Table 1 of document 000.
        chance: accuracy of a guess, in percent.
    """
    tests = in_order(test for each in (*(by[p] for by in kinds.values() for p in by), *paper.values()) for test in each)
    position = {test: float(i) for i, test in enumerate(tests) if test != "affine"}
    position["affine"] = len(position) + 0.25
    figure, axes = panels(2, 2.75, sharey=True)
    for each, (protocol, title) in zip(axes, PROTOCOLS.items(), strict=True):
        for i, (features, ours) in enumerate(kinds.items()):
            shift = 0.16 * (i - (len(kinds) - 1) / 2)
            for found, looks in ((ours[protocol], FILLED), (paper.get(features, {}), OPEN)):
                turned = {position[test] + shift: found[test] for test in tests if test in found and test != "affine"}
                plot(each, features, turned, **looks)
                if "affine" in found:  # not joined to the rotations
                    place = position["affine"] + shift
                    plot(each, features, {place: found["affine"]}, **looks | {"linestyle": "none"})
        accuracy_axis(each, chance)
        each.set_title(title)
        each.set_xticks(list(position.values()), [name_of_test(test) for test in position])
        each.set_xlim(-0.4, position["affine"] + 0.45)
        each.set_xlabel("range of rotation of the test images, or affine warps")
    axes[0].set_ylabel("accuracy (%)")
    theirs = Line2D([], [], color=INK, marker="o", label="open: the paper, MNIST", **RING)
    legend(figure, list(kinds), ", ours", [theirs] if paper else [], most=5, handletextpad=0.5)
    return figure


def plot(axes: Axes, features: str, found: Mapping[float, Measured], **looks: Any) -> None:
    """Accuracies by place on the x axis, with bars of one sd where there are several replicas."""
    style = {"color": look(features).colour, "marker": look(features).marker, "linewidth": 1.2, "elinewidth": 0.8}
    if found:
        bars = [each.sd if each.n > 1 else math.nan for each in found.values()]
        axes.errorbar(list(found), [each.mean for each in found.values()], yerr=bars, **{**style, **looks})


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


def _over_training(results: Results) -> Iterator[Drawing]:
    """Accuracy over the range of training, a figure for each group of runs."""
    swept = sweeps(results)
    for group in groups(results.evidence.generative.sweep, swept):
        first, records = swept[group[0]], [record for run in group for record in swept[run].records]
        curves = {
            name: curve for run in group for name in FEATURES_DRAWN if (curve := swept[run].measured("probe", name))
        }
        yield Drawing(
            f"sweep-{group[0]}",
            "svg",
            f"Trained and tested on rotations, {' and '.join(group)}",
            f"Accuracy of a linear probe on {dataset_label(records)} (of capsules, t0: presences of the objects; A0: "
            "their poses) after training and testing on rotations within an angle. In the paper's Figure 4 that of the "
            "capsules falls, and neither they nor SCAE stay ahead of the VAE. Bars: one sd over seeds, where there are "
            "several.",
            "Accuracy over the range of rotation in training and testing, one line each for "
            f"{', '.join(look(name).name for name in curves)}.",
            records,
            partial(accuracy_over_training_range, curves, 100 / classes_of(next(iter(first.items.values())), group[0])),
        )


@in_house_style
def accuracy_over_training_range(curves: Mapping[str, Mapping[float, Measured]], chance: float) -> Figure:
    """Probe accuracy after training and testing on rotations up to an angle, as in the paper's Figure 4.

    Args:
        curves: accuracies in [0, 1] by features and angle (degrees).
        chance: accuracy of a guess, in percent.
    """
    angles = sorted({angle for curve in curves.values() for angle in curve})
    figure, (axes,) = panels(1, 2.5, width=4.4)
    for i, (features, curve) in enumerate(curves.items()):
        shift = 2.0 * (i - (len(curves) - 1) / 2)
        plot(axes, features, {angle + shift: each.scaled(100) for angle, each in curve.items()})
    accuracy_axis(axes, chance)
    axes.set_xticks(angles, [name_of_test(f"rotated_{angle:g}") for angle in angles])
    axes.set(xlabel="trained and tested on images rotated within", ylabel="accuracy (%)")
    legend(figure, list(curves), "", [], most=4)
    return figure


def build(results: Results) -> list[Table]:
    """Table 1, our numbers by both protocols and the paper's, a table for each group of runs; Figure 4 in numbers."""
    found, tables = evaluated(results), []
    caption = (
        "Accuracy (%) of a linear probe, with test images rotated within the angle or warped affinely. Probe refit: "
        "fit again on equally warped training images, the protocol that the paper's capsule rows agree with. Probe "
        "fixed: fit on clean images only. All features are standardised, those of t0 as log odds: this enlarges traces "
        "that a sample of t0 does not show."
    )
    for group in groups(results.evidence.generative.table_1, found):
        paper = paper_accuracies(found[group[0]], group[0])
        rows: list[Row] = []
        for run in group:
            for name in found[run].names("probe"):
                ours = {source: accuracies(found[run], name, protocol) for protocol, source in SOURCES.items()}
                for source, row in {PAPER: paper.get(name, {}), **ours}.items():
                    rows += [([run, look(name).name, source], row, found[run])] if row else []
        heads = {test: (name_of_test(test), 1) for test in in_order(test for _, row, _ in rows for test in row)}
        rows = [(keys, {test: row.get(test) for test in heads}, numbers) for keys, row, numbers in rows]
        title = f"Probe accuracy over rotation: {' and '.join(group)}"
        table = measured_table(f"table1-{group[0]}", title, caption, ["run", "features", "source"], heads, rows)
        table[0].data.loc[table[0].data["source"] == PAPER, ["dataset", "tracking_run"]] = [LABELS["mnist"], ""]
        tables += table
    return tables + _sweep_table(results)


def _sweep_table(results: Results) -> list[Table]:
    """Figure 4 in numbers: accuracy after training and testing on rotations up to an angle."""
    items = [(sweep.run, angle, item) for sweep in sweeps(results).values() for angle, item in sweep.items.items()]
    names = dict.fromkeys(name for *_, item in items for name in item.names("probe"))
    heads = {name: (f"{look(name).name} (%)", 1) for name in names}
    rows: list[Row] = [([run, angle], cells(item, heads, "probe"), item) for run, angle, item in items]
    caption = (
        "Accuracy of a linear probe when the model is both trained and tested on images rotated within the angle "
        "(degrees). The paper's Figure 4 shows curves without numbers."
    )
    return measured_table("sweep", "Trained and tested on rotations", caption, ["run", "angle"], heads, rows)
