"""Figure 4 of document 000: models trained and tested on rotations within an angle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

import pandas as pd
from matplotlib.figure import Figure

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.features import look
from pipeline.drawing.style import in_house_style, panels
from pipeline.drawing.table import Table, spread, tracked
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Results
from pipeline.systems.generative.report import presences
from pipeline.systems.generative.report.shared import (
    ACCURACY,
    CHANCE,
    Sweep,
    accuracy_axis,
    chance_of,
    classes_of,
    complete_sweep,
    drawn,
    groups,
    legend_columns,
    lines_of,
    name_of_test,
    names_of,
    other_images,
    percent,
    plot_accuracy,
    sweeps,
    swept_shortcomings,
    symbols,
    wide,
)

WIDE = 90.0
"""Degrees: training ranges from here on count as wide in the comparison with the VAE."""


def falls(accuracies: Sequence[Measured]) -> bool:
    """Whether accuracy falls along the sequence.

    The last is clearly below the first, and no step rises by more than the larger of the sds of its two ends.
    """
    steps = pairwise(accuracies)
    no_rise = all(after.mean <= before.mean + max(before.sd, after.sd) for before, after in steps)
    return no_rise and accuracies[0].clearly_above(accuracies[-1])


def _wide_training_hurts(variant: str, features: str) -> Measure:
    """The accuracy of the probe on `features` falls as the range of training and testing grows."""

    def measure(results: Results) -> Finding | None:
        found = complete_sweep(results, results.evidence.generative.sweep.get(variant), "probe", features)
        if found is None or len(found[1]) < 2:
            return None
        sweep, by_angle = found
        items, accuracies = list(sweep.items.values()), [each.scaled(100) for each in by_angle.values()]
        seeds = min(accuracy.n for accuracy in accuracies)
        return Finding(
            accuracies[0].minus(accuracies[-1]),
            sweep.records,
            holds=falls(accuracies),
            remarks=swept_shortcomings(items, seeds=seeds),
            notes=_sampled(sweep, features),
        )

    return measure


def _sampled(sweep: Sweep, features: str) -> list[str]:
    """Notes: where samples say next to nothing, a warning; the accuracies of probes on samples, by angle."""
    sampled = {angle: of.scaled(100).mean for angle, of in sweep.measured("probe", f"{features}_sampled").items()}
    if not sampled:
        return []
    log_odds, classes = sweep.measured("probe", features), classes_of(sweep.first, sweep.run)
    why = [
        f"within ±{angle:g}°: {words}"
        for angle, of in sampled.items()
        if (words := presences.silence(classes, sampled=of, log_odds=100 * log_odds[angle].mean))
    ]
    by_angle = ", ".join(f"{of:.1f} % within ±{angle:g}°" for angle, of in sampled.items())
    return [*why[:1], f"probe on samples: {by_angle}"]


def no_reliable_lead(results: Results) -> Finding | None:
    """On every wide range the VAE is ahead of t0, or their intervals mean ± sd overlap; the same for SCAE if it was
    swept.
    """
    probed = {"capsules": "t0", "vae": "mu_sigma", "scae": "posterior"}
    runs = results.evidence.generative.sweep
    found = {
        role: sweep
        for role, features in probed.items()
        if (sweep := complete_sweep(results, runs.get(role), "probe", features))
    }
    if not {"capsules", "vae"} <= found.keys():
        return None
    vae, challengers = found["vae"], [sweep for role, sweep in found.items() if role != "vae"]
    trained = [angle for angle in vae[1] if angle > 0]
    wide_ranges = [angle for angle in trained if angle >= WIDE] or trained[-1:]
    if not wide_ranges:
        return None
    compared = [sweep for sweep, _ in (*challengers, vae)]
    pairs = [
        (by_angle[angle].scaled(100), vae[1][angle].scaled(100)) for _, by_angle in challengers for angle in wide_ranges
    ]
    seeds = min(accuracy.n for pair in pairs for accuracy in pair)
    said = swept_shortcomings([item for sweep in compared for item in sweep.items.values()], seeds=seeds)
    records = [record for sweep in compared for record in sweep.records]
    return Finding(
        max((ours.minus(theirs) for ours, theirs in pairs), key=lambda lead: lead.mean),
        records,
        holds=all(ours.mean - ours.sd <= theirs.mean + theirs.sd for ours, theirs in pairs),
        remarks=said + ([] if "scae" in found else ["without SCAE"]),
    )


MEASURES: dict[str, Measure] = {
    "000.fig4.caps": _wide_training_hurts("capsules", "t0"),
    "000.fig4.scae": _wide_training_hurts("scae", "posterior"),
    "000.fig4.vae": no_reliable_lead,
}


def sweep_table(sweep: Sweep) -> pd.DataFrame:
    """The sweep of one run: columns features, angle, mean, sd, n (percent), tracking_run."""
    rows = [
        (features, angle, *percent(found), tracked(numbers.records))
        for angle, numbers in sweep.items.items()
        for features in numbers.names("probe")
        if (found := numbers.measured("probe", features))
    ]
    return pd.DataFrame(rows, columns=["features", "angle", "mean", "sd", "n", "tracking_run"])


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Accuracy over the range of training."""
    found = sweeps(results)
    first = {run: sweep.first for run, sweep in found.items()}
    for group in groups(results.evidence.generative.sweep, found):
        table = drawn(sweep_table(found[run]) for run in group)
        if table.empty:
            continue
        yield Drawing(
            f"sweep-{group[0]}",
            "svg",
            f"Trained and tested on rotations, {' and '.join(group)}",
            f"Does training on wider rotations lower the capsules' accuracy{symbols(table)}, and do they stay ahead "
            "of the VAE? In the paper's Figure 4 accuracy falls, and neither the capsules nor SCAE stay ahead. Bars: "
            f"one sd over seeds, where there are several{other_images(first, group)}.",
            f"Accuracy over the range of rotation in training and testing, one line each for {names_of(table)}.",
            [record for run in group for record in found[run].records],
            partial(accuracy_over_training_range, table, chance_of(first[group[0]], group[0])),
        )


@in_house_style
def accuracy_over_training_range(table: pd.DataFrame, chance: float) -> Figure:
    """Probe accuracy after training and testing on rotations up to an angle, as in the paper's Figure 4.

    Args:
        table: columns features, angle (degrees), mean, sd, n: percent over n seeds.
        chance: accuracy of a guess, in percent.
    """
    angles = sorted(table["angle"].unique())
    figure, (axes,) = panels(1, 2.5, width=4.4)
    kinds = list(table["features"].unique())
    for i, features in enumerate(kinds):
        chosen = table[table["features"] == features].sort_values("angle")
        plot_accuracy(axes, chosen["angle"] + 2.0 * (i - (len(kinds) - 1) / 2), chosen, look(features))
    accuracy_axis(axes, chance)
    axes.set_xticks(angles, [name_of_test(f"rotated_{angle:g}") for angle in angles])
    axes.set(xlabel="trained and tested on images rotated within", ylabel=ACCURACY)
    axes.grid(False, axis="x")
    handles = [*lines_of(kinds), CHANCE]
    ncols = legend_columns(len(handles), 4)
    figure.legend(handles=handles, loc="outside upper center", ncols=ncols, columnspacing=1.2)
    return figure


def build(results: Results) -> list[Table]:
    """Figure 4 in numbers: accuracy after training and testing on rotations up to an angle."""
    found = sweeps(results)
    if not found:
        return []
    records = [record for sweep in found.values() for record in sweep.records]
    data = pd.concat(
        [sweep_table(sweep).assign(run=run, dataset=dataset_label(sweep.records)) for run, sweep in found.items()],
        ignore_index=True,
    ).rename(columns={"mean": "accuracy_percent", "sd": "sd_percent"})
    texts = data.assign(
        features=data["features"].map(lambda features: look(features).name),
        seeds=data.groupby(["run", "features"])["n"].transform("min").astype(str),
        text=[spread(*row) for row in data[["accuracy_percent", "sd_percent", "n"]].itertuples(index=False)],
    )
    shown = wide(texts, ["run", "features", "seeds"], "angle").sort_index(axis=1)
    shown = shown.rename(columns=lambda angle: name_of_test(f"rotated_{angle:g}")).reset_index()
    caption = (
        f"Accuracy (%) of a linear probe on {dataset_label(records)} when the model is both trained and tested on "
        "images rotated within the angle: mean ± sd over seeds. The paper's Figure 4 shows curves without numbers."
    )
    return [Table("sweep", "Trained and tested on rotations", caption, data, shown, records)]
