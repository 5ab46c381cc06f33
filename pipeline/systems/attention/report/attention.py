"""Measure the claims of document 001 about its generative model, and draw figures of studies of top-down attention.

The profile's `evidence` names the studies that answer the claims. The document gives no data and no settings for these
claims, so findings have no remarks on differences from the document.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import norm

from pipeline.drawing.drawings import Drawing
from pipeline.drawing.style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, VERMILLION, WIDTH, in_house_style, panels
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results, studies_of, study_of

AS_WRITTEN = "1"
"""Results have penalties of weight 1 under this key. In the document's energy, the penalty has this weight."""
SINGLE = 1.05
"""A single hidden unit counts as the winner if the effective number of active units is below this."""
METHODS = {
    "true poses": (FAINT, "", ":"),
    "inversion, cues": (BLUE, "s", "--"),
    "inversion": (BLUE, "o", "-"),
    "inversion, cues, scales learned": (PURPLE, "D", "-."),
    "EM routing": (GREEN, "^", "-"),
    "dynamic routing, long": (VERMILLION, "v", "-"),
    "k-means": (ORANGE, "x", "--"),
}
"""Colour, marker and line style of each method that is drawn."""
OBJECTIVES = {"output": "only the output's error", "two-sided": "all errors"}
SHAPES = ((BLUE, "^"), (VERMILLION, "s"), (GREEN, "*"))
"""Colour and marker of a triangle, a square and a star. Results have the three shapes in this order."""


Answer = tuple[Measured, bool, list[str]]
"""Our number, whether the claim holds, and notes."""


def _measure(results: Results, kind: str, check: Callable[[Numbers], Answer]) -> Finding:
    study = study_of(results, "attention", results.evidence.attention.get(kind))
    ours, holds, notes = check(study.numbers)
    return Finding(ours, study.numbers.records, holds=holds, notes=notes)


def single_winner(numbers: Numbers, reading: Literal["two-sided", "output"]) -> Answer:
    """Figure 3: the effective number of active hidden units after inference with an L1 penalty of weight 1. The claim
    holds if a single unit wins (see `SINGLE`) with this penalty, but not with L2 of weight 1 and not without a penalty.
    `experiments/toy.py` explains the two values of `reading`.
    """
    single = []
    for weight, penalties in numbers.at("end", reading).items():
        units = {penalty: found["effective_number"]["mean"] for penalty, found in penalties.items()}
        if units["L1"] < SINGLE < min(units["none"], units["L2"]):
            single.append(weight)
    ours = numbers.needed("end", reading, AS_WRITTEN, "L1", "effective_number")
    notes = [f"a single winner at {'weight ' + ' and '.join(single) if single else 'no weight'}"]
    least = numbers.number("single_winner_from")
    if reading == "two-sided" and least is not None:
        fraction = Fraction(least).limit_denominator(9)  # such as 5/3
        notes.append(f"the least weight at which L1 leaves a single active unit is {fraction} ({least:.3f})")
    return ours, AS_WRITTEN in single, notes


def one_parent(numbers: Numbers) -> Answer:
    """Section 4.1: mean entropy (nats) of a part's attention in the last iteration, at the scale where it is largest.

    Attention scores are scalar products of poses, times a scale. The document does not give the size of poses, so
    several scales are tried. The claim holds if, at each scale, the entropy falls below a tenth of log n (n objects).
    """
    most = 0.1 * numbers.at("log_objects", "mean")
    entropies = {
        scale: [numbers.needed(when, scale, "entropy") for when in ("first", "last")] for scale in numbers.names("last")
    }
    holds = all(last.mean < min(first.mean, most) for first, last in entropies.values())
    notes = [
        f"scale {scale}: from {first.mean:.2f} to {last.mean:.2f} nats" for scale, (first, last) in entropies.items()
    ]
    return max((last for _, last in entropies.values()), key=lambda entropy: entropy.mean), holds, notes


def density_and_samples_agree(numbers: Numbers) -> Answer:
    """Section 4.2: the largest deviation of samples from their density in any test, in standard errors. The claim holds
    if this deviation is below a limit. Correct samples would exceed the limit with a probability of at most 1e-3.
    """
    z = numbers.needed("largest_z")
    limit = float(norm.isf(1e-3 / numbers.at("tests") / 2))
    literal, printed = (
        " to ".join(f"{numbers.at(mass, end, 'mean'):.1f}" for end in ("least", "most"))
        for mass in ("literal_mass", "printed_mass")
    )
    note = (
        f"if a pose is its own cue, as in equation 7, the mixture integrates to {literal} (weights: a softmax of log "
        f"densities), or to {printed} (weights: a softmax of densities, as printed)"
    )
    return z, z.mean < limit, [note]


def inversion_finds_more(numbers: Numbers) -> Answer:
    """Section 4.2: percent of parents that inversion finds minus percent that dynamic routing finds. Of a short and a
    long run of dynamic routing, the better one is used. The number is a mean over settings (sd of parts, number of
    objects). Its `sd` is a standard error over scenes. The claim holds if the mean exceeds `SIGNIFICANT_SES` of these.
    """
    ours, settings = 100 * numbers.at("found", "inversion", "mean"), numbers.at("settings")
    leads = {
        method: Measured(100 * lead["mean"], 100 * lead["standard_error"], lead["scenes"], standard_error=True)
        for method, lead in numbers.at("lead").items()
    }
    best = min(leads, key=lambda method: leads[method].mean)
    rival = min(("dynamic routing", "dynamic routing, long"), key=lambda method: leads[method].mean)
    lead, counts = leads[rival], numbers.at("lead", rival)
    notes = [
        f"found: {ours:.1f} % by inversion, {ours - lead.mean:.1f} % by {rival}; both on the same {lead.n:,} scenes; "
        f"inversion finds fewer in {settings - counts['more'] - counts['as_many']} of {settings} settings",
        f"best routing: {best}; inversion finds {leads[best].mean:.1f} ± {leads[best].se:.1f} points more",
    ]
    return lead, lead.mean > SIGNIFICANT_SES * lead.se, notes


MEASURES: dict[str, Measure] = {
    "001.toy": partial(_measure, kind="toy", check=partial(single_winner, reading="two-sided")),
    "001.toy.output": partial(_measure, kind="toy", check=partial(single_winner, reading="output")),
    "001.attn": partial(_measure, kind="iterated", check=one_parent),
    "001.vmf": partial(_measure, kind="density", check=density_and_samples_agree),
    "001.vmf.infer": partial(_measure, kind="parsing", check=inversion_finds_more),
}


@in_house_style
def minimisers(table: pd.DataFrame) -> Figure:
    """Figure 3: bars of the three hidden activities after inference, by penalty. A panel has a reading and a weight."""
    cases = list(table.groupby(["reading", "weight"], sort=False))
    figure, axes = panels(len(cases), 2.3, sharey=True)
    for axis, ((reading, weight), rows) in zip(axes, cases, strict=True):
        for unit, colour in enumerate((BLUE, VERMILLION, GREEN)):
            places = np.arange(len(rows)) + 0.26 * (unit - 1)
            axis.bar(places, rows[f"h{unit + 1}"], 0.24, color=colour, label=f"unit {unit + 1}")
        axis.axhline(0, color=INK, linewidth=0.7)
        axis.set_xticks(range(len(rows)), rows["penalty"])
        axis.set_title(f"{OBJECTIVES[str(reading)]},\nweight {weight:g}")
        axis.grid(axis="x", visible=False)
    axes[0].set_ylabel("hidden activity")
    axes[0].legend(loc="upper right")
    return figure


@in_house_style
def parents_found(table: pd.DataFrame) -> Figure:
    """Percent of parents found against the number of objects in a scene: a line per method, a panel per sd of parts."""
    figure, axes = panels(table["sigma"].nunique(), 2.9, sharey=True)
    for axis, (sigma, at_sigma) in zip(axes, table.groupby("sigma"), strict=True):
        for method, (colour, marker, dashes) in METHODS.items():
            rows = at_sigma[at_sigma["method"] == method]
            axis.errorbar(
                rows["shown"], 100 * rows["found"], 100 * rows["standard_error"], color=colour, marker=marker or None,
                linestyle=dashes, label=method,
            )  # fmt: skip
        axis.set(title=f"sd of parts {sigma:g}", xticks=at_sigma["shown"].unique(), xlabel="objects in the scene")
    axes[0].set_ylabel("parents found (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@in_house_style
def parsed_scenes(arrays: dict[str, np.ndarray]) -> Figure:
    """Scenes of overlapping shapes, one per row. A part has the colour of its parent: true, routed or inferred."""
    views = (
        ("true", "truth", "outlines"),
        ("dynamic routing, long", "routing", "routed_outlines"),
        ("inversion", "inversion", "inverted_outlines"),
    )
    count = len(arrays["places"])
    figure = Figure(figsize=(WIDTH, 2.15 * count))
    grid = figure.subplots(count, 3, squeeze=False, sharex="row", sharey="row")
    for row, axes in enumerate(grid):
        places, truth = arrays["places"][row], arrays["truth"][row]
        for axis, (title, parents, outlines) in zip(axes, views, strict=True):
            chosen = arrays[parents][row]
            for j, (colour, marker) in enumerate((*SHAPES, (INK, "x"))):
                axis.plot(*places[chosen == j, :2].T, marker, color=colour, markersize=4, linestyle="")
                if j < len(SHAPES):
                    outline = arrays[outlines][row, :, j, :2].T
                    axis.fill(*outline, facecolor="none", edgecolor=colour, linewidth=0.8, alpha=0.55)
            axis.set(aspect="equal", xticks=[], yticks=[], title="" if row else title)
            axis.grid(visible=False)
            axis.spines[:].set(visible=True, color=FAINT)
            if parents != "truth":
                found = (chosen == truth)[truth < len(SHAPES)].mean()
                axis.set_xlabel(f"{100 * found:.0f} % of parents found", labelpad=2)
    return figure


def draw(results: Results) -> Iterator[Drawing]:
    """Yield the figures of all executed studies of the kinds "toy" and "parsing"."""
    for study in studies_of(results, "attention"):
        records, table = study.numbers.records, study.table(())
        if study.kind == "toy" and table is not None:
            yield Drawing(
                f"attention-{study.name}",
                "svg",
                "Result of inference in the toy network",
                "Activities of the hidden units after inference, by penalty. Panels differ in the penalty's weight "
                "and in the errors that count: all, as in the document's text, or the output's only, as in its figure.",
                "Bars of the activities of three hidden units by penalty, in a panel for each energy and weight.",
                records,
                partial(minimisers, table),
            )
        if study.kind != "parsing" or table is None:
            continue
        long = f"{study.settings.long_iterations} iterations"
        yield Drawing(
            f"attention-{study.name}",
            "svg",
            "Parents found by inversion and by routing",
            f"Percentage of parts whose parent a method finds, on {dataset_label(records)}. Panels differ in the sd of "
            "parts around their predicted poses. Inversion uses the model that makes the scenes, but is not told which "
            "objects a scene has. With cues, it is told directions to parts. Error bars: one standard error over "
            f'scenes. Long dynamic routing has {long}. "True poses" is given the objects in a scene and their poses.',
            "Percentage of parents found against the number of objects: a line per method, a panel per sd of parts.",
            records,
            partial(parents_found, table),
        )
        arrays = study.examples()
        if arrays is None:
            continue
        yield Drawing(
            f"scenes-{study.name}",
            "png",
            "Scenes of overlapping objects, parsed by two methods",
            "A part has the colour of its parent: a triangle, a square or a star. Crosses are clutter (no parent). "
            f"Lines show objects at true poses, or at poses that a method finds. Dynamic routing has {long} and cannot "
            "recognise clutter. If inversion takes a shape's part for clutter, the part's parent is not found.",
            "Three scenes of overlapping shapes: true parents, parents by dynamic routing, and parents by inversion.",
            records,
            partial(parsed_scenes, arrays),
        )
