"""The checks of document 001's claims about its generative model, on the studies that the profile's `evidence` names.

The document gives no data and no settings for these studies: there is nothing to differ from.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Literal

from scipy.stats import norm

from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.reading import Numbers, Results
from pipeline.results.studies import Study, study_of

AS_WRITTEN = "1"
"""The weight of a penalty that is added to the energy as the document writes it."""
SINGLE = 1.05
"""Largest effective number of hidden units that counts as a single winner."""
NEAR_ZERO = 0.1
"""Largest entropy that counts as near 0, as a share of uniform attention's."""
FAILURE_RATE = 1e-3
"""Probability that the goodness-of-fit tests together fail although density and samples agree."""


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
"""The measure of each of these claims."""
