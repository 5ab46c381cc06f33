"""Measures the claims of document 002 (the paper) on executed studies of capsule regression.

`claims.yaml` gives the text and unit of each claim, and the paper's number or the condition under which the claim
holds. For each kind of study, `evidence` in `params.yaml` names a study of one or both data sets of the paper. A claim
about both holds if it holds in both studies. If one study is missing, the other decides, with a remark. Batch EM uses
no random numbers if its first weights are computed from the data (the subspace start). Then only the sample of test
images causes noise: `above` compares test errors with a margin of two standard errors. Training errors have no margin.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure, Remark
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label, unique
from pipeline.results.reading import NotMeasuredError, Recorded, Results, Study, studies_of, study_of

SETS = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}
"""The paper's data sets, in the paper's order. Keys are roles in `evidence`, and values are names."""
KINDS = ("grid", "convergence", "starts", "exactness", "online", "ridge", "distorted")
"""Kinds of studies, in the order in which they are shown."""
DECISIONS = ("multiclass", "one-vs-all", "all-vs-all")
BANDS = {"mnist": 3.0, "fashion_mnist": 12.0}
"""For each role, the largest test error (percent) that the paper gives for nearest neighbours and random forests."""


@dataclass(frozen=True)
class RegressionStudy(Study):
    """A study of capsule regression that answers claims.

    Attributes:
        role: the data set whose claims the study answers, as a key of `SETS`.
    """

    role: str

    @property
    def dataset(self) -> Recorded:
        """The settings of the study's data set, as recorded in the result."""
        found: Recorded = self.numbers.settings.datasets[self.settings.dataset]
        return found

    @property
    def remarks(self) -> list[Remark]:
        """How the study's data and settings differ from the paper's."""
        said = remarks("regression", self.role, {}, self.dataset, tested=self.dataset.test)
        said += remarks("regression", self.kind, self.settings, self.dataset)
        if strength := self.numbers.number("distorted", "strength"):
            said.append(Remark(f"our distortions, strength {strength:g} (paper: infinite MNIST)", "data"))
        return said

    def mean(self, *keys: str) -> float:
        """The mean of the study's number under nested `keys`. Raises `NotMeasuredError` if this number is missing."""
        return self.numbers.needed(*keys).mean

    def models(self) -> tuple[list[str], list[str]]:
        """Two lists for a study of kind "grid": its architectures, and its capsule sizes in increasing order."""
        decisions = self.numbers.names("errors")
        return decisions, sorted(self.numbers.names("errors", decisions[0]), key=int)

    def percent(self, name: str, decisions: Iterable[str], sizes: Sequence[str]) -> NDArray[np.float64]:
        """The numbers called `name` of a study of kind "grid", in percent. Rows: architectures. Columns: sizes."""
        return 100 * np.array([[self.mean("errors", each, size, name) for size in sizes] for each in decisions])

    def above(self, errors: ArrayLike, others: ArrayLike, apart: ArrayLike) -> bool:
        """Whether any of `errors` is above its counterpart in `others` by more than two standard errors of the
        difference. Both have test errors of models, in percent, on the same images. For each pair of models, `apart`
        has the percentage of these images that exactly one of the two models misclassifies.
        """
        ours, theirs = np.asarray(errors) / 100, np.asarray(others) / 100
        variance = np.asarray(apart) / 100 - (ours - theirs) ** 2
        return bool((ours > theirs + SIGNIFICANT_SES * np.sqrt(variance / self.dataset.test)).any())


def executed(results: Results) -> list[Study]:
    """All executed studies of capsule regression, sorted by kind. Within a kind, the paper's data sets come first.
    Raises `ResultError` if a result is corrupt, or lacks its settings.
    """

    def place(study: Study) -> tuple[int, int]:
        role = study.numbers.settings.datasets[study.settings.dataset].source.replace("-", "_")
        return KINDS.index(study.kind), [*SETS, role].index(role)

    return sorted(studies_of(results, "regression"), key=place)


Answer = tuple[float, bool | None] | tuple[float, bool, str]
"""Our number, whether the claim holds (None: the scorecard decides), and perhaps a note."""


def _measure(
    results: Results, kind: str, check: Callable[[RegressionStudy], Answer], roles: Sequence[str] = tuple(SETS)
) -> Finding:
    """Apply `check` to the study of kind `kind` that `evidence` names for each of `roles`, and combine the answers in a
    finding. Its number is that of the first study. The claim holds if it holds in all studies. Raises
    `NotMeasuredError` if none answers.
    """
    answers, missing = {}, []
    for role in roles:
        try:
            study = study_of(results, "regression", getattr(results.evidence.regression, kind).get(role))
        except NotMeasuredError as error:
            missing.append(f"{SETS[role]}: {error}")
            continue
        of_role = RegressionStudy(**vars(study), role=role)
        answers[role] = of_role, check(of_role)
    if not answers:
        raise NotMeasuredError("; ".join(missing))
    studies, found = zip(*answers.values(), strict=True)
    differences = unique(remark for study in studies for remark in study.remarks)
    differences += [Remark(f"without {SETS[role]}", "data") for role in roles if role not in answers]
    verdicts = [holds for _, holds, *_ in found]
    both = "; ".join(f"{SETS[study.role]}: {number:.4g}" for study, (number, *_) in answers.values())
    return Finding(
        Measured(found[0][0], 0.0, 1),
        [record for study in studies for record in study.numbers.records],
        holds=None if None in verdicts else all(verdicts),
        remarks=differences,
        notes=[both] * (len(found) > 1) + [note for _, _, *noted in found for note in noted],
    )


def _percent(kind: str, role: str, *keys: str) -> Measure:
    """A function that measures a claim: it takes the number under `keys`, in percent, from the study for `role`."""
    return partial(_measure, kind=kind, check=lambda study: (100 * study.mean(*keys), None), roles=[role])


def falls_with_size(study: RegressionStudy) -> Answer:
    """Figure 5: test error (percent) of the smallest capsules minus that of the largest; minimum over architectures."""
    decisions, sizes = study.models()
    errors, apart = study.percent("test", decisions, sizes), study.percent("apart_smaller", decisions, sizes[1:])
    gain = float((errors[:, 0] - errors[:, -1]).min())
    return gain, gain > 0 and not study.above(errors[:, 1:], errors[:, :-1], apart)


def more_capsules_err_less(study: RegressionStudy) -> Answer:
    """Figure 5: test error of multiclass minus that of all-vs-all, in percentage points; mean over capsule sizes."""
    decisions, sizes = study.models()
    if not set(DECISIONS) <= set(decisions):
        raise NotMeasuredError(f"{study.name} does not have all architectures")
    errors, apart = study.percent("test", DECISIONS, sizes), study.percent("apart_fewer", DECISIONS[1:], sizes)
    return float((errors[0] - errors[-1]).mean()), not study.above(errors[1:], errors[:-1], apart)


def one_number_is_linear(study: RegressionStudy) -> Answer:
    """Figure 5: test error of capsules of size 1 minus that of logistic regression, in percentage points."""
    linear = study.mean("baseline", "logistic-regression", "test")
    gap = 100 * study.mean("errors", "multiclass", "1", "test") - 100 * linear
    return gap, abs(gap) <= 1.5


def best_is_in_the_band(study: RegressionStudy) -> Answer:
    """Section 3.4: the test error (percent) of the model with the lowest validation error."""
    tested, held = (study.percent(part, *study.models()) for part in ("test", "validation"))
    error = float(tested.flat[held.argmin()])
    return error, error <= BANDS[study.role]


def own_rim(study: RegressionStudy) -> Answer:
    """Figures 2-3: mean length of squashed vectors in the capsule of the image's class minus that in other capsules."""
    return study.mean("rim", "own") - study.mean("rim", "others"), study.mean("rim", "largest") == 1.0


def prototypes_differ(study: RegressionStudy) -> Answer:
    """Figure 4: percentage of distinct images among the prototypes of a capsule; mean over capsules."""
    variety = study.mean("prototypes")
    return 100 * variety, variety > 0.5


def momentum_and_thresholds(study: RegressionStudy) -> Answer:
    """Figures 6-7: training error (percent) of plain EM minus that with momentum and threshold. The claim holds if
    momentum lowers log-loss and error (with and without a threshold), and a threshold lowers the error and raises the
    log-loss (with and without momentum).
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
    """Figure 8: training error from the best random start minus that from the subspace start, in percentage points."""
    lead = study.mean("best_random") - study.mean("subspace")
    return 100 * lead, lead >= 0


def closed_forms_are_exact(study: RegressionStudy) -> Answer:
    """Section 2.2: the largest difference between a closed form and its Monte Carlo estimate, in standard errors."""
    quantities = ("probability", "posterior_mean")
    largest = max(study.mean(quantity, "largest") for quantity in quantities)
    alike = all(0.5 < study.mean(quantity, "mean_square") < 1.5 for quantity in quantities)
    return largest, largest <= 5 and alike


def likelihood_never_falls(study: RegressionStudy) -> Answer:
    """Section 2.3: the largest rise of plain EM's log-loss in an iteration. A rise up to 1e-8 counts as rounding."""
    rise = study.mean("largest_rise")
    return rise, rise <= 1e-8


def fewer_passes(study: RegressionStudy) -> Answer:
    """Section 4: passes over the data that incremental EM needs, in percent of the passes that batch EM needs. Passes
    are counted until the log-loss is as low as the final log-loss of batch EM without momentum. Each method runs with
    and without momentum (equation 27), and the faster variant counts. The note has the passes of all four variants:
    incremental EM may be faster than batch EM without momentum, but slower than batch EM with momentum.
    """
    names = ("incremental", "incremental, momentum", "batch", "batch, momentum")
    *incremental, plain, momentum = names
    reached = {name: study.mean("reached", name, "log_loss") for name in names}
    method = min(incremental, key=lambda name: reached[name])
    fewest = min(reached[plain], reached[momentum])
    error, *theirs = (100 * study.mean("last", name, "test") for name in (method, plain, momentum))
    apart = [100 * study.mean("disagreement", method, name) for name in (plain, momentum)]
    holds = reached[method] < fewest and not study.above(error, theirs, apart)
    most, label = study.numbers.at("passes"), dataset_label(study.numbers.records)
    told = [
        f"{name.replace(', ', ' with ')} {f'more than {most}' if passes > most else f'{passes:.0f}'}"
        for name, passes in reached.items()
    ]
    note = f"{label}, passes to plain batch EM's final log-loss: {', '.join(told)}"
    return reached[method] * (100 / fewest), holds, note


def penalty_helps(study: RegressionStudy) -> Answer:
    """Section 4: test error (percent) without a penalty minus that with the penalty that validation images choose."""
    with_, without = 100 * study.mean("chosen", "test"), 100 * study.mean("errors", "0", "test")
    label, penalty = dataset_label(study.numbers.records), study.mean("chosen", "penalty")
    apart = 100 * study.mean("chosen", "disagreement")
    note = f"{label}: {without:.2f} % without, {with_:.2f} % with a penalty of {penalty:g}"
    note += f"; exactly one of the two models errs on {apart:.2f} % of the images"
    return without - with_, study.above(without, with_, apart), note


MEASURES: dict[str, Measure] = {
    "002.d2.digits": _percent("grid", "mnist", "errors", "multiclass", "2", "test"),
    "002.d2.fashion": _percent("grid", "fashion_mnist", "errors", "multiclass", "2", "test"),
    "002.fig5.d": partial(_measure, kind="grid", check=falls_with_size),
    "002.fig5.arch": partial(_measure, kind="grid", check=more_capsules_err_less),
    "002.fig5.linear": partial(_measure, kind="grid", check=one_number_is_linear),
    "002.fig5.best": partial(_measure, kind="grid", check=best_is_in_the_band),
    "002.1m": _percent("distorted", "mnist", "distorted", "test"),
    "002.1m.train": _percent("distorted", "mnist", "distorted", "train"),
    "002.fig2": partial(_measure, kind="grid", check=own_rim),
    "002.fig4": partial(_measure, kind="grid", check=prototypes_differ),
    "002.fig6": partial(_measure, kind="convergence", check=momentum_and_thresholds),
    "002.fig8": partial(_measure, kind="starts", check=subspace_is_best),
    "002.exact": partial(_measure, kind="exactness", check=closed_forms_are_exact),
    "002.monotone": partial(_measure, kind="convergence", check=likelihood_never_falls),
    "002.online": partial(_measure, kind="online", check=fewer_passes),
    "002.ridge": partial(_measure, kind="ridge", check=penalty_helps),
}
