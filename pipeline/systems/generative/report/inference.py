"""Report on two kinds of inference in document 000: the full posterior over poses, and test-time optimisation."""

import math
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from pipeline.drawing import pictures
from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import BLUE, GREEN, VERMILLION, in_house_style, panels
from pipeline.drawing.table import Row, Table, as_text, cells, measured_table
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.reading import Numbers, Recorded, Results
from pipeline.systems.generative.report import presences
from pipeline.systems.generative.report.shared import answer, tested_on

LOOKS = ((BLUE, "o"), (GREEN, "^"), (VERMILLION, "s"))
"""Colours and markers of engines. An engine is an optimiser that is used at test time."""
PROBE_SDS = {"t0": 1.0, "t0_A0": 0.5}
"""Table 1's sds of probe accuracies on clean images, in points, by features. For t0_A0, the table has .00, which means
below .005, or half a point."""
_EXAMPLES = {
    "images": "input",
    "before": "encoder",
    "after": "optimised",
    "arrangements_before": "encoder's parts",
    "arrangements_after": "optimised parts",
}
"""Arrays with pictures of a digit, and their names in figures."""
_CURVES = ("replica", "engine", "angle", "round", "evaluations", "bound")


def _optimised(results: Results, item: str | None) -> tuple[Recorded, Numbers, dict[float, dict[str, Measured]]]:
    """Settings and numbers of a study, and what was measured for its engine `chosen`: {angle: {name: measurement}}."""
    name, numbers = results.answering("optimise", item)
    study = numbers.settings.optimise[name]
    chosen = numbers.part("engine", study.chosen)
    angles = sorted(numbers.names("engine", study.chosen), key=float)
    found = {float(angle): {each: chosen.needed(angle, each) for each in chosen.names(angle)} for angle in angles}
    return study, numbers, found


def optimisation_repairs(results: Results) -> Finding:
    """Figure 3: how much (nats) optimisation raises the bound, in the range of rotation where it rises least. The claim
    holds if, in all ranges, the bound rises and the pixel error falls by more than two standard errors over images.
    """
    study, numbers, angles = _optimised(results, results.evidence.generative.optimise)
    rises = {angle: each["bound_after"].minus(each["bound_before"]) for angle, each in angles.items()}
    falls = {angle: each["pixel_error_before"].minus(each["pixel_error_after"]) for angle, each in angles.items()}
    least = min(rises, key=lambda angle: rises[angle].mean)
    at, images = angles[least], f"on {numbers.at('images'):,} test images per range"
    holds = all(
        rises[angle].mean > SIGNIFICANT_SES * each["bound_rise_error"].mean
        and falls[angle].mean > SIGNIFICANT_SES * each["pixel_fall_error"].mean
        for angle, each in angles.items()
    )
    notes = [
        f"presences in bound and squared error are sampled anew, {images}; standard errors are over images",
        f"{_range(least)}: bound {rises[least].mean:+.1f} ± {at['bound_rise_error'].mean:.1f} nats, "
        f"squared error {-falls[least].mean:+.1f} ± {at['pixel_fall_error'].mean:.1f}; "
        f"the bound falls in {100 * at['bound_fell'].mean:.0f} % of the images",
    ]
    # The paper shows one digit, without numbers of seeds and test images. So these numbers are not compared.
    return answer(results, numbers, study.run, rises[least], holds=holds, notes=notes)


def optimisation_gain(results: Results) -> Finding:
    """How many points of accuracy the probe on t0 gains from optimisation, in the narrowest measured range of rotation.

    As in Table 1, the probe is refit. It is fit once to the encoder's posteriors and once to the optimised posteriors.
    The standard error of the gain combines two kinds of noise, over seeds and over images. More seeds do not reduce the
    noise over images, because all seeds use the same images.
    """
    evidence = results.evidence.generative
    study, numbers, angles = _optimised(results, evidence.optimise_upright or evidence.optimise)
    angle, values = next(iter(angles.items()))
    gain, over_images = values["refit_gain"].scaled(100), 100 * values["refit_gain_error"].mean
    images = numbers.at("images")
    gain = Measured(gain.mean, math.hypot(gain.se, over_images), gain.n, standard_error=True)
    notes = [
        f"refit probe: {_accuracies(values, 'refit_accuracy')}",
        f"fixed probe: {_accuracies(values, 'accuracy')}",
        f"standard error of the gain of the refit probe on the same {images:,} images: {over_images:.1f} points",
    ]
    if "bound_kicked" in values:
        better = values["bound_kicked"].minus(values["bound_after"]).mean
        notes.append(
            f"perturbed: as optimised, but restarts perturb the log odds of presences, too (sd {study.kick_logit:g}), "
            f"and objects are not optimised alone at the end; bound minus bound of optimised: {better:+.1f} nats"
        )
    run, evaluated = study.run, results.numbers("evaluate", study.run)
    if evaluated and evaluated.run(run) == numbers.run(run) and evaluated.dataset_of(run) == numbers.dataset_of(run):
        notes += presences.notes(evaluated, run)
    answered = answer(results, numbers, run, gain, tested=images, notes=notes)
    if angle != 0:
        answered.remarks.append(Remark(f"rotated {_range(angle)} (paper: upright)"))
    answered.remarks.append(Remark(f"probe fit and validated on {study.refit_images:,} images, {study.chosen}"))
    return answered


def _range(angle: float) -> str:
    """A range of rotation in words, such as "within ±45°"."""
    return f"within ±{angle:g}°" if angle else "upright"


def _accuracies(values: dict[str, Measured], key: str) -> str:
    """A text with a probe's accuracy (percent) on each kind of posterior that was measured, such as the encoder's."""
    names = {"before": "encoder", "once": "without restarts", "after": "optimised", "kicked": "perturbed"}
    found = {name: values[f"{key}_{when}"] for when, name in names.items() if f"{key}_{when}" in values}
    return ", ".join(f"{name} {accuracy.mean * 100:.1f} %" for name, accuracy in found.items())


def _posterior(results: Results) -> tuple[Numbers, Recorded]:
    """Numbers and settings of the study of a full posterior. The paper gives no numbers of seeds and images for it."""
    name, numbers = results.answering("posterior", results.evidence.generative.posterior)
    return numbers, numbers.settings.posterior[name]


def full_posterior_bound(results: Results) -> Finding:
    """Section 2.3: the lead, which is the bound (nats) of the guide `refined` minus the bound of the guide `scratch`.

    A guide is an encoder's posterior (see `experiments/posteriors.py`). `refined` is first trained with delta poses
    (points), `scratch` has Gaussian poses from the first step. The document's density of poses is not normalised. Our
    number uses a normalised density, because bounds of different models are not comparable otherwise. The claim holds
    if the lead exceeds two standard errors with both densities. If not, it fails if a lead is below zero by more than
    two standard errors, else it is undecided. With one seed, the noise is unknown, so any positive leads are enough.
    """
    numbers, study = _posterior(results)
    bounds = ("elbo_normalised", "elbo")
    pairs = [[numbers.needed("guide", guide, bound) for guide in ("refined", "scratch")] for bound in bounds]
    lead, printed = (refined.minus(scratch) for refined, scratch in pairs)
    notes = [
        f"bounds {tested_on(numbers, study.run, study.images)}",
        f"with the document's unnormalised density, the lead is {as_text(printed)} nats",
    ]
    holds = all(refined.clearly_above(scratch) for refined, scratch in pairs)
    noisy = not holds and not any(scratch.clearly_above(refined) for refined, scratch in pairs)
    undecided = "the lead is at most two standard errors" if noisy else ""
    finding = answer(results, numbers, study.run, lead, holds=holds, undecided=undecided, notes=notes)
    if lead.n == 1:
        finding.remarks.append(Remark("1 seed: the noise of the lead is unknown", "noise"))
    return finding


def full_posterior_probes(results: Results) -> Finding:
    """Section 2.3: how many points probe accuracies change if the encoder is trained further with Gaussian poses.

    There are two probes on clean images, one on t0, one on t0 and A0. Each change is compared with the paper's sd over
    seeds (`PROBE_SDS`). The claim holds if neither change exceeds two sds. It fails if a change exceeds two sds by more
    than two of its standard errors. In between, it is undecided. Our number is the change that is larger in sds.
    """
    numbers, study = _posterior(results)
    moves, notes = [], []
    for features, sd in PROBE_SDS.items():
        before, after = (numbers.needed("guide", guide, features).scaled(100) for guide in ("delta", "refined"))
        moves.append((abs(after.mean - before.mean) / sd, sd, after.minus(before)))
        control = numbers.needed("guide", "control", features).scaled(100).minus(before)
        notes.append(f"{features}: {moves[-1][2].mean:+.1f} points, {control.mean:+.1f} if trained further with deltas")
    in_sds, _, move = max(moves, key=lambda each: each[0])
    clear = [sds for sds, sd, each in moves if abs(each.mean) - SIGNIFICANT_SES * each.se > 2 * sd]
    undecided = "no change is clearly above two sds" if in_sds > 2 and not clear else ""
    return answer(results, numbers, study.run, move, holds=in_sds <= 2, undecided=undecided, notes=notes)


MEASURES: dict[str, Measure] = {
    "000.fig3": optimisation_repairs,
    "000.freeform.acc": optimisation_gain,
    "000.full.elbo": full_posterior_bound,
    "000.full.acc": full_posterior_probes,
}


def draw(results: Results) -> Iterator[Drawing]:
    """Yield up to two figures per study: a digit before and after optimisation, and the bound during optimisation."""
    for study, numbers in results.executed("optimise"):
        if arrays := results.examples("optimise", study, ("angles", *_EXAMPLES)):
            rows = [(words, arrays[name]) for name, words in _EXAMPLES.items()]
            yield Drawing(
                f"reconstructions-{study}",
                "png",
                f"Reconstructions before and after test-time optimisation, {study}",
                "If the encoder reconstructs a rotated digit badly, optimising its posterior should give a better "
                f"picture (as in the paper's Figure 3). Engine (optimiser): {numbers.settings.optimise[study].chosen}.",
                "A digit rotated step by step. Below, its reconstructions by the encoder and after optimisation, "
                "then the parts of both reconstructions in colour.",
                numbers.records,
                partial(pictures.over_rotation, arrays["angles"], rows),
            )
        if (steps := results.table("optimise", study, _CURVES)) is not None:
            yield Drawing(
                f"optimisation-{study}",
                "svg",
                f"The bound during test-time optimisation, {study}",
                "The bound that each engine (optimiser) reaches after a number of gradient evaluations, for the "
                "narrowest and the widest range of rotation. The vertical axis does not begin at 0.",
                "The bound against gradient evaluations, with a line for each engine and range of rotation.",
                numbers.records,
                partial(optimisation_curves, steps),
            )


@in_house_style
def optimisation_curves(table: pd.DataFrame) -> Figure:
    """The bound against gradient evaluations, for the narrowest and the widest range of rotation, with a colour and
    marker per engine. Points are means over replicas. After a replica's last round, its last values are used. `table`
    has a row for each replica, engine, angle (degrees) and measured round, with means over images.
    """
    figure, (axes,) = panels(1, 2.6)
    dashes: dict[float, Any] = {table["angle"].max(): (0, (4, 1.5)), table["angle"].min(): "-"}
    table = table[table["angle"].isin(dashes) & (table["round"] > 0)]
    for (engine, rows), (colour, marker) in zip(table.groupby("engine", sort=False), cycle(LOOKS), strict=False):
        for angle, dash in dashes.items():
            steps = rows[rows["angle"] == angle].pivot_table(["evaluations", "bound"], "round", "replica").ffill()
            name = f"{engine}, {_range(angle)}"
            means = [steps[column].to_numpy().mean(axis=1) for column in ("evaluations", "bound")]
            axes.plot(*means, color=colour, linestyle=dash, marker=marker, markersize=3, linewidth=1.2, label=name)
    axes.set(xscale="log", xlabel="gradient evaluations per image", ylabel="bound (nats per image)")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    # The axis goes from a little below the lowest mean bound to a little above the highest bound.
    low, high = table.groupby(["engine", "angle", "round"])["bound"].mean().min(), table["bound"].max()
    axes.set_ylim(low - 0.02 * (high - low), high + 0.05 * (high - low))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, columnspacing=1.2)
    return figure


def build(results: Results) -> list[Table]:
    """Up to two tables: the cost and gains of test-time optimisation, and the bounds and probe accuracies of guides."""
    return [*optimisation(results), *posterior(results)]


def optimisation(results: Results) -> list[Table]:
    """A list with one table: a row for each study, engine and range of rotation. Without studies, the list is empty."""
    heads = {"evaluations": ("evaluations", 0), "seconds": ("seconds", 1)}
    measures = {
        "bound": "bound (nats)",
        "pixel_error": "pixel error",
        "accuracy_percent": "t0 probe fixed (%)",
        "refit_accuracy_percent": "t0 probe refit (%)",
    }
    for name, words in measures.items():
        heads |= {f"{name}_{when}": (f"{words}, {when}", 1) for when in ("before", "after")}
    rows: list[Row] = []
    for study, numbers in results.executed("optimise"):
        images = numbers.at("images")
        for engine in numbers.names("engine"):
            for angle in sorted(numbers.names("engine", engine), key=float):
                found = cells(numbers, heads, "engine", engine, angle)
                rows.append(([study, engine, float(angle), images], found, numbers))
    caption = (
        "Optimisation of each image's posterior, on images rotated within ±angle degrees. Before: encoder's output. "
        "Evaluations: of the gradient, per image, without those for objects alone (about a tenth more). "
        "Seconds: for all images. Bound: per image. Pixel error: squared, summed over an image. The fixed probe on t0 "
        "is fitted to the encoder's output for clean images. The refit probe is fitted to training images that are "
        "rotated like the test images: to the encoder's output (before), or to optimised posteriors (after)."
    )
    keys = ["study", "engine", "angle", "images"]
    return measured_table("optimise", "Test-time optimisation", caption, keys, heads, rows)


def posterior(results: Results) -> list[Table]:
    """A list with one table: a row for each study and guide (posterior). Without studies, the list is empty."""
    heads = {
        "elbo": ("ELBO", 1),
        "iwae": ("IWAE bound", 1),
        "elbo_normalised": ("ELBO, normalised", 1),
        "pixel_error": ("pixel error", 1),
        "t0_percent": ("t0 probe (%)", 1),
        "t0_A0_percent": ("t0 and A0 probe (%)", 1),
    }
    rows: list[Row] = [
        ([study, guide, numbers.settings.posterior[study].samples], cells(numbers, heads, "guide", guide), numbers)
        for study, numbers in results.executed("posterior")
        for guide in ("delta", "control", "refined", "scratch")
    ]
    caption = (
        "Encoders (guides) with a full posterior over poses. ELBO and IWAE bound (importance-weighted, with the given "
        "number of samples): in nats per test image. Probes are refit and tested on clean images. `delta`: Gaussians "
        "around delta poses, with sds chosen on validation images. `control`: as `delta`, after further training with "
        "delta poses. `refined`: after further training with Gaussian poses. `scratch`: an encoder trained together "
        "with a new generative model. The document's density of poses integrates to less than 1, which lowers ELBO "
        "and IWAE bound. So compare `scratch` with the others by normalised ELBOs only."
    )
    return measured_table("posterior", "Full posterior over poses", caption, ["study", "guide", "samples"], heads, rows)
