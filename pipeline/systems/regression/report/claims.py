"""The checks of document 002's claims, on the studies that the profile's `evidence` names.

Claims about both of the paper's data sets use the studies on both, and hold if they hold in each. EM from the subspace
start has no seed, so the only noise is that of the test images: differences of up to two binomial standard errors do
not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import Results
from pipeline.systems.regression.report.studies import SETS, RegressionStudy, answering

DECISIONS = ("multiclass", "one-vs-all", "all-vs-all")
BANDS = {"mnist": 3.0, "fashion_mnist": 12.0}
"""Percent: upper ends of the bands that the paper gives for nearest neighbours and forests."""
LINEAR = 1.5
"""Largest difference (points) between capsules of one number and logistic regression."""
MOST_SE = 5.0
TABLE_ERROR = 1e-8
"""How much the normalised log-loss may rise because its interpolation table is rounded."""


Answer = tuple[float, bool | None] | None
"""Our number, and whether the claim holds (None: the verdict rules judge it); None if the study does not answer."""


def _measure(
    kind: str, check: Callable[[RegressionStudy], Answer], notes: Callable[[RegressionStudy], list[str]] | None = None
) -> Measure:
    """A claim about every data set: our number is the first study's, and the claim holds if it holds for all. A claim
    that is a number is about the first alone.

    Args:
        notes: on each study that is used.
    """

    def measure(results: Results) -> Finding | None:
        answers = [(study, answer) for study in answering(results, kind) if (answer := check(study))]
        if not answers:
            return None
        value, holds = answers[0][1]
        used = [study for study, _ in (answers[:1] if holds is None else answers)]
        records = [record for study in used for record in study.numbers.records]
        remarks = unique(remark for study in used for remark in study.remarks)
        if holds is not None:
            holds = all(each for _, (_, each) in answers)
            remarks += [
                Remark(f"without {label}", "data")
                for role, label in SETS.items()
                if role not in {study.role for study in used}
            ]
        told = [note for study in used for note in notes(study)] if notes else []
        return Finding(Measured(value, 0.0, 1), records, holds=holds, remarks=remarks, notes=told)

    return measure


def error_of_two(role: str) -> Callable[[RegressionStudy], Answer]:
    """Section 3.2: the test error (percent) of the multiclass model with capsules of two numbers, on one data set."""
    return lambda study: (100 * study.mean("errors", "multiclass", "2", "test"), None) if study.role == role else None


def falls_with_size(study: RegressionStudy) -> Answer:
    """Figure 5: with growing size no test error rises by more than its noise, and the last is below the first.

    Our number is the smallest gain of an architecture, in points.
    """
    errors = study.errors().to_numpy()
    gain = float((errors[:, 0] - errors[:, -1]).min())
    return gain, gain > 0 and not study.above(errors[:, 1:], errors[:, :-1])


def more_capsules_err_less(study: RegressionStudy) -> Answer:
    """Figure 5: at equal size, within noise, all-vs-all <= one-vs-all <= multiclass test error.

    Our number is how much lower the error of all-vs-all is than that of multiclass, in points, on average over sizes.
    """
    found = study.errors()
    if not set(DECISIONS) <= set(found.index):
        return None
    errors = found.loc[[*DECISIONS]].to_numpy()
    return float((errors[0] - errors[-1]).mean()), not study.above(errors[1:], errors[:-1])


def one_number_is_linear(study: RegressionStudy) -> Answer:
    """Figure 5: multiclass with capsules of one number has logistic regression's error, within 1.5 points."""
    ours, linear = (
        study.mean("errors", "multiclass", "1", "test"),
        study.mean("baseline", "logistic-regression", "test"),
    )
    gap = 100 * ours - 100 * linear
    return gap, abs(gap) <= LINEAR


def best_is_in_the_band(study: RegressionStudy) -> Answer:
    """Section 3.4: the test error of the model with the lowest validation error lies in the band (or below it)."""
    tested, held = (study.errors(part).to_numpy() for part in ("test", "validation"))
    error = float(tested.flat[held.argmin()])
    return error, error <= BANDS[study.role]


def own_rim(study: RegressionStudy) -> Answer:
    """Figures 2-3: in every capsule the images of its own class have the largest mean radius.

    Our number is the mean radius of an image in its own class's capsule minus that in the others.
    """
    return study.mean("rim", "own") - study.mean("rim", "others"), study.mean("rim", "largest") == 1.0


def prototypes_differ(study: RegressionStudy) -> Answer:
    """Figure 4: the elements of a capsule have different prototypes: most of them are different images (percent)."""
    variety = study.mean("prototypes")
    return 100 * variety, variety > 0.5


def momentum_and_thresholds(study: RegressionStudy) -> Answer:
    """Figures 6-7: after all iterations momentum has lowered both losses, with and without a threshold; the threshold
    has raised the log-loss and lowered the error, with and without momentum.

    Our number is the error of the plain update minus that with momentum and threshold, in points.
    """
    plain, momentum, threshold, both = (
        (study.mean("last", variant, "log_loss"), study.mean("last", variant, "train"))
        for variant in ("plain", "momentum", "threshold", "both")
    )
    faster = all(fast[i] < slow[i] for fast, slow in ((momentum, plain), (both, threshold)) for i in (0, 1))
    traded = all(
        with_[0] > without[0] and with_[1] < without[1] for with_, without in ((threshold, plain), (both, momentum))
    )
    return 100 * (plain[1] - both[1]), faster and traded


def subspace_is_best(study: RegressionStudy) -> Answer:
    """Figure 8: no random start reaches a lower training error. Our number: how much higher the best one's error is."""
    lead = study.mean("best_random") - study.mean("subspace")
    return 100 * lead, lead >= 0


def closed_forms_are_exact(study: RegressionStudy) -> Answer:
    """Section 2.2: Monte Carlo estimates deviate from the closed forms as their standard errors predict.

    In units of these, the mean squared deviation is near 1 and none exceeds 5. Our number is the largest deviation.
    """
    quantities = ("probability", "posterior_mean")
    largest = max(study.mean(quantity, "largest") for quantity in quantities)
    alike = all(0.5 < study.mean(quantity, "mean_square") < 1.5 for quantity in quantities)
    return largest, largest <= MOST_SE and alike


def exactness(results: Results) -> Finding | None:
    """`closed_forms_are_exact`, with notes on the calibration of the largest capsules: probabilities that are exact for
    the model need not be right about test images.
    """
    finding = _measure("exactness", closed_forms_are_exact)(results)
    grid = next(iter(answering(results, "grid")), None)
    if finding is None or grid is None:
        return finding
    records, notes = grid.numbers.records, []
    for decision, sizes in grid.numbers.at("errors").items():
        size = max(sizes, key=int)
        notes.append(
            f"calibration error of {decision}, d = {size}, on test images of {dataset_label(records)}: "
            f"{100 * sizes[size]['ece']['mean']:.1f} %, log loss {sizes[size]['test_log_loss']['mean']:.2f} nats"
        )
    return replace(finding, records=[*finding.records, *records], notes=notes)


def likelihood_never_falls(study: RegressionStudy) -> Answer:
    """Section 2.3: in no iteration of plain EM did the normalised log-loss rise. Our number is its largest change."""
    rise = study.mean("largest_rise")
    return rise, rise <= TABLE_ERROR


METHODS = {
    "incremental": "incremental EM",
    "incremental, momentum": "incremental EM with momentum",
    "batch": "plain batch EM",
    "batch, momentum": "batch EM with momentum (equation 27)",
}
"""Methods that are compared, in words; those with momentum have the document's own update."""


def fewer_passes(study: RegressionStudy) -> Answer:
    """Section 4: incremental EM reaches batch EM's final log-loss in fewer passes over the data than batch EM, both
    without momentum and with the document's own update, and its final test error is not higher by more than noise than
    that of either. Of incremental EM with and without momentum the faster counts.

    Our number is its passes as a share (percent) of those of the faster batch method.
    """
    *incremental, plain, momentum = METHODS
    passes = {name: study.mean("reached", name, "log_loss") for name in METHODS}
    method = min(incremental, key=lambda name: passes[name])
    fewest = min(passes[plain], passes[momentum])
    error, *theirs = (100 * study.mean("last", name, "test") for name in (method, plain, momentum))
    return passes[method] * (100 / fewest), passes[method] < fewest and not study.above(error, theirs)


def passes_of_each(study: RegressionStudy) -> list[str]:
    """Passes that each method needs. Incremental EM can be faster than plain batch EM and still slower than the
    document's own update.
    """
    most = study.numbers.at("passes")
    told = []
    for name, words in METHODS.items():
        passes = study.mean("reached", name, "log_loss")
        told.append(f"{words} {f'more than {most}' if passes > most else f'{passes:.0f}'}")
    return [f"{dataset_label(study.numbers.records)}, passes to plain batch EM's final log-loss: {', '.join(told)}"]


def penalty_helps(study: RegressionStudy) -> Answer:
    """Section 4: the test error is lower with the penalty chosen on validation images than without one, by more than
    its noise. Our number is by how many points.
    """
    with_, without = study.mean("chosen", "test"), study.mean("errors", "0", "test")
    return 100 * (without - with_), study.above(100 * without, 100 * with_)


def million(part: str) -> Callable[[RegressionStudy], Answer]:
    """Section 3.4: errors (percent) after training on a million distorted digits."""
    return lambda study: (100 * study.mean("distorted", part), None)


MEASURES: dict[str, Measure] = {
    "002.d2.digits": _measure("grid", error_of_two("mnist")),
    "002.d2.fashion": _measure("grid", error_of_two("fashion_mnist")),
    "002.fig5.d": _measure("grid", falls_with_size),
    "002.fig5.arch": _measure("grid", more_capsules_err_less),
    "002.fig5.linear": _measure("grid", one_number_is_linear),
    "002.fig5.best": _measure("grid", best_is_in_the_band),
    "002.1m": _measure("distorted", million("test")),
    "002.1m.train": _measure("distorted", million("train")),
    "002.fig2": _measure("grid", own_rim),
    "002.fig4": _measure("grid", prototypes_differ),
    "002.fig6": _measure("convergence", momentum_and_thresholds),
    "002.fig8": _measure("starts", subspace_is_best),
    "002.exact": exactness,
    "002.monotone": _measure("convergence", likelihood_never_falls),
    "002.online": _measure("online", fewer_passes, passes_of_each),
    "002.ridge": _measure("ridge", penalty_helps),
}
