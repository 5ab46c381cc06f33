"""The checks of document 001's claims about its generative model, on the studies that the profile's `evidence` names.

The document gives no data and no settings for these studies: there is nothing to differ from.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from scipy.stats import norm

from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
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


def _answer(kind: str, check: Callable[[Numbers], tuple[Measured | None, bool, list[str]] | None]) -> Measure:
    def measure(results: Results) -> Finding | None:
        study = study_of(results, "attention", results.evidence.attention.get(kind), Study)
        answer = check(study.numbers) if study else None
        if study is None or answer is None:
            return None
        ours, holds, notes = answer
        records = study.numbers.records
        return Finding(ours, dataset_label(records), records, holds=holds, notes=notes)

    return measure


def single_winner(numbers: Numbers) -> tuple[Measured | None, bool, list[str]] | None:
    """Figure 3, with the text's objective: effective hidden units with L1, all prediction errors counted, weight 1.

    The claim holds if there is a single winner with L1, but not with L2 or without a penalty. The document adds the
    penalties to the energy without a weight.
    """
    single: dict[str, list[str]] = {"two-sided": [], "output": []}
    for reading, weights in single.items():
        for weight in numbers.names("end", reading):
            units = _units(numbers, reading, weight)
            if units is None:
                return None
            if units["L1"].mean < SINGLE < min(units["none"].mean, units["L2"].mean):
                weights.append(weight)
    ours = _units(numbers, "two-sided", AS_WRITTEN)
    if ours is None:
        return None
    holds = AS_WRITTEN in single["two-sided"]
    least = numbers.number("single_winner_from")
    notes = [f"all errors counted: {'holds' if holds else 'fails'} at weight {AS_WRITTEN}"]
    if least is not None:
        notes[0] += f"; L1 leaves a single active unit from {_fraction(least)} ({least:.3f}) on"
    notes.append(f"the output's error alone: single winner at weight {' and '.join(single['output']) or 'none'}")
    return ours["L1"], holds, notes


def _units(numbers: Numbers, reading: str, weight: str) -> dict[str, Measured] | None:
    """Effective numbers of hidden units by penalty, or None if one is missing."""
    found = {
        penalty: numbers.measured("end", reading, weight, penalty, "effective_number")
        for penalty in ("none", "L1", "L2")
    }
    known = {penalty: units for penalty, units in found.items() if units is not None}
    return known if len(known) == len(found) else None


def _fraction(value: float) -> str:
    """The nearest fraction of small whole numbers, such as "5/3"."""
    return str(Fraction(value).limit_denominator(9))


def one_parent(numbers: Numbers) -> tuple[Measured | None, bool, list[str]] | None:
    """Section 4.1: mean entropy (nats) of the last iteration's attention at the paper's scale."""
    first, last = (numbers.number(when, "1", "entropy", "mean") for when in ("first", "last"))
    most, right = numbers.number("log_objects", "mean"), numbers.number("last", "1", "right", "mean")
    begun = numbers.number("first", "1", "right", "mean")
    if first is None or last is None or most is None or right is None or begun is None:
        return None
    note = f"{100 * right:.0f} % of parts end at their own parent, {100 * begun:.0f} % start there"
    return numbers.measured("last", "1", "entropy"), last < first and last < NEAR_ZERO * most, [note]


def density_and_samples_agree(numbers: Numbers) -> tuple[Measured | None, bool, list[str]] | None:
    """Section 4.2: the largest deviation of all tests, in standard errors, against the limit for that many tests."""
    z, tests = numbers.measured("largest_z"), numbers.number("tests")
    literal, printed = (
        [numbers.number(mass, which, "mean") for which in ("least", "most")]
        for mass in ("literal_mass", "printed_mass")
    )
    if z is None or not tests or None in literal or None in printed:
        return None
    limit = float(norm.isf(FAILURE_RATE / tests / 2))
    note = (
        f"if a pose is its own cue, as in equation 7, the mixture integrates to {literal[0]:.1f} to "
        f"{literal[1]:.1f}; with weights from densities, as printed, to {printed[0]:.1f} to {printed[1]:.1f}"
    )
    return z, z.mean < limit, [note]


def inversion_finds_more(numbers: Numbers) -> tuple[Measured | None, bool, list[str]] | None:
    """Section 4.2: points by which inversion is ahead of routing by agreement, on average over settings.

    The claim holds if that lead is not due to chance. Routing counts with the better of its two numbers of iterations.
    The sd is the standard error of the difference on the same scenes: scenes differ more than the methods do.
    """
    ours, settings = numbers.number("found", "inversion", "mean"), numbers.number("settings")
    points = {method: _points(numbers, method) for method in numbers.names("lead")}
    leads = {method: lead for method, lead in points.items() if lead is not None}
    by_agreement = [method for method in leads if method.startswith("dynamic routing")]
    if ours is None or settings is None or not by_agreement:
        return None
    rival = min(by_agreement, key=lambda method: leads[method].mean)
    best = min(leads, key=lambda method: leads[method].mean)
    more, as_many = (numbers.number("lead", rival, count) for count in ("more", "as_many"))
    if more is None or as_many is None:
        return None
    lead = leads[rival]
    notes = [
        f"{100 * ours:.1f} % found, {rival} {100 * ours - lead.mean:.1f}; fewer in {settings - more - as_many:.0f} of "
        f"{settings:.0f} settings, on the same {lead.n:,} scenes",
        f"best routing: {best}; inversion is ahead of it by {leads[best].mean:.1f} ± {leads[best].se:.1f} points",
    ]
    return lead, lead.mean > SIGNIFICANT_SES * lead.se, notes


def _points(numbers: Numbers, method: str) -> Measured | None:
    """The lead over a method, in points of parents found, with its standard error as the sd."""
    mean, error, scenes = (numbers.number("lead", method, key) for key in ("mean", "standard_error", "scenes"))
    if mean is None or error is None or scenes is None:
        return None
    return Measured(100 * mean, 100 * error, int(scenes), standard_error=True)


MEASURES: dict[str, Measure] = {
    "001.toy": _answer("toy", single_winner),
    "001.attn": _answer("iterated", one_parent),
    "001.vmf": _answer("density", density_and_samples_agree),
    "001.vmf.infer": _answer("parsing", inversion_finds_more),
}
"""The measure of each of these claims."""
