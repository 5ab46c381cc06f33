"""Document 001's generative model: what its claims are judged by, its figures and its tables.

The studies that answer the claims are those that the profile's `evidence` names. The document gives no data and no
settings for them: there is nothing to differ from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import cycle
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import norm

from pipeline.drawing.drawings import Drawing, Written
from pipeline.drawing.style import BLUE, FAINT, GREEN, INK, ORANGE, PURPLE, VERMILLION, WIDTH, in_house_style, panels
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results
from pipeline.results.studies import Study, studies_of, study_of

AS_WRITTEN = "1"
"""The weight of a penalty that is added to the energy as the document writes it."""
SINGLE = 1.05
"""Largest effective number of hidden units that counts as a single winner."""
NEAR_ZERO = 0.1
"""Largest entropy that counts as near 0, as a share of uniform attention's."""
FAILURE_RATE = 1e-3
"""Probability that the goodness-of-fit tests together fail although density and samples agree."""
FAMILIES = (
    (FAINT, "", ":", ("true poses",)),
    (BLUE, "s", "--", ("inversion, cues",)),
    (BLUE, "o", "-", ("inversion",)),
    (PURPLE, "D", "-.", ("inversion, cues, scales learned",)),
    (GREEN, "^", "-", ("EM routing", "EM routing, several starts", "EM routing, several starts, clutter")),
    (VERMILLION, "v", "-", ("dynamic routing", "dynamic routing, long")),
    (ORANGE, "x", "--", ("k-means",)),
)
"""Colour, marker and dashes of a family of methods, and its members; only the best member of each is drawn."""
SCALES = ((BLUE, "o"), (INK, "s"), (VERMILLION, "v"), (GREEN, "^"), (PURPLE, "D"))
OBJECTIVES = {"output": "output's error alone", "two-sided": "all errors"}
SHAPES = ((BLUE, "^"), (VERMILLION, "s"), (GREEN, "*"))
"""Colours and markers of a triangle, a square and a star, in their order in results."""


Answer = tuple[Measured, bool, list[str]]
"""Our number, whether the claim holds, and notes."""


def _answer(kind: str, check: Callable[[Numbers], Answer]) -> Measure:
    def measure(results: Results) -> Finding | None:
        study = study_of(results, "attention", results.evidence.attention.get(kind), Study)
        if study is None:
            return None
        ours, holds, notes = check(study.numbers)
        return Finding(ours, study.numbers.records, holds=holds, notes=notes)

    return measure


def single_winner(numbers: Numbers, reading: Literal["two-sided", "output"]) -> Answer:
    """Figure 3: effective hidden units with L1 at weight 1, all prediction errors counted, or those of the output only.

    The claim holds if there is a single winner with L1, but not with L2 or without a penalty. The document adds the
    penalties to the energy without a weight.
    """
    single = []
    for weight, penalties in numbers.at("end", reading).items():
        units = {penalty: found["effective_number"]["mean"] for penalty, found in penalties.items()}
        if units["L1"] < SINGLE < min(units["none"], units["L2"]):
            single.append(weight)
    ours = numbers.needed("end", reading, AS_WRITTEN, "L1", "effective_number")
    notes = [f"a single winner at weight {' and '.join(single) or 'none'}"]
    least = numbers.number("single_winner_from")
    if reading == "two-sided" and least is not None:
        fraction = Fraction(least).limit_denominator(9)  # such as 5/3
        notes.append(f"L1 leaves a single active unit from weight {fraction} ({least:.3f}) on")
    return ours, AS_WRITTEN in single, notes


def one_parent(numbers: Numbers) -> Answer:
    """Section 4.1: mean entropy (nats) of the last iteration's attention at the paper's scale."""
    entropy = numbers.needed("last", "1", "entropy")
    first, last = (numbers.at(when, "1") for when in ("first", "last"))
    note = (
        f"{100 * last['right']['mean']:.0f} % of parts end at their own parent, {100 * first['right']['mean']:.0f} % "
        "start there"
    )
    most = NEAR_ZERO * numbers.at("log_objects", "mean")
    return entropy, entropy.mean < min(first["entropy"]["mean"], most), [note]


def density_and_samples_agree(numbers: Numbers) -> Answer:
    """Section 4.2: the largest deviation of all tests, in standard errors, against the limit for that many tests."""
    z = numbers.needed("largest_z")
    limit = float(norm.isf(FAILURE_RATE / numbers.at("tests") / 2))
    literal, printed = (
        " to ".join(f"{numbers.at(mass, end, 'mean'):.1f}" for end in ("least", "most"))
        for mass in ("literal_mass", "printed_mass")
    )
    note = (
        f"if a pose is its own cue, as in equation 7, the mixture integrates to {literal}; with weights from "
        f"densities, as printed, to {printed}"
    )
    return z, z.mean < limit, [note]


def inversion_finds_more(numbers: Numbers) -> Answer:
    """Section 4.2: points by which inversion is ahead of routing by agreement, on average over settings.

    The claim holds if that lead is not due to chance. Routing counts with the better of its two numbers of iterations.
    The sd is the standard error of the difference on the same scenes: scenes differ more than the methods do.
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
        f"{ours:.1f} % found, {rival} {ours - lead.mean:.1f}; fewer in {settings - counts['more'] - counts['as_many']} "
        f"of {settings} settings, on the same {lead.n:,} scenes",
        f"best routing: {best}; inversion is ahead of it by {leads[best].mean:.1f} ± {leads[best].se:.1f} points",
    ]
    return lead, lead.mean > SIGNIFICANT_SES * lead.se, notes


MEASURES: dict[str, Measure] = {
    "001.toy": _answer("toy", partial(single_winner, reading="two-sided")),
    "001.toy.output": _answer("toy", partial(single_winner, reading="output")),
    "001.attn": _answer("iterated", one_parent),
    "001.vmf": _answer("density", density_and_samples_agree),
    "001.vmf.infer": _answer("parsing", inversion_finds_more),
}


@in_house_style
def minimisers(table: pd.DataFrame) -> Figure:
    """Figure 3: the three hidden activities after inference, by penalty, one panel for each objective and weight."""
    cases = list(table[["reading", "weight"]].drop_duplicates().itertuples(index=False))
    figure, axes = panels(len(cases), 2.3, sharey=True)
    penalties = ["none", "L1", "L2"]
    for axis, (reading, weight) in zip(axes, cases, strict=True):
        chosen = table[(table["reading"] == reading) & (table["weight"] == weight)].set_index("penalty").loc[penalties]
        for unit, (colour, hatch) in enumerate(((BLUE, ""), (VERMILLION, "//"), (GREEN, ".."))):
            places = np.arange(3) + 0.26 * (unit - 1)
            heights, words = chosen[f"h{unit + 1}"], f"unit {unit + 1}"
            axis.bar(places, heights, 0.24, color=colour, hatch=hatch, edgecolor="white", label=words)
        axis.axhline(0, color=INK, linewidth=0.7)
        axis.set_xticks(range(3), penalties)
        axis.set_title(f"{OBJECTIVES[reading]},\nweight {weight:g}")
        axis.grid(axis="x", visible=False)
    axes[0].set_ylabel("hidden activity")
    axes[0].legend(loc="upper right")
    return figure


@in_house_style
def attention_over_iterations(table: pd.DataFrame) -> Figure:
    """Entropy of attention (nats) and share of parts that attend most to their own parent, by iteration and scale."""
    figure, axes = panels(2, 2.4)
    means = table.groupby(["scale", "iteration"])[["entropy", "right"]].mean().reset_index()
    for (scale, rows), (colour, marker) in zip(means.groupby("scale"), cycle(SCALES)):
        label = f"scale {scale:g}" + (" (the paper's)" if scale == 1 else "")
        axes[0].plot(rows["iteration"], rows["entropy"], color=colour, marker=marker)
        axes[1].plot(rows["iteration"], 100 * rows["right"], color=colour, marker=marker, label=label)
    axes[0].set(xlabel="iteration", ylabel="entropy over parents (nats)", ylim=(0, None))
    axes[1].set(xlabel="iteration", ylabel="parts at their own parent (%)", ylim=(0, 100))
    axes[1].legend(loc="lower left")
    return figure


@in_house_style
def parents_found(table: pd.DataFrame) -> Figure:
    """Share of parents found (percent) over the number of objects in a scene, one panel for each sd of the parts.

    Of each family of methods only the one that finds most over all scenes is shown.
    """
    means = table.groupby("method")["found"].mean()
    best = {str(means[list(members)].idxmax()): look for *look, members in FAMILIES}
    sigmas = sorted(table["sigma"].unique())
    shown = sorted(table["shown"].unique())
    apart = 0.025 * float(max(shown) - min(shown) or 1)  # so that no error bar hides another
    figure, axes = panels(len(sigmas), 2.9, sharey=True)
    for axis, sigma in zip(axes, sigmas, strict=True):
        for index, (method, (colour, marker, dashes)) in enumerate(best.items()):
            rows = table[(table["sigma"] == sigma) & (table["method"] == method)]
            axis.errorbar(
                rows["shown"] + apart * (index - len(best) // 2), 100 * rows["found"], 100 * rows["standard_error"],
                color=colour, marker=marker or None, linestyle=dashes, label=method,
            )  # fmt: skip
        axis.set_title(f"sd of parts {sigma:g}")
        axis.set_xticks(shown)
        axis.set_xlabel("objects in the scene")
    axes[0].set_ylabel("parents found (%)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


@in_house_style
def parsed_scenes(arrays: dict[str, np.ndarray]) -> Figure:
    """Overlapping shapes, one scene per row; parts coloured by their true parent and by those that two methods find."""
    views = (
        ("true", "truth", "outlines"),
        ("dynamic routing, long", "routing", "routed_outlines"),
        ("inversion", "inversion", "inverted_outlines"),
    )
    count = len(arrays["places"])
    figure = Figure(figsize=(WIDTH, 2.15 * count))
    grid = figure.subplots(count, 3, squeeze=False, sharex="row", sharey="row")
    for row in range(count):
        places = arrays["places"][row]
        shown = np.concatenate([places[:, :2], arrays["outlines"][row][..., :2].reshape(-1, 2)])
        for axis, (title, parents, outlines) in zip(grid[row], views, strict=True):
            for outline, (colour, _) in zip(arrays[outlines][row].swapaxes(0, 1), SHAPES, strict=True):
                axis.fill(*outline[:, :2].T, facecolor="none", edgecolor=colour, linewidth=0.8, alpha=0.55)
            for j, (colour, marker) in enumerate((*SHAPES, (INK, "x"))):
                axis.plot(*places[arrays[parents][row] == j, :2].T, marker, color=colour, markersize=4, linestyle="")
            (left, right), (bottom, top) = zip(shown.min(0) - 0.3, shown.max(0) + 0.3, strict=True)
            axis.set(aspect="equal", xticks=[], yticks=[], xlim=(left, right), ylim=(bottom, top))
            axis.grid(visible=False)
            axis.spines[:].set(visible=True, color=FAINT)
            if row == 0:
                axis.set_title(title)
            if parents != "truth":
                real = arrays["truth"][row] < len(SHAPES)
                found = (arrays[parents][row] == arrays["truth"][row])[real].mean()
                axis.set_xlabel(f"{100 * found:.0f} % of parents found", labelpad=2)
    return figure


_FIGURES: dict[str, tuple[Callable[[pd.DataFrame], Figure], str, str, str]] = {
    "toy": (
        minimisers,
        "Result of inference in the toy network",
        "Hidden activities without a penalty, with L1 and with L2, for the published figure's objective (the output's "
        "error alone) and the text's (all errors), by penalty weight.",
        "Bars of three hidden activities by penalty, one panel for each objective and weight.",
    ),
    "iterated": (
        attention_over_iterations,
        "Attention over iterations",
        "Left: low entropy means that each part attends to a single parent. Right: how often that is its own parent "
        "({data}; means over sds of the parts). The scale multiplies the scores before their softmax.",
        "Entropy over iterations, and the share of correct parents, one line for each scale.",
    ),
    "parsing": (
        parents_found,
        "Parents found by inversion and by routing",
        "Share of parts whose parent is found, over the number of objects in a scene ({data}; bars: one standard error "
        "over scenes). Of the variants of EM routing and of dynamic routing only the best is drawn; long ones have "
        '{settings.long_iterations} iterations. "True poses" is given the poses of the objects in the scene.',
        "One line for each method over the number of objects, one panel for each sd of the parts.",
    ),
}
"""By kind of study: function of the figure of its table, title, caption and alternative text."""


def draw(results: Results, written: Written) -> Iterator[Drawing]:
    """Every figure of the attention studies, sorted by kind."""
    kinds = list(_FIGURES)
    drawn = (study for study in studies_of(results, "attention", Study) if study.kind in kinds)
    for study in sorted(drawn, key=lambda study: kinds.index(study.kind)):
        records, table = study.numbers.records, study.table(())
        if table is not None:
            function, title, caption, alt = _FIGURES[study.kind]
            told = caption.format(data=dataset_label(records), settings=study.settings)
            yield Drawing(f"attention-{study.name}", "svg", title, told, alt, records, partial(function, table))
        if study.kind == "parsing":
            arrays = study.examples(())
            if arrays is None:
                written.miss(f"{study.label} (its examples)")
                continue
            yield Drawing(
                f"scenes-{study.name}",
                "png",
                "Overlapping objects, parsed",
                "Parts of a triangle, a square and a star, with clutter (crosses), coloured by their parent; lines "
                "show the objects at the poses that each method finds. Dynamic routing has "
                f"{study.settings.long_iterations} iterations and no class for clutter; a part that is taken for "
                "clutter does not count as found.",
                "Three scenes of overlapping shapes: true parents, those of dynamic routing and of inversion.",
                records,
                partial(parsed_scenes, arrays),
            )
