"""The checks of document 002's claims, on the studies that the profile's `evidence` names.

Claims about both of the paper's data sets use the studies on both, and hold if they hold in each. EM from the subspace
start has no seed, so the only noise is that of the test images: differences of up to two binomial standard errors do
not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import Results
from pipeline.systems.regression.report.studies import SETS, Study, answering

DECISIONS = ("multiclass", "one-vs-all", "all-vs-all")
BANDS = {"mnist": 3.0, "fashion_mnist": 12.0}
"""Percent: upper ends of the bands that the paper gives for nearest neighbours and forests."""
LINEAR = 1.5
"""Largest difference (points) between capsules of one number and logistic regression."""
MOST_SE = 5.0
TABLE_ERROR = 1e-8
"""How much the normalised log-loss may rise because its interpolation table is rounded."""


def _one_error(role: str) -> Measure:
    """Section 3.2: the test error of the multiclass model with capsules of two numbers."""

    def measure(results: Results) -> Finding | None:
        for study in answering(results, "grid"):
            error = study.error("multiclass", "2")
            if study.role == role and error:
                records = study.numbers.records
                return Finding(error, dataset_label(records), records, remarks=study.remarks)
        return None

    return measure


Check = Callable[[Study], tuple[Measured, bool] | None]
"""Checks one study: returns our number and whether the claim holds, or None if a number is missing."""


def _all_agree(kind: str, check: Check, notes: Callable[[Study], list[str]] = lambda study: []) -> Measure:
    """A claim about every data set: our number is the first study's, and the claim holds if it holds for all.

    Args:
        notes: on each study that is used.
    """

    def measure(results: Results) -> Finding | None:
        answers: list[tuple[Measured, bool]] = []
        used: list[Study] = []
        for study in answering(results, kind):
            answer = check(study)
            if answer:
                answers.append(answer)
                used.append(study)
        if not answers:
            return None
        records = [record for study in used for record in study.numbers.records]
        remarks = unique(remark for study in used for remark in study.remarks) + _missing_sets(used)
        holds = all(holds for _, holds in answers)
        told = [note for study in used for note in notes(study)]
        return Finding(answers[0][0], dataset_label(records), records, holds=holds, remarks=remarks, notes=told)

    return measure


def _missing_sets(used: Sequence[Study]) -> list[str]:
    roles = {study.role for study in used}
    return [f"without {label}" for role, label in SETS.items() if role not in roles]


def _sizes(study: Study, decision: str) -> list[str]:
    return sorted(study.numbers.names("errors", decision), key=int)


def falls_with_size(study: Study) -> tuple[Measured, bool] | None:
    """Figure 5: with growing size no test error rises by more than its noise, and the last is below the first."""
    gains, holds = [], True
    for decision in study.numbers.names("errors"):
        errors = [error for size in _sizes(study, decision) if (error := study.error(decision, size))]
        if len(errors) < 2:
            return None
        gains.append(errors[0].minus(errors[-1]))
        steps = pairwise(errors)
        holds &= all(b.mean <= a.mean + study.noise(a.mean, b.mean) for a, b in steps)
        holds &= errors[-1].mean < errors[0].mean
    return (min(gains, key=lambda gain: gain.mean), holds) if gains else None


def more_capsules_err_less(study: Study) -> tuple[Measured, bool] | None:
    """Figure 5: at equal size, within noise, all-vs-all <= one-vs-all <= multiclass test error.

    Our number is how much lower the error of all-vs-all is than that of multiclass, in points, on average over sizes.
    """
    leads, holds = [], True
    for size in _sizes(study, DECISIONS[0]):
        errors = [study.error(decision, size) for decision in DECISIONS]
        known = [error for error in errors if error]
        if len(known) < len(DECISIONS):
            return None
        leads.append(known[0].mean - known[-1].mean)
        holds &= all(b.mean <= a.mean + study.noise(a.mean, b.mean) for a, b in pairwise(known))
    return (Measured(sum(leads) / len(leads), 0.0, 1), holds) if leads else None


def one_number_is_linear(study: Study) -> tuple[Measured, bool] | None:
    """Figure 5: multiclass with capsules of one number has logistic regression's error, within 1.5 points."""
    ours, linear = study.error("multiclass", "1"), study.numbers.measured("baseline", "logistic-regression", "test")
    if ours is None or linear is None:
        return None
    gap = ours.minus(linear.scaled(100))
    return gap, abs(gap.mean) <= LINEAR


def best_is_in_the_band(study: Study) -> tuple[Measured, bool] | None:
    """Section 3.4: the test error of the model with the lowest validation error lies in the band (or below it)."""
    cells = [(decision, size) for decision in study.numbers.names("errors") for size in _sizes(study, decision)]
    measured = [(study.error(*cell, "validation"), study.error(*cell)) for cell in cells]
    known = [(held.mean, test) for held, test in measured if held and test]
    if not known:
        return None
    test = min(known, key=lambda pair: pair[0])[1]
    return test, test.mean <= BANDS[study.role]


def own_rim(study: Study) -> tuple[Measured, bool] | None:
    """Figures 2-3: in every capsule the images of its own class have the largest mean radius.

    Our number is the mean radius of an image in its own class's capsule minus that in the others.
    """
    own, others, largest = (study.numbers.measured("rim", name) for name in ("own", "others", "largest"))
    if own is None or others is None or largest is None:
        return None
    return own.minus(others), largest.mean == 1.0


def prototypes_differ(study: Study) -> tuple[Measured, bool] | None:
    """Figure 4: the elements of a capsule have different prototypes: most of them are different images."""
    variety = study.numbers.measured("prototypes")
    return (variety.scaled(100), variety.mean > 0.5) if variety else None


def momentum_and_thresholds(study: Study) -> tuple[Measured, bool] | None:
    """Figures 6-7: after all iterations momentum has lowered both losses, with and without a threshold; the threshold
    has raised the log-loss and lowered the error, with and without momentum.

    Our number is the error of the plain update minus that with momentum and threshold, in points.
    """
    last = {
        variant: tuple(study.numbers.measured("last", variant, name) for name in ("log_loss", "train"))
        for variant in ("plain", "momentum", "threshold", "both")
    }
    values = {variant: [found.mean for found in pair if found] for variant, pair in last.items()}
    if any(len(pair) < 2 for pair in values.values()):
        return None
    plain, momentum, threshold, both = (values[variant] for variant in ("plain", "momentum", "threshold", "both"))
    faster = all(fast[i] < slow[i] for fast, slow in ((momentum, plain), (both, threshold)) for i in (0, 1))
    traded = all(
        with_[0] > without[0] and with_[1] < without[1] for with_, without in ((threshold, plain), (both, momentum))
    )
    return Measured(100 * (plain[1] - both[1]), 0.0, 1), faster and traded


def subspace_is_best(study: Study) -> tuple[Measured, bool] | None:
    """Figure 8: no random start reaches a lower training error. Our number: how much higher the best one's error is."""
    subspace, random = study.numbers.measured("subspace"), study.numbers.measured("best_random")
    if subspace is None or random is None:
        return None
    return random.minus(subspace).scaled(100), random.mean >= subspace.mean


def closed_forms_are_exact(study: Study) -> tuple[Measured, bool] | None:
    """Section 2.2: Monte Carlo estimates deviate from the closed forms as their standard errors predict.

    In units of these, the mean squared deviation is near 1 and none exceeds 5. Our number is the largest deviation.
    """
    found = [
        [study.numbers.measured(quantity, name) for name in ("largest", "mean_square")]
        for quantity in ("probability", "posterior_mean")
    ]
    known = [(pair[0], pair[1]) for pair in found if pair[0] and pair[1]]
    if len(known) < 2:
        return None
    largest = max((pair[0] for pair in known), key=lambda each: each.mean)
    return largest, all(high.mean <= MOST_SE and 0.5 < square.mean < 1.5 for high, square in known)


def _with_calibration(measure: Measure) -> Measure:
    """A finding with notes on the calibration of the largest capsules: probabilities that are exact for the model need
    not be right about test images.
    """

    def noted(results: Results) -> Finding | None:
        finding = measure(results)
        found = next((each for each in answering(results, "grid") if _calibration_notes(each)), None)
        if finding is None or found is None:
            return finding
        records = [*finding.records, *found.numbers.records]
        return replace(finding, records=records, notes=[*finding.notes, *_calibration_notes(found)])

    return noted


def _calibration_notes(study: Study) -> list[str]:
    notes = []
    for decision in study.numbers.names("errors"):
        size = _sizes(study, decision)[-1]
        ece, loss = (study.numbers.measured("errors", decision, size, name) for name in ("ece", "test_log_loss"))
        if ece and loss:
            label = dataset_label(study.numbers.records)
            notes.append(
                f"calibration error of {decision}, d = {size}, on test images of {label}: {100 * ece.mean:.1f} %, log "
                f"loss {loss.mean:.2f} nats"
            )
    return notes


def likelihood_never_falls(study: Study) -> tuple[Measured, bool] | None:
    """Section 2.3: in no iteration of plain EM did the normalised log-loss rise. Our number is its largest change."""
    rise = study.numbers.measured("largest_rise")
    return (rise, rise.mean <= TABLE_ERROR) if rise else None


MOMENTUM = ", momentum"
"""Suffix of a method's name with the document's own update, that with momentum (equation 27)."""


def _passes(study: Study, method: str) -> dict[str, Measured]:
    """Passes over the data until batch EM's final log-loss, by variant of a method: without momentum, with it."""
    found = {name: study.numbers.measured("reached", name, "log_loss") for name in (method, method + MOMENTUM)}
    return {name: passes for name, passes in found.items() if passes is not None}


def fewer_passes(study: Study) -> tuple[Measured, bool] | None:
    """Section 4: incremental EM reaches batch EM's final log-loss in fewer passes over the data than batch EM, both
    without momentum and with the document's own update, and its final test error is not higher by more than noise than
    that of either. Of incremental EM with and without momentum the faster counts.

    Our number is its passes as a share (percent) of those of the faster batch method.
    """
    ours, batch = _passes(study, "incremental"), _passes(study, "batch")
    if not ours or len(batch) < 2:
        return None
    method, passes = min(ours.items(), key=lambda each: each[1].mean)
    fewest = min(each.mean for each in batch.values())
    error, *theirs = (study.numbers.measured("last", name, "test") for name in (method, *batch))
    known = [each for each in theirs if each]
    if error is None or len(known) < len(theirs) or not fewest:
        return None
    as_good = all(100 * (error.mean - each.mean) <= study.noise(100 * error.mean, 100 * each.mean) for each in known)
    return passes.scaled(100 / fewest), passes.mean < fewest and as_good


def passes_of_each(study: Study) -> list[str]:
    """Passes that each method needs. Incremental EM can be faster than plain batch EM and still slower than the
    document's own update.
    """
    most = study.numbers.number("passes") or 0
    words = {
        "incremental": "incremental EM",
        f"incremental{MOMENTUM}": "incremental EM with momentum",
        "batch": "plain batch EM",
        f"batch{MOMENTUM}": "batch EM with momentum (equation 27)",
    }
    found = {**_passes(study, "incremental"), **_passes(study, "batch")}
    told = [
        f"{words[name]} {f'more than {most:.0f}' if passes.mean > most else f'{passes.mean:.0f}'}"
        for name, passes in found.items()
    ]
    return [f"{dataset_label(study.numbers.records)}, passes to plain batch EM's final log-loss: {', '.join(told)}"]


def penalty_helps(study: Study) -> tuple[Measured, bool] | None:
    """Section 4: the test error is lower with the penalty chosen on validation images than without one, by more than
    its noise. Our number is by how many points.
    """
    with_, without = study.numbers.measured("chosen", "test"), study.numbers.measured("errors", "0", "test")
    if with_ is None or without is None:
        return None
    gain = without.minus(with_).scaled(100)
    return gain, gain.mean > study.noise(100 * with_.mean, 100 * without.mean)


def _million(part: str) -> Measure:
    """Section 3.4: errors after training on a million distorted digits."""

    def measure(results: Results) -> Finding | None:
        for study in answering(results, "distorted"):
            error = study.numbers.measured("distorted", part)
            if error:
                strength = study.numbers.number("distorted", "strength") or 1
                said = [*study.remarks, f"our distortions, strength {strength:g} (paper: infinite MNIST)"]
                records = study.numbers.records
                return Finding(error.scaled(100), dataset_label(records), records, remarks=said)
        return None

    return measure


MEASURES: dict[str, Measure] = {
    "002.d2.digits": _one_error("mnist"),
    "002.d2.fashion": _one_error("fashion_mnist"),
    "002.fig5.d": _all_agree("grid", falls_with_size),
    "002.fig5.arch": _all_agree("grid", more_capsules_err_less),
    "002.fig5.linear": _all_agree("grid", one_number_is_linear),
    "002.fig5.best": _all_agree("grid", best_is_in_the_band),
    "002.1m": _million("test"),
    "002.1m.train": _million("train"),
    "002.fig2": _all_agree("grid", own_rim),
    "002.fig4": _all_agree("grid", prototypes_differ),
    "002.fig6": _all_agree("convergence", momentum_and_thresholds),
    "002.fig8": _all_agree("starts", subspace_is_best),
    "002.exact": _with_calibration(_all_agree("exactness", closed_forms_are_exact)),
    "002.monotone": _all_agree("convergence", likelihood_never_falls),
    "002.online": _all_agree("online", fewer_passes, passes_of_each),
    "002.ridge": _all_agree("ridge", penalty_helps),
}
"""The measure of each claim of this document."""
