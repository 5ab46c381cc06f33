"""Figure 4 of document 000: models trained and tested on rotations within an angle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import in_house_style, panels
from pipeline.drawing.table import Row, Table, cells, measured_table
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.generative.report.accuracy import FEATURES_DRAWN, accuracy_axis, legend, plot
from pipeline.systems.generative.report.shared import (
    classes_of,
    complete_sweep,
    groups,
    name_of_test,
    rises,
    sweeps,
    swept_shortcomings,
)

WIDE = 90.0
"""Degrees: training ranges from here on count as wide in the comparison with the VAE."""


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
    "000.fig4.caps": _wide_training_hurts("capsules", "t0"),
    "000.fig4.scae": _wide_training_hurts("scae", "posterior"),
    "000.fig4.vae": no_reliable_lead,
}


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Accuracy over the range of training."""
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
