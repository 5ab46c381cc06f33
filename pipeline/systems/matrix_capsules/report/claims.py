"""How the claims of document 004 about errors, novel viewpoints and votes are answered; errors are in percent.

What stands for which row, and what is preferred, says `settings_004`; claims about attacks are in `attacks_004`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pipeline.learning.variation import viewed
from pipeline.results.findings import Evidence, Finding, Measure
from pipeline.results.reading import Measured, Numbers, dataset_label
from pipeline.systems.matrix_capsules.report.attack_claims import CERTAIN
from pipeline.systems.matrix_capsules.report.attack_claims import MEASURES as OF_ATTACKS
from pipeline.systems.matrix_capsules.report.runs import (
    PAPER_SIZES,
    SMALL_SIZES,
    SOURCES,
    Trial,
    capsule_runs,
    cnn_runs,
    first_executed,
    of_capsules,
    of_cnn,
    of_data,
    preference,
    trials,
    unchanged,
    viewpoints,
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
NETWORKS = {"capsules": "capsules", "cnn": "CNN"}
MNIST, CIFAR = (("mnist", "digits"), "MNIST"), (("cifar10",), "CIFAR-10")
"""Sources that a claim may be answered from, the paper's first, and what the paper calls its own."""


def told(error: Measured) -> str:
    """An error (a share) in words, such as "3.1 %"."""
    return f"{100 * error.mean:.1f} %"


def _error(changes: Mapping[str, object], sizes: Mapping[str, object] | None = None, crops: bool = False) -> Measure:
    """Test error of the paper's best model with some changes.

    Args:
        sizes: only of networks of these.
        crops: by activations averaged over crops, not from the middle.
    """

    def measure(evidence: Evidence) -> Finding | None:
        found = first_executed(evidence, trials(evidence.params, changes, sizes), "crops" if crops else "centre")
        return _answer(evidence, *found, sizes or PAPER_SIZES, crops) if found else None

    return measure


def _answer(
    evidence: Evidence, trial: Trial, numbers: Numbers, sizes: Mapping[str, object], crops: bool
) -> Finding | None:
    centre, voted = numbers.measured("test", "centre"), numbers.measured("test", "crops")
    error = voted if crops else centre
    if error is None or centre is None:
        return None
    params, run = evidence.params, trial.run
    other = f"from the middle alone {told(centre)}" if crops else f"by several crops {told(voted)}" if voted else ""
    notes = [other] if other else []
    beside = first_executed(evidence, unchanged(params, trial))
    if beside and (of_beside := beside[1].measured("test", "centre")):
        notes.append(f"the unchanged network, trained alike: {told(of_beside)}")
    remarks = [*of_data(params, run.dataset), *of_capsules(params, run, sizes)]
    return Finding(error.scaled(100), dataset_label(numbers.records), numbers.records, remarks=remarks, notes=notes)


def _elsewhere(sources: Sequence[str], label: str, sizes: Mapping[str, object], crop: int | None) -> Measure:
    """Test error of the paper's best model on another data set."""

    def measure(evidence: Evidence) -> Finding | None:
        params = evidence.params
        found = first_executed(evidence, trials(params, {}, sources=sources))
        if found is None:
            return None
        trial, numbers = found
        error, voted = numbers.measured("test", "centre"), numbers.measured("test", "crops")
        if error is None:
            return None
        remarks = of_data(params, trial.run.dataset, sources[0], label) + of_capsules(params, trial.run, sizes, crop)
        notes = [f"by several crops {told(voted)}"] if voted else []
        return Finding(error.scaled(100), dataset_label(numbers.records), numbers.records, remarks=remarks, notes=notes)

    return measure


def error_of_cnn(evidence: Evidence) -> Finding | None:
    """Table 1: test error of the convolutional network."""
    params = evidence.params
    known = [name for name, run in cnn_runs(params).items() if preference(params, run.dataset) < len(SOURCES)]
    for name in sorted(known, key=lambda name: preference(params, cnn_runs(params)[name].dataset)):
        run, numbers = cnn_runs(params)[name], evidence.results.numbers("evaluate", name)
        error = numbers.measured("test", "centre") if numbers else None
        if numbers is None or error is None:
            continue
        voted = numbers.measured("test", "crops")
        notes = [f"{run.training.epochs} epochs", *([f"by several crops {told(voted)}"] if voted else [])]
        remarks = [*of_data(params, run.dataset), *of_cnn(run)]
        return Finding(error.scaled(100), dataset_label(numbers.records), numbers.records, remarks=remarks, notes=notes)
    return None


def _novel(axis: str, network: str) -> Measure:
    """Table 2: error on novel viewpoints where both networks are alike on familiar ones."""

    def measure(evidence: Evidence) -> Finding | None:
        params = evidence.params
        for name in viewpoints(params, axis):
            numbers = evidence.results.numbers("viewpoint", name)
            novel = numbers.measured("matched", network, "novel") if numbers else None
            if numbers is None or novel is None:
                continue
            study = params.viewpoint[name]
            capsules = viewed(capsule_runs(params)[study.capsules], study)
            cnn = viewed(cnn_runs(params)[study.cnn], study)
            own = of_capsules(params, capsules) if network == "capsules" else of_cnn(cnn)
            remarks = [*of_data(params, study.dataset), *own]
            notes = _matching(numbers, axis, network, study.epochs)
            label = dataset_label(numbers.records)
            return Finding(novel.scaled(100), label, numbers.records, remarks=remarks, notes=notes)
        return None

    return measure


def _matching(numbers: Numbers, axis: str, network: str, epochs: int) -> list[str]:
    """What both networks were matched at, and where either is at its best."""
    notes = []
    familiar = [numbers.measured("matched", each, "familiar") for each in NETWORKS]
    at = numbers.number("matched", network, "epoch", "mean")
    if all(familiar) and at is not None:
        both = " and ".join(f"{words} {told(e)}" for words, e in zip(NETWORKS.values(), familiar, strict=True) if e)
        notes.append(
            f"matched on familiar viewpoints: {both} (paper: {PAPER_FAMILIAR[axis]} %), "
            f"after {at:.0f} of {epochs} epochs"
        )
    best = [numbers.measured("best", network, where) for where in ("familiar", "novel")]
    if best[0] and best[1]:
        notes.append(f"at its best on familiar viewpoints: {told(best[0])} there, {told(best[1])} on novel ones")
    return notes


def votes_concentrate(evidence: Evidence) -> Finding | None:
    """Figures 2 and B.2: points by which the share, of what is assigned near the means of class capsules, that goes to
    the right class is larger after the last iteration than after the first.

    It holds where that share rises, and that of all that is assigned does too, both by more than two standard errors
    (binomial, of the images looked at): in a network that learned nothing they drift a little either way.
    """
    params = evidence.params
    routed = [name for name, run in capsule_runs(params).items() if run.model.iterations > 1]
    for name in sorted(routed, key=lambda name: preference(params, capsule_runs(params)[name].dataset)):
        numbers = evidence.results.numbers("evaluate", name)
        if numbers is None:
            continue
        run = capsule_runs(params)[name]
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
        errors = [math.sqrt(found[-1].mean * (1 - found[-1].mean) / images) for found in (near, whole)]
        gains = [found[-1].mean - found[0].mean for found in (near, whole)]
        holds = all(gain > CERTAIN * error for gain, error in zip(gains, errors, strict=True))
        remarks = [*of_data(params, run.dataset), *of_capsules(params, run)]
        if run.model.iterations != 3:
            remarks.append(f"{run.model.iterations} iterations (paper: 3)")
        return Finding(
            near[-1].minus(near[0]).scaled(100), dataset_label(numbers.records), numbers.records, holds=holds,
            remarks=remarks, notes=notes,
        )  # fmt: skip
    return None


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
"""As `document_000.MEASURES`."""
