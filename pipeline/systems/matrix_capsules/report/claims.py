"""How the claims of document 004 are answered, by the networks that the profile's `evidence` names.

Errors are in percent. Claims about attacks are in `claims_of_attacks`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from pipeline.results.claims import load_claims
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Measure
from pipeline.results.measured import SIGNIFICANT_SES, Measured
from pipeline.results.provenance import dataset_label
from pipeline.results.reading import Numbers, Results
from pipeline.results.status import FAMILIAR_SHARE
from pipeline.systems.matrix_capsules.report.runs import (
    Trial,
    ablations,
    learned_by,
    records_of,
    row_of,
    stands_in,
    trained_alike,
    trial_of,
    viewpoint_study,
)

TABLE_1 = {
    "004.t1.r1": "iterations_1",
    "004.t1.r2": "iterations_2",
    "004.t1.r3": "iterations_3",
    "004.t1.r5": "iterations_5",
    "004.t1.vec": "vector",
    "004.t1.nocoord": "no_coordinates",
    "004.t1.vecnocoord": "vector_no_coordinates",
    "004.t1.margin": "margin",
    "004.t1.xent": "cross_entropy",
    "004.mixing": "mixing",
}
"""By claim, the row that it is about, as evidence and `documents.yaml` call it."""
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


def in_percent(error: Measured) -> str:
    """An error (a share) in words, such as "3.1 %"."""
    return f"{100 * error.mean:.1f} %"


def conditions_by_run(results: Results) -> dict[str, list[Trial]]:
    """The conditions of executed ablations by the run that they change, in the order of Table 1; those that it does not
    have last. A name that several ablations have is preceded by the ablation's.
    """
    rows = [*TABLE_1, None]
    found: dict[str, list[Trial]] = {}
    for trial in sorted(ablations(results), key=lambda trial: rows.index(row_of(trial, TABLE_1))):
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
    row = CNN_CLAIM if trial.run.variant == "cnn" else row_of(trial, TABLE_1)
    return values[row] if row and stands_in(trial.dataset) else None


def _row(row: str) -> Measure:
    """Test error of a row of Table 1, from the middle of the image."""

    def measure(results: Results) -> Finding | None:
        rows = results.evidence.matrix_capsules.table_1
        trial = trial_of(results, rows.get(row))
        found = _answer(results, trial, row)
        unchanged = trial_of(results, rows.get("iterations_3")) if row != "iterations_3" else None
        error = unchanged.numbers.measured("test", "centre") if unchanged else None
        if trial and found and found.ours and unchanged and error and trained_alike(trial, unchanged):
            words = f"the unchanged network, trained alike: {in_percent(error)}"
            changed, kept = (_papers(each) for each in (trial, unchanged))
            if changed and kept and (found.ours.mean - 100 * error.mean) * (changed - kept) < 0:
                words += f", the opposite of the paper's order ({changed:g} % with the change, {kept:g} % without)"
            found.notes.append(words)
        return found

    return measure


def _network(name: str) -> Measure:
    """Test error of a network that is no row of Table 1."""

    def measure(results: Results) -> Finding | None:
        return _answer(results, trial_of(results, results.evidence.matrix_capsules.networks.get(name)), name)

    return measure


def averaged_over_crops(results: Results) -> Finding | None:
    """Section 5: test error by activations averaged over crops, not from the middle."""
    trial = trial_of(results, results.evidence.matrix_capsules.crops)
    return _answer(results, trial, "iterations_3", crops=True)


def _answer(results: Results, trial: Trial | None, document: str, crops: bool = False) -> Finding | None:
    centre, voted = (trial.numbers.measured("test", each) if trial else None for each in ("centre", "crops"))
    error, other, words = (voted, centre, "from the middle alone") if crops else (centre, voted, "by several crops")
    if trial is None or error is None:
        return None
    return Finding(
        error.scaled(100),
        dataset_label(trial.numbers.records),
        records_of(results, trial),
        remarks=remarks("matrix_capsules", document, trial.run, trial.dataset),
        notes=[f"{words} {in_percent(other)}"] if other else [],
        learned=learned_by(results, trial),
    )


def _papers(trial: Trial) -> float | None:
    """The paper's error (percent) of the row that a trial's condition has, on whatever data; None if it has none."""
    row = row_of(trial, TABLE_1)
    return paper_values()[row] if row else None


def error_of_cnn(results: Results) -> Finding | None:
    """Table 1: test error of the convolutional network, which the paper does not say how long it trained."""
    trial = trial_of(results, results.evidence.matrix_capsules.cnn)
    found = _answer(results, trial, "cnn")
    if trial and found:
        found.notes.insert(0, f"{trial.run.training.epochs} epochs")
    return found


def _novel(axis: str, network: str) -> Measure:
    """Table 2: error on novel viewpoints where both networks are alike on familiar ones.

    There is no answer where they are not: where their errors on familiar viewpoints differ by more than two standard
    errors.
    """

    def measure(results: Results) -> Finding | None:
        found = results.answering("viewpoint", results.evidence.matrix_capsules.viewpoint.get(axis))
        study = viewpoint_study(*found) if found else None
        novel = study.numbers.measured("matched", network, "novel") if study else None
        if study is None or novel is None or not _alike(study.numbers):
            return None
        numbers = study.numbers
        run, document = (study.capsules, "viewpoint") if network == "capsules" else (study.cnn, "viewpoint_cnn")
        return Finding(
            novel.scaled(100),
            dataset_label(numbers.records),
            numbers.records,
            remarks=remarks("matrix_capsules", document, run, study.dataset, share=FAMILIAR_SHARE),
            notes=_matching(numbers, axis, network, run.training.epochs),
        )

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
    capsules, cnn = (numbers.measured("matched", each, "familiar") for each in NETWORKS)
    at, ratio = numbers.number("matched", network, "epoch", "mean"), numbers.measured("novel_ratio")
    familiar, novel = (numbers.measured("best", network, where) for where in ("familiar", "novel"))
    notes = []
    if capsules and cnn and at is not None:
        notes.append(
            f"matched on familiar viewpoints: capsules {in_percent(capsules)} and CNN {in_percent(cnn)} "
            f"(paper: {PAPER_FAMILIAR[axis]} %), after {at:.0f} of {epochs} epochs"
        )
    if ratio:
        there = PAPER_NOVEL_RATIO[axis]
        notes.append(f"errors of capsules on novel viewpoints: {ratio.mean:.2f} times the CNN's (paper: {there:.2f})")
    if familiar and novel:
        notes.append(
            f"at its best on familiar viewpoints: {in_percent(familiar)} there, {in_percent(novel)} on novel ones"
        )
    return notes


def votes_concentrate(results: Results) -> Finding | None:
    """Figures 2 and B.2: points by which the share, of what is assigned near the means of class capsules, that goes to
    the right class is larger after the last iteration than after the first.

    It holds where that share rises, and that of all that is assigned does too, both by more than two standard errors
    (binomial, of the images looked at): in a network that learned nothing they drift a little either way.
    """
    trial = trial_of(results, results.evidence.matrix_capsules.votes)
    if trial is None or trial.run.model.iterations < 2:
        return None
    numbers, run = trial.numbers, trial.run
    steps = [str(t + 1) for t in range(run.model.iterations)]
    shares = {each: [numbers.measured("votes", each, t) for t in steps] for each in ("near", "all")}
    near, whole = ([share for share in found if share] for found in shares.values())
    images = numbers.number("voted_images")
    if len(near) < len(steps) or len(whole) < len(steps) or images is None:
        return None
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
    said = remarks("matrix_capsules", "iterations_3", run, trial.dataset)
    records, gain = records_of(results, trial), near[-1].minus(near[0]).scaled(100)
    return Finding(gain, dataset_label(records), records, holds=holds, remarks=said, notes=notes)


def _variance(share: float) -> float:
    return share * (1 - share)


MEASURES: dict[str, Measure] = {
    **{claim: _row(row) for claim, row in TABLE_1.items()},
    CNN_CLAIM: error_of_cnn,
    "004.crops": averaged_over_crops,
    "004.small": _network("small"),
    "004.mnist": _network("mnist"),
    "004.cifar": _network("cifar10"),
    **{claim: _novel(*which) for claim, which in VIEWPOINTS.items()},
    "004.fig2": votes_concentrate,
}
"""How each claim of document 004 is answered."""
