"""The studies of capsule regression that were executed, and what those that `evidence` names say of document 002's
claims, in their units: `claims.yaml` has the words of both.

Claims about both of the paper's data sets use the studies on both, and hold if they hold in each. EM from the subspace
start has no seed, so the only noise is that of the test images: differences of up to two binomial standard errors do
not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import Recorded, Results
from pipeline.results.studies import Study, studies_of, study_of

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""The paper's data sets by their role, in its order."""
KINDS = ("grid", "convergence", "starts", "exactness", "online", "ridge", "distorted")
"""Kinds of studies in the order in which they are shown, the paper's own first."""
DECISIONS = ("multiclass", "one-vs-all", "all-vs-all")
BANDS = {"mnist": 3.0, "fashion_mnist": 12.0}
"""Percent: upper ends of the bands that the paper gives for nearest neighbours and forests."""
METHODS = ("incremental", "incremental, momentum", "batch", "batch, momentum")
"""Those that are compared, by their names in results."""


@dataclass(frozen=True)
class RegressionStudy(Study):
    """A study of capsule regression that was executed.

    Attributes:
        role: the data set of the paper that it answers for; empty if it answers no claim.
    """

    role: str = ""

    @property
    def dataset(self) -> Recorded:
        """The settings of its data, as the result recorded them."""
        found: Recorded = self.numbers.settings.datasets[self.settings.dataset]
        return found

    @property
    def remarks(self) -> list[Remark]:
        """In what its data and its settings fall short of the paper's."""
        said = remarks("regression", self.role, {}, self.dataset, tested=self.dataset.test)
        said += remarks("regression", self.kind, self.settings, self.dataset)
        if strength := self.numbers.number("distorted", "strength"):
            words = f"our distortions, strength {strength:g} (paper: infinite MNIST)"
            said.append(Remark(words, "data", untested=True))
        return said

    def mean(self, *keys: str) -> float:
        """The number under nested `keys`. Raises `NotMeasuredError` if it is missing."""
        return self.numbers.needed(*keys).mean

    def errors(self, part: str = "test") -> pd.DataFrame:
        """Errors (percent) of a grid's models: a row for each architecture, a column for each capsule size."""
        cells = {
            decision: {int(size): 100 * measured[part]["mean"] for size, measured in sizes.items()}
            for decision, sizes in self.numbers.at("errors").items()
        }
        return pd.DataFrame(cells).sort_index().T

    def above(self, errors: ArrayLike, others: ArrayLike) -> bool:
        """Whether any error (percent) on the study's test images is above its counterpart by more than noise: two
        standard errors of their difference.
        """
        ours, theirs = np.asarray(errors), np.asarray(others)
        variance = sum(each / 100 * (1 - each / 100) for each in (ours, theirs)) / self.dataset.test
        return bool((ours > theirs + 2 * 100 * np.sqrt(variance)).any())


def executed(results: Results) -> list[RegressionStudy]:
    """All studies, sorted by kind, of each kind those of the paper's data sets first. Raises `ResultError` if a result
    is corrupt, or lacks its settings.
    """

    def place(study: RegressionStudy) -> tuple[int, int]:
        role = study.dataset.source.replace("-", "_")
        return KINDS.index(study.kind), [*SETS, role].index(role)

    return sorted(studies_of(results, "regression", RegressionStudy), key=place)


Answer = tuple[float, bool | None] | tuple[float, bool, str] | None
"""Our number; whether the claim holds, None if it is this number; a note, if any. None if the study has no answer."""


def _measure(kind: str, check: Callable[[RegressionStudy], Answer], roles: Sequence[str] = tuple(SETS)) -> Measure:
    """A claim about some data sets: our number is the first study's, and the claim holds if it holds for all."""

    def measure(results: Results) -> Finding | None:
        answers = {}
        for role in roles:
            named = getattr(results.evidence.regression, kind).get(role)
            if study := study_of(results, "regression", named, RegressionStudy):
                study = replace(study, role=role)
                if answer := check(study):
                    answers[role] = study, answer
        if not answers:
            return None
        studies, found = zip(*answers.values(), strict=True)
        differences = unique(remark for study in studies for remark in study.remarks)
        differences += [Remark(f"without {SETS[role]}", "data") for role in roles if role not in answers]
        verdicts = [holds for _, holds, *_ in found]
        return Finding(
            Measured(found[0][0], 0.0, 1),
            [record for study in studies for record in study.numbers.records],
            holds=None if None in verdicts else all(verdicts),
            remarks=differences,
            notes=[note for _, _, *noted in found for note in noted],
        )

    return measure


def _percent(kind: str, role: str, *keys: str) -> Measure:
    """A claim that is a number: that under nested `keys`, in percent, on one data set of the paper."""
    return _measure(kind, lambda study: (100 * study.mean(*keys), None), [role])


def falls_with_size(study: RegressionStudy) -> Answer:
    """Figure 5, with growing size; the smallest gain of an architecture, in points."""
    errors = study.errors().to_numpy()
    gain = float((errors[:, 0] - errors[:, -1]).min())
    return gain, gain > 0 and not study.above(errors[:, 1:], errors[:, :-1])


def more_capsules_err_less(study: RegressionStudy) -> Answer:
    """Figure 5, at equal size; points between multiclass and all-vs-all, the mean over sizes."""
    found = study.errors()
    if not set(DECISIONS) <= set(found.index):
        return None
    errors = found.loc[[*DECISIONS]].to_numpy()
    return float((errors[0] - errors[-1]).mean()), not study.above(errors[1:], errors[:-1])


def one_number_is_linear(study: RegressionStudy) -> Answer:
    """Figure 5, capsules of one number; points above logistic regression."""
    linear = study.mean("baseline", "logistic-regression", "test")
    gap = 100 * study.mean("errors", "multiclass", "1", "test") - 100 * linear
    return gap, abs(gap) <= 1.5


def best_is_in_the_band(study: RegressionStudy) -> Answer:
    """Section 3.4: the test error (percent) of the model with the lowest validation error."""
    tested, held = (study.errors(part).to_numpy() for part in ("test", "validation"))
    error = float(tested.flat[held.argmin()])
    return error, error <= BANDS[study.role]


def own_rim(study: RegressionStudy) -> Answer:
    """Figures 2-3: the mean radius of an image in its own class's capsule minus that in the others."""
    return study.mean("rim", "own") - study.mean("rim", "others"), study.mean("rim", "largest") == 1.0


def prototypes_differ(study: RegressionStudy) -> Answer:
    """Figure 4: percent of a capsule's prototypes that are different images."""
    variety = study.mean("prototypes")
    return 100 * variety, variety > 0.5


def momentum_and_thresholds(study: RegressionStudy) -> Answer:
    """Figures 6-7: momentum lowers both losses, a threshold only the error, each with and without the other; points of
    error between the plain update and both.
    """
    loss, error = (
        {variant: study.mean("last", variant, key) for variant in ("plain", "momentum", "threshold", "both")}
        for key in ("log_loss", "train")
    )
    faster = all(each["momentum"] < each["plain"] and each["both"] < each["threshold"] for each in (loss, error))
    likely = loss["threshold"] > loss["plain"] and loss["both"] > loss["momentum"]
    fewer = error["threshold"] < error["plain"] and error["both"] < error["momentum"]
    return 100 * (error["plain"] - error["both"]), faster and likely and fewer


def subspace_is_best(study: RegressionStudy) -> Answer:
    """Figure 8: points by which the training error of the best random start is higher."""
    lead = study.mean("best_random") - study.mean("subspace")
    return 100 * lead, lead >= 0


def closed_forms_are_exact(study: RegressionStudy) -> Answer:
    """Section 2.2: the largest deviation of Monte Carlo estimates, in standard errors."""
    quantities = ("probability", "posterior_mean")
    largest = max(study.mean(quantity, "largest") for quantity in quantities)
    alike = all(0.5 < study.mean(quantity, "mean_square") < 1.5 for quantity in quantities)
    return largest, largest <= 5 and alike


def likelihood_never_falls(study: RegressionStudy) -> Answer:
    """Section 2.3: the largest change of plain EM's log-loss, which its interpolation table rounds."""
    rise = study.mean("largest_rise")
    return rise, rise <= 1e-8


def fewer_passes(study: RegressionStudy) -> Answer:
    """Section 4: passes of incremental EM, with or without momentum, to batch EM's final log-loss, as a share (percent)
    of those of batch EM, with or without momentum (equation 27); of both the faster method counts.

    The note has all: incremental EM can be faster than plain batch EM and still slower than the document's own update.
    """
    reached = {name: study.mean("reached", name, "log_loss") for name in METHODS}
    *incremental, plain, momentum = METHODS
    method = min(incremental, key=lambda name: reached[name])
    fewest = min(reached[plain], reached[momentum])
    error, *theirs = (100 * study.mean("last", name, "test") for name in (method, plain, momentum))
    holds = reached[method] < fewest and not study.above(error, theirs)
    most, label = study.numbers.at("passes"), dataset_label(study.numbers.records)
    told = [
        f"{name.replace(', ', ' with ')} {f'more than {most}' if passes > most else f'{passes:.0f}'}"
        for name, passes in reached.items()
    ]
    note = f"{label}, passes to plain batch EM's final log-loss: {', '.join(told)}"
    return reached[method] * (100 / fewest), holds, note


def penalty_helps(study: RegressionStudy) -> Answer:
    """Section 4: points of test error gained by the penalty that validation images choose."""
    with_, without = 100 * study.mean("chosen", "test"), 100 * study.mean("errors", "0", "test")
    label, penalty = dataset_label(study.numbers.records), study.mean("chosen", "penalty")
    note = f"{label}: {without:.2f} % without, {with_:.2f} % with a penalty of {penalty:g}"
    return without - with_, study.above(without, with_), note


MEASURES: dict[str, Measure] = {
    "002.d2.digits": _percent("grid", "mnist", "errors", "multiclass", "2", "test"),
    "002.d2.fashion": _percent("grid", "fashion_mnist", "errors", "multiclass", "2", "test"),
    "002.fig5.d": _measure("grid", falls_with_size),
    "002.fig5.arch": _measure("grid", more_capsules_err_less),
    "002.fig5.linear": _measure("grid", one_number_is_linear),
    "002.fig5.best": _measure("grid", best_is_in_the_band),
    "002.1m": _percent("distorted", "mnist", "distorted", "test"),
    "002.1m.train": _percent("distorted", "mnist", "distorted", "train"),
    "002.fig2": _measure("grid", own_rim),
    "002.fig4": _measure("grid", prototypes_differ),
    "002.fig6": _measure("convergence", momentum_and_thresholds),
    "002.fig8": _measure("starts", subspace_is_best),
    "002.exact": _measure("exactness", closed_forms_are_exact),
    "002.monotone": _measure("convergence", likelihood_never_falls),
    "002.online": _measure("online", fewer_passes),
    "002.ridge": _measure("ridge", penalty_helps),
}
