"""The results of document 004's networks, each with the settings that it recorded.

A trial is a trained network with its numbers: a run of `runs`, or a condition of an entry of `ablation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from pipeline.results.documents import LABELS, documents
from pipeline.results.learned import Learned, learned
from pipeline.results.provenance import Record
from pipeline.results.reading import Numbers, Recorded, Results, natural, with_training

PAPER_DATASET = LABELS["smallnorb"]
Variant = Literal["matrix_capsules", "cnn"]
CONDITION = ("iterations", "pose", "coordinate_addition", "loss", "activation")
"""Settings of the model that tell the rows of Table 1 apart."""
SOURCES = ("smallnorb", "smallnorb48", "smallnorb48-posed", "toys")
"""Of the paper's main data set: itself, copies of it, and what stands in for it."""
CLASSES = ("animal", "human", "airplane", "truck", "car")
"""Of smallNORB, by label. As `data.norb.CATEGORIES`, but a figure does not depend on how data are read."""
_WARPS = ("rotation", "scale", "aspect", "shear", "shift")
"""Settings of warps, which results from before there were any do not have."""


class Trial(NamedTuple):
    """A trained network and what was measured of it.

    Attributes:
        stage, item: that measured it.
        name: of the run or of the condition.
        run, dataset: all settings of the network and of its data, as the result recorded them.
        base: the run that it is or, of a condition, that it changes.
        changes: settings of the base's model that are other, by name.
    """

    stage: str
    item: str
    name: str
    numbers: Numbers
    run: Recorded
    dataset: Recorded
    base: str
    changes: Mapping[str, object]


class Compared(NamedTuple):
    """A study of both networks.

    Attributes:
        settings: of the study.
        capsules, cnn, dataset: settings of both networks and of the data set that they were tested on.
    """

    item: str
    numbers: Numbers
    settings: Recorded
    capsules: Recorded
    cnn: Recorded
    dataset: Recorded


def runs(results: Results, stage: Literal["train", "evaluate"], variant: Variant = "matrix_capsules") -> list[Trial]:
    """The runs of a variant that a stage was executed for, by name."""
    found = (_run(stage, name, numbers) for name, numbers in results.executed(stage))
    return [trial for trial in found if trial.run.variant == variant]


def _run(stage: str, name: str, numbers: Numbers) -> Trial:
    return Trial(stage, name, name, numbers, numbers.run(name), numbers.dataset_of(name), name, {})


def ablations(results: Results) -> Iterator[Trial]:
    """The conditions of all ablations that were executed, by the ablation's name and then their own."""
    for item, whole in results.executed("ablation"):
        for name in sorted(whole.names("condition"), key=natural):
            yield _condition(item, name, whole)


def _condition(item: str, name: str, whole: Numbers) -> Trial:
    settings, run = whole.settings, whole.trained[name]
    study, dataset = settings.ablation[item], settings.datasets[run.dataset]
    return Trial("ablation", item, name, whole.part("condition", name), run, dataset, study.run, study.conditions[name])


def trial_of(results: Results, network: str | None) -> Trial | None:
    """The trial of a network as evidence names it: a run, or <ablation>/<condition>; None if it was not executed."""
    item, _, condition = (network or "").partition("/")
    if not condition:
        found = results.answering("evaluate", network)
        return _run("evaluate", *found) if found else None
    whole = results.numbers("ablation", item)
    return _condition(item, condition, whole) if whole and condition in whole.names("condition") else None


def records_of(results: Results, trial: Trial) -> list[Record]:
    """The provenance of a trial: a run's training and evaluation, or the ablation that trained and measured it."""
    of_run = [trial.name] if trial.stage == "evaluate" else []
    return with_training(results, trial.numbers, *of_run)


def learned_by(results: Results, trial: Trial) -> Learned | None:
    """How far a trial's training came. Of a condition, the training error is that of the epoch whose weights were kept,
    which is most often the last; its curve is not.
    """
    if trial.stage == "evaluate":
        return learned(results, trial.numbers, trial.name)
    accuracy = None if trial.run.model.get("mixup") else trial.numbers.measured("train", "accuracy")
    return Learned(accuracy.as_error().mean) if accuracy else None


def viewpoint_studies(results: Results) -> list[Compared]:
    """Studies of viewpoints that were executed, by name."""
    return [viewpoint_study(name, numbers) for name, numbers in results.executed("viewpoint")]


def viewpoint_study(name: str, numbers: Numbers) -> Compared:
    """A study of viewpoints with its settings."""
    settings, trained = numbers.settings, numbers.trained
    study = settings.viewpoint[name]
    return Compared(name, numbers, study, trained.capsules, trained.cnn, settings.datasets[study.dataset])


def attack_studies(results: Results) -> list[Compared]:
    """Studies of attacks that were executed, by name."""
    return [attack_study(name, numbers) for name, numbers in results.executed("attack")]


def attack_study(name: str, numbers: Numbers) -> Compared:
    """A study of attacks with its settings."""
    study = numbers.settings.attack[name]
    capsules, cnn = numbers.run(study.capsules), numbers.run(study.cnn)
    return Compared(name, numbers, study, capsules, cnn, numbers.dataset_of(study.capsules))


def attacked_images(study: Compared) -> int:
    """Test images that a study of attacks changed."""
    return int(min(study.settings.images, study.dataset.test))


def row_of(trial: Trial, rows: Mapping[str, str]) -> str | None:
    """The claim whose row of Table 1 has a trial's condition; None of a condition that changes anything else.

    Args:
        rows: by claim, what `documents.yaml` calls its row.
    """
    if not trial.changes.keys() <= set(CONDITION):
        return None
    theirs = documents()["matrix_capsules"]
    ours = trial.run.model
    return next(
        (claim for claim, row in rows.items() if all(theirs[row]["model"][name] == ours[name] for name in CONDITION)),
        None,
    )


def trained_alike(trial: Trial, other: Trial) -> bool:
    """Whether two trials differ in the condition of Table 1 alone, however many seeds they have."""
    model = {**other.run.model, **{name: trial.run.model[name] for name in CONDITION}}
    return trial.dataset == other.dataset and trial.run == {**other.run, "model": model, "replicas": trial.run.replicas}


def stands_in(dataset: Recorded) -> bool:
    """Whether a data set is the paper's main one, or stands in for it."""
    return dataset.source in SOURCES


def trained_on(run: Recorded) -> str:
    """What a run's images are trained as, in words."""
    return "crops and warps" if any(run.augmentation.get(name) for name in _WARPS) else "crops"


def class_names(settings: Recorded, dataset: Recorded, outputs: int) -> tuple[str, ...]:
    """Names of a network's classes: smallNORB's, those of own images, or else numbers.

    Args:
        settings: of the result.
        outputs: classes of the network, which may be more than the data set has.
    """
    if stands_in(dataset):
        return CLASSES
    own = settings.get("own_images", {}).get(dataset.source, {}).get("classes", [])
    return (*own, *map(str, range(len(own), outputs)))
