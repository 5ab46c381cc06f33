"""Which runs and ablations stand for the claims of document 004, and in what their settings fall short of the paper's.

A trial is a trained and tested network of matrix capsules: a run of `runs`, or an entry of `ablation`. It stands for a
row of Table 1 by what its model is: routing iterations, pose, coordinate addition, loss and activation. An ablation
that changes anything else stands for none. Trials on the paper's data come first, then those of the paper's sizes, then
the order of `params.yaml`; the first that was executed answers. Of trials of the paper's sizes runs come before
ablations, for they are trained longer; of smaller ones ablations do, for they are trained as the other rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pipeline.classification.settings import AttackParams
from pipeline.learning.variation import ablated
from pipeline.params import Params
from pipeline.results.findings import NOT_THE_PAPERS_DATA, Evidence
from pipeline.results.reading import Numbers
from pipeline.systems.cnn.settings import CNNRun
from pipeline.systems.matrix_capsules.settings import MatrixCapsulesRun

PAPER_DATASET = "smallNORB"
SOURCES = ("smallnorb", "smallnorb48", "smallnorb48-posed", "toys")
"""Of the paper's main data set: itself, copies of it, and what stands in for it; the one to be preferred first."""
COPIES = {
    "smallnorb48": "decoded from JPEG copies (the paper's: the published files)",
    "smallnorb48-posed": "the test part alone, split by instance, decoded from JPEG copies (the paper's: both parts)",
}
PAPER_TRAIN_IMAGES = {"smallnorb": 24_300, "smallnorb48": 24_300, "mnist": 60_000, "cifar10": 50_000}
PAPER_CONDITION: dict[str, object] = {
    "iterations": 3, "pose": "matrix", "coordinate_addition": True, "loss": "spread", "activation": "mdl",
}  # fmt: skip
"""The third row of Table 1, the paper's best model. Other rows change some of these."""
PAPER_SIZES: dict[str, object] = {"channels": 32, "primary_types": 32, "types": [32, 32]}
"""A, B, and C and D: 310,000 parameters."""
SMALL_SIZES: dict[str, object] = {"channels": 64, "primary_types": 8, "types": [16, 16]}
"""Of the network with 68,000 parameters (section 5)."""
PAPER_STRUCTURE: dict[str, object] = {
    "kernel": 5, "stride": 2, "capsule_kernel": 3, "capsule_strides": [2, 1], "pose_side": 4,
}  # fmt: skip
PUBLISHED: dict[str, object] = {
    "competition": "all", "inverse_temperature": 0.01, "inverse_temperature_rate": 0.95,
    "class_inverse_temperature": 0.25, "damping": 0.1, "variance_floor": 0.0005, "saving": None,
    "primary_pose_sd": 0.5, "primary_activation_sd": 3.0, "primary_bias": -1.0, "weight_decay": 2e-7,
}  # fmt: skip
"""Numerics of the authors' published code, in which some count otherwise (`layers.m_steps`); the paper gives none."""
PAPER_MARGINS: dict[str, object] = {"first_margin": 0.2, "last_margin": 0.9}
PAPER_LIGHT: dict[str, object] = {"brightness": 0.25, "contrast": 0.8}
"""63 of 255, and factors from 0.2 to 1.8, in the published code."""
PUBLISHED_STEPS = 200_000
"""After which the margin of the loss is halfway in the published code; the paper does not say how long it trained."""
PAPER_CNN: dict[str, object] = {"channels": [32, 64], "kernel": 5, "hidden": 1024}
PAPER_CROP = 32


class Trial(NamedTuple):
    """A trained and tested network of matrix capsules.

    Attributes:
        stage, item: where its numbers are.
        run: all its settings.
    """

    stage: Literal["evaluate", "ablation"]
    item: str
    run: MatrixCapsulesRun


def capsule_runs(params: Params) -> dict[str, MatrixCapsulesRun]:
    """Runs of matrix capsules by name."""
    return {name: run for name, run in params.runs.items() if isinstance(run, MatrixCapsulesRun)}


def cnn_runs(params: Params) -> dict[str, CNNRun]:
    """Runs of the convolutional network by name."""
    return {name: run for name, run in params.runs.items() if isinstance(run, CNNRun)}


def _ablated(params: Params, condition: str) -> MatrixCapsulesRun:
    """All settings of an entry of `ablation`."""
    study = params.ablation[condition]
    return ablated(capsule_runs(params)[study.run], study)


def _trials(params: Params) -> Iterator[Trial]:
    for name, run in capsule_runs(params).items():
        yield Trial("evaluate", name, run)
    for name in params.ablation:
        if params.ablation[name].model.keys() <= PAPER_CONDITION.keys() | PAPER_SIZES.keys():
            yield Trial("ablation", name, _ablated(params, name))


def condition_of(run: MatrixCapsulesRun) -> dict[str, object]:
    """What a row of Table 1 is known by."""
    return {name: getattr(run.model, name) for name in PAPER_CONDITION}


def stands_for(params: Params, condition: str, rows: Mapping[str, Mapping[str, object]]) -> str | None:
    """The row that an entry of `ablation` stands for, of `rows` by what they change; None where it stands for none."""
    known = any(trial.stage == "ablation" and trial.item == condition for trial in _trials(params))
    model = condition_of(_ablated(params, condition))
    return next((row for row, changes in rows.items() if known and model == {**PAPER_CONDITION, **changes}), None)


def has_sizes(run: MatrixCapsulesRun, sizes: Mapping[str, object]) -> bool:
    """Whether a run's network has these sizes."""
    return all(getattr(run.model, name) == size for name, size in sizes.items())


def preference(params: Params, dataset: str, sources: Sequence[str] = SOURCES) -> int:
    """The place of a data set among those that stand for the paper's, from 0; beyond the last where it does not."""
    source = params.datasets[dataset].source
    return sources.index(source) if source in sources else len(sources)


def trials(
    params: Params,
    changes: Mapping[str, object],
    sizes: Mapping[str, object] | None = None,
    sources: Sequence[str] = SOURCES,
) -> list[Trial]:
    """Trials of the paper's best model with these changes, the one to be preferred first.

    Args:
        changes: of `PAPER_CONDITION`.
        sizes: only networks of these; any, the paper's before others, if None.
        sources: only on data of these, the first before the others.
    """
    wanted = {**PAPER_CONDITION, **changes}
    found = [
        trial
        for trial in _trials(params)
        if condition_of(trial.run) == wanted
        and preference(params, trial.run.dataset, sources) < len(sources)
        and (sizes is None or has_sizes(trial.run, sizes))
    ]

    def rank(trial: Trial) -> tuple[int, bool, bool]:
        other = not has_sizes(trial.run, sizes or PAPER_SIZES)
        return preference(params, trial.run.dataset, sources), other, (trial.stage == "evaluate") == other

    return sorted(found, key=rank)


def first_executed(
    evidence: Evidence, candidates: Sequence[Trial], error: Literal["centre", "crops"] = "centre"
) -> tuple[Trial, Numbers] | None:
    """The first of some trials whose test error is known, on the middle of images or by several crops, and its numbers.

    Runs are tested both ways, ablations on the middle alone.
    """
    for trial in candidates:
        numbers = evidence.results.numbers(trial.stage, trial.item)
        if numbers is not None and numbers.measured("test", error) is not None:
            return trial, numbers
    return None


def unchanged(params: Params, trial: Trial) -> list[Trial]:
    """Of a trial with a change of Table 1, those that are the same without it."""
    if condition_of(trial.run) == PAPER_CONDITION:
        return []
    model = trial.run.model.model_copy(update=PAPER_CONDITION)
    wanted = trial.run.model_copy(update={"model": model, "replicas": 1})
    return [each for each in trials(params, {}) if each.run.model_copy(update={"replicas": 1}) == wanted]


def _differing(settings: Any, theirs: Mapping[str, object]) -> list[str]:
    return [
        f"{name.replace('_', ' ')} {getattr(settings, name)} / {value}"
        for name, value in theirs.items()
        if getattr(settings, name) != value
    ]


def _listed(differences: list[str], whose: str) -> list[str]:
    return [f"{', '.join(differences)} (ours / {whose})"] if differences else []


def of_data(params: Params, dataset: str, source: str = SOURCES[0], label: str = PAPER_DATASET) -> list[str]:
    """In what a data set falls short of the paper's, which is `source`, called `label`."""
    ours = params.datasets[dataset]
    if ours.source in COPIES and source == SOURCES[0]:
        remarks = [COPIES[ours.source]]
    elif ours.source != source:
        return [f"{NOT_THE_PAPERS_DATA} ({label})"]
    else:
        remarks = []
    published = PAPER_TRAIN_IMAGES.get(ours.source, 0)
    if ours.train < published:
        remarks.append(f"trained on {ours.train:,} images (paper: {published:,})")
    return remarks


def of_capsules(
    params: Params,
    run: MatrixCapsulesRun,
    sizes: Mapping[str, object] = PAPER_SIZES,
    crop: int | None = PAPER_CROP,
) -> list[str]:
    """In what the network and the training of matrix capsules fall short of the paper's, but for Table 1's changes.

    Args:
        sizes: that the paper has for this claim.
        crop: pixels that its network sees; None where it does not say.
    """
    differences = _differing(run.model, {**sizes, **PAPER_STRUCTURE})
    if run.model.loss == "spread":
        differences += _differing(run.model, PAPER_MARGINS)
    if crop is not None:
        differences += _differing(run.augmentation, {"crop": crop, **PAPER_LIGHT})
    remarks = _listed(differences, "the paper's")
    remarks += _listed(_differing(run.model, PUBLISHED), "the published code's")
    steps = run.training.epochs * (params.datasets[run.dataset].train // run.training.batch_size)
    if steps < PUBLISHED_STEPS:
        remarks.append(
            f"{run.training.epochs} epochs of {steps // run.training.epochs:,} steps (in the published code the margin "
            f"is halfway after {PUBLISHED_STEPS:,} steps)"
        )
    return remarks


def of_cnn(run: CNNRun) -> list[str]:
    """In what the convolutional network falls short of the paper's; how long that was trained is not told."""
    return _listed(
        _differing(run.model, PAPER_CNN) + _differing(run.augmentation, {"crop": PAPER_CROP, **PAPER_LIGHT}),
        "the paper's",
    )


def viewpoints(params: Params, axis: str) -> list[str]:
    """Studies of viewpoints along an axis, the one to be preferred first."""
    names = [name for name, study in params.viewpoint.items() if study.axis == axis]
    return sorted(names, key=lambda name: preference(params, params.viewpoint[name].dataset))


def attacks(params: Params) -> list[str]:
    """Studies of attacks, the one to be preferred first."""

    def rank(name: str) -> tuple[int, bool]:
        run = capsule_runs(params)[params.attack[name].capsules]
        return preference(params, run.dataset), not has_sizes(run, PAPER_SIZES)

    return sorted(params.attack, key=rank)


def of_attack(params: Params, study: AttackParams) -> list[str]:
    """In what a study of attacks falls short of the paper's."""
    capsules, cnn = capsule_runs(params)[study.capsules], cnn_runs(params)[study.cnn]
    remarks = [*of_data(params, capsules.dataset), *of_capsules(params, capsules)]
    remarks += [f"CNN: {words}" for words in of_cnn(cnn)]
    tested = params.datasets[capsules.dataset].test
    if study.images < tested:
        remarks.append(f"{study.images:,} of {tested:,} test images attacked")
    return remarks
