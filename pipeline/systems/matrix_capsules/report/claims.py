"""How the claims of document 004 are answered; errors are in percent.

`runs` says what stands for which row and what is preferred, `paper` in what it differs from the paper's; claims about
attacks are in `attack_claims`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pipeline.results.claims import load_claims
from pipeline.results.findings import Finding, Measure
from pipeline.results.reading import SIGNIFICANT_SES, Measured, Numbers, Results, dataset_label
from pipeline.results.status import FAMILIAR_SHARE
from pipeline.systems.matrix_capsules.report.attack_claims import MEASURES as OF_ATTACKS
from pipeline.systems.matrix_capsules.report.paper import (
    PAPER_SIZES,
    SMALL_SIZES,
    remarks_on_capsules,
    remarks_on_cnn,
    remarks_on_condition,
    remarks_on_data,
    stands_in,
)
from pipeline.systems.matrix_capsules.report.runs import (
    Trial,
    ablations,
    by_preference,
    first_tested,
    learned_by,
    records_of,
    runs,
    stands_for,
    trials,
    unchanged,
    viewpoint_studies,
)

TABLE_1: dict[str, dict[str, object]] = {
    "004.t1.r1": {"iterations": 1},
    "004.t1.r2": {"iterations": 2},
    "004.t1.r3": {},
    "004.t1.r5": {"iterations": 5},
    "004.t1.vec": {"pose": "vector"},
    "004.t1.nocoord": {"coordinate_addition": False},
    "004.t1.vecnocoord": {"pose": "vector", "coordinate_addition": False},
    "004.t1.margin": {"loss": "margin"},
    "004.t1.xent": {"loss": "cross-entropy"},
    "004.mixing": {"activation": "mixing"},
}
"""By claim, what its row changes in the paper's best model."""
CNN_CLAIM = "004.t1.cnn"
VIEWPOINTS = {
    "004.t2.az.caps": ("azimuth", "capsules"),
    "004.t2.az.cnn": ("azimuth", "cnn"),
    "004.t2.el.caps": ("elevation", "capsules"),
    "004.t2.el.cnn": ("elevation", "cnn"),
}
"""By claim of Table 2, the axis and the network."""
PAPER_FAMILIAR = {"azimuth": 3.7, "elevation": 4.3}
"""Percent: error on familiar viewpoints at which the paper compares its networks."""
PAPER_NOVEL_RATIO = {"azimuth": 13.5 / 20, "elevation": 12.3 / 17.8}
"""Error of capsules in parts of the convolutional network's, both on novel viewpoints."""
NETWORKS = {"capsules": "capsules", "cnn": "CNN"}
MNIST, CIFAR = (("mnist", "digits"), "MNIST"), (("cifar10",), "CIFAR-10")
"""Sources that a claim may be answered from, the paper's first, and what the paper calls its own."""


def in_percent(error: Measured) -> str:
    """An error (a share) in words, such as "3.1 %"."""
    return f"{100 * error.mean:.1f} %"


def conditions_by_run(results: Results) -> dict[str, list[Trial]]:
    """The conditions of executed ablations by the run that they change, in the order of Table 1; those that it does not
    have last. A name that several ablations have is preceded by the ablation's.
    """
    rows = list(TABLE_1)

    def place(trial: Trial) -> int:
        row = stands_for(trial, TABLE_1)
        return rows.index(row) if row else len(rows)

    found: dict[str, list[Trial]] = {}
    for trial in sorted(ablations(results), key=place):
        found.setdefault(trial.base, []).append(trial)
    for base, of_run in found.items():
        names = Counter(trial.name for trial in of_run)
        found[base] = [
            trial._replace(name=f"{trial.item}: {trial.name}") if names[trial.name] > 1 else trial for trial in of_run
        ]
    return found


def paper_values() -> dict[str, float | None]:
    """The paper's figures by claim."""
    return {claim.id: claim.value for claim in load_claims()}


def paper_error(trial: Trial, values: Mapping[str, float | None]) -> float | None:
    """The paper's error (percent) of the row that a network stands for; None where it stands for none, or its data do
    not stand for the paper's.

    Args:
        values: as `paper_values`.
    """
    row = CNN_CLAIM if trial.run.variant == "cnn" else stands_for(trial, TABLE_1)
    return values[row] if row and stands_in(trial.dataset) else None


def _error(changes: Mapping[str, object], sizes: Mapping[str, object] | None = None, crops: bool = False) -> Measure:
    """Test error of the paper's best model with some changes.

    Args:
        sizes: only of networks of these; of any, those of the paper's first, where None.
        crops: by activations averaged over crops, not from the middle.
    """
    of_these = sizes is not None
    wanted = PAPER_SIZES if sizes is None else sizes

    def measure(results: Results) -> Finding | None:
        candidates = trials(results, changes, wanted, of_these_sizes=of_these)
        trial = first_tested(candidates, "crops" if crops else "centre")
        return _answer(results, trial, wanted, crops) if trial else None

    return measure


def _answer(results: Results, trial: Trial, sizes: Mapping[str, object], crops: bool) -> Finding | None:
    numbers = trial.numbers
    centre, voted = numbers.measured("test", "centre"), numbers.measured("test", "crops")
    error = voted if crops else centre
    if error is None or centre is None:
        return None
    if crops:
        notes = [f"from the middle alone {in_percent(centre)}"]
    else:
        notes = [f"by several crops {in_percent(voted)}"] if voted else []
    beside = first_tested(unchanged(results, trial))
    if beside and (of_beside := beside.numbers.measured("test", "centre")):
        order = _opposite(trial, beside, centre.mean - of_beside.mean)
        notes.append(f"the unchanged network, trained alike: {in_percent(of_beside)}{order}")
    remarks = remarks_on_data(trial.dataset) + remarks_on_capsules(trial.run, trial.dataset, sizes)
    return Finding(
        error.scaled(100), dataset_label(numbers.records), records_of(results, trial), remarks=remarks, notes=notes,
        learned=learned_by(results, trial),
    )  # fmt: skip


def _opposite(trial: Trial, beside: Trial, rise: float) -> str:
    """Where a change raises our error and lowers the paper's, or the reverse: words that say so; else empty.

    Args:
        beside: the same without the change.
        rise: of our error by the change.
    """
    values, rows = paper_values(), [stands_for(each, TABLE_1) for each in (trial, beside)]
    changed, kept = (values[row] if row else None for row in rows)
    if changed is None or kept is None or rise * (changed - kept) >= 0:
        return ""
    return f", the opposite of the paper's order ({changed:g} % with the change, {kept:g} % without)"


def _elsewhere(sources: Sequence[str], label: str, sizes: Mapping[str, object], crop: int | None) -> Measure:
    """Test error of the paper's best model on another data set."""

    def measure(results: Results) -> Finding | None:
        trial = first_tested(trials(results, {}, sizes, sources=sources))
        error = trial.numbers.measured("test", "centre") if trial else None
        if trial is None or error is None:
            return None
        voted, records = trial.numbers.measured("test", "crops"), records_of(results, trial)
        remarks = remarks_on_data(trial.dataset, sources[0], label)
        remarks += remarks_on_capsules(trial.run, trial.dataset, sizes, crop)
        notes = [f"by several crops {in_percent(voted)}"] if voted else []
        known = learned_by(results, trial)
        return Finding(error.scaled(100), dataset_label(records), records, remarks=remarks, notes=notes, learned=known)

    return measure


def error_of_cnn(results: Results) -> Finding | None:
    """Table 1: test error of the convolutional network."""
    trial = first_tested(by_preference(trial for trial in runs(results, "evaluate", "cnn") if stands_in(trial.dataset)))
    error = trial.numbers.measured("test", "centre") if trial else None
    if trial is None or error is None:
        return None
    voted, records = trial.numbers.measured("test", "crops"), records_of(results, trial)
    notes = [f"{trial.run.training.epochs} epochs", *([f"by several crops {in_percent(voted)}"] if voted else [])]
    remarks = remarks_on_data(trial.dataset) + remarks_on_cnn(trial.run)
    known = learned_by(results, trial)
    return Finding(error.scaled(100), dataset_label(records), records, remarks=remarks, notes=notes, learned=known)


def _novel(axis: str, network: str) -> Measure:
    """Table 2: error on novel viewpoints where both networks are alike on familiar ones.

    There is no answer where they are not: where their errors on familiar viewpoints differ by more than two standard
    errors.
    """

    def measure(results: Results) -> Finding | None:
        for study in viewpoint_studies(results):
            numbers = study.numbers
            novel = numbers.measured("matched", network, "novel") if study.settings.axis == axis else None
            if novel is None or not _alike(numbers):
                continue
            run = study.capsules if network == "capsules" else study.cnn
            if network == "capsules":
                own = remarks_on_capsules(run, study.dataset, share=FAMILIAR_SHARE) + remarks_on_condition(run)
            else:
                own = remarks_on_cnn(run)
            remarks = remarks_on_data(study.dataset) + own
            notes = _matching(numbers, axis, network, run.training.epochs)
            label = dataset_label(numbers.records)
            return Finding(novel.scaled(100), label, numbers.records, remarks=remarks, notes=notes)
        return None

    return measure


def _alike(numbers: Numbers) -> bool:
    """Whether the errors of both networks on familiar viewpoints differ by two standard errors at most (binomial, of
    the test images, and over replicas).
    """
    images = numbers.number("images", "familiar")
    capsules, cnn = (numbers.measured("matched", each, "familiar") for each in NETWORKS)
    if images is None or capsules is None or cnn is None:
        return False
    variance = capsules.variance_of_share(images) + cnn.variance_of_share(images)
    return abs(capsules.mean - cnn.mean) <= SIGNIFICANT_SES * math.sqrt(variance)


def _matching(numbers: Numbers, axis: str, network: str, epochs: int) -> list[str]:
    """What both networks were matched at, and where either is at its best."""
    notes = []
    familiar = [numbers.measured("matched", each, "familiar") for each in NETWORKS]
    at = numbers.number("matched", network, "epoch", "mean")
    if all(familiar) and at is not None:
        both = " and ".join(
            f"{words} {in_percent(error)}" for words, error in zip(NETWORKS.values(), familiar, strict=True) if error
        )
        notes.append(
            f"matched on familiar viewpoints: {both} (paper: {PAPER_FAMILIAR[axis]} %), "
            f"after {at:.0f} of {epochs} epochs"
        )
    ratio = numbers.measured("novel_ratio")
    if ratio is not None:
        there = PAPER_NOVEL_RATIO[axis]
        notes.append(f"errors of capsules on novel viewpoints: {ratio.mean:.2f} times the CNN's (paper: {there:.2f})")
    best = [numbers.measured("best", network, where) for where in ("familiar", "novel")]
    if best[0] and best[1]:
        notes.append(
            f"at its best on familiar viewpoints: {in_percent(best[0])} there, {in_percent(best[1])} on novel ones"
        )
    return notes


def votes_concentrate(results: Results) -> Finding | None:
    """Figures 2 and B.2: points by which the share, of what is assigned near the means of class capsules, that goes to
    the right class is larger after the last iteration than after the first.

    It holds where that share rises, and that of all that is assigned does too, both by more than two standard errors
    (binomial, of the images looked at): in a network that learned nothing they drift a little either way.
    """
    routed = (trial for trial in runs(results, "evaluate") if trial.run.model.iterations > 1)
    for trial in by_preference(routed):
        numbers, run = trial.numbers, trial.run
        steps = [str(t + 1) for t in range(run.model.iterations)]
        shares = {each: [numbers.measured("votes", each, t) for t in steps] for each in ("near", "all")}
        near, whole = ([share for share in found if share] for found in shares.values())
        images = numbers.number("voted_images")
        if len(near) < len(steps) or len(whole) < len(steps) or images is None:
            continue
        notes = [
            f"to the right class, of what is assigned {words}: "
            f"{', '.join(f'{100 * share.mean:.1f}' for share in found)} % after iterations 1 to {len(steps)}"
            for words, found in (("near a mean", near), ("at all", whole))
        ]
        notes.append(f"evenly assigned it would be {100 / run.model.classes:.0f} %")
        near_error = math.sqrt((_variance(near[0].mean) + _variance(near[-1].mean)) / images)
        errors = [near_error, math.sqrt(_variance(whole[-1].mean) / images)]  # at first, all are assigned evenly
        gains = [found[-1].mean - found[0].mean for found in (near, whole)]
        holds = all(gain > SIGNIFICANT_SES * error for gain, error in zip(gains, errors, strict=True))
        remarks = remarks_on_data(trial.dataset) + remarks_on_capsules(run, trial.dataset) + remarks_on_condition(run)
        records, gain = records_of(results, trial), near[-1].minus(near[0]).scaled(100)
        return Finding(gain, dataset_label(records), records, holds=holds, remarks=remarks, notes=notes)
    return None


def _variance(share: float) -> float:
    return share * (1 - share)


MEASURES: dict[str, Measure] = {
    **{claim: _error(changes) for claim, changes in TABLE_1.items()},
    CNN_CLAIM: error_of_cnn,
    "004.crops": _error({}, crops=True),
    "004.small": _error({}, SMALL_SIZES),
    "004.mnist": _elsewhere(*MNIST, PAPER_SIZES, None),
    "004.cifar": _elsewhere(*CIFAR, {**PAPER_SIZES, "channels": 256}, None),
    **{claim: _novel(*which) for claim, which in VIEWPOINTS.items()},
    "004.fig2": votes_concentrate,
    **OF_ATTACKS,
}
"""How each claim of document 004 is answered."""
