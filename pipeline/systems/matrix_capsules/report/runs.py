"""Which results stand for the claims of document 004.

A trial is a trained network with its numbers: a run of `runs`, or a condition of an entry of `ablation`. One of matrix
capsules stands for a row of Table 1 by what its model is: routing iterations, pose, coordinate addition, loss and
activation. A condition that changes anything else stands for none.

Where several could answer, those on the paper's data come first, then those of the paper's sizes, then those trained
on crops only, then those with fewer settings that are not the paper's. Of trials of the paper's sizes runs then come
before conditions, for they are trained longer; of smaller ones conditions do, for they are trained as the other rows
are. More seeds, more epochs and the name settle the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pipeline.results.learned import Learned, learned
from pipeline.results.reading import Numbers, Record, Recorded, Results, natural, with_training
from pipeline.systems.matrix_capsules.report.paper import (
    PAPER_CONDITION,
    PAPER_SIZES,
    SOURCES,
    distance,
    has_sizes,
    preference,
)

Variant = Literal["matrix_capsules", "cnn"]


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
    found = []
    for name, numbers in results.executed(stage):
        run = numbers.run(name)
        if run.variant == variant:
            found.append(Trial(stage, name, name, numbers, run, numbers.dataset_of(name), name, {}))
    return found


def ablations(results: Results) -> Iterator[Trial]:
    """The conditions of all ablations that were executed, by the ablation's name and then their own."""
    for item, whole in results.executed("ablation"):
        settings, trained = whole.settings, whole.trained
        study = settings.ablation[item]
        for name in sorted(whole.names("condition"), key=natural):
            numbers, run, changes = whole.part("condition", name), trained[name], study.conditions[name]
            yield Trial("ablation", item, name, numbers, run, settings.datasets[run.dataset], study.run, changes)


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
    """Studies of viewpoints that were executed, the one to be preferred first."""
    found = []
    for name, numbers in results.executed("viewpoint"):
        settings, trained = numbers.settings, numbers.trained
        study = settings.viewpoint[name]
        dataset = settings.datasets[study.dataset]
        found.append(Compared(name, numbers, study, trained.capsules, trained.cnn, dataset))
    return _studies_by_preference(found)


def attack_studies(results: Results) -> list[Compared]:
    """Studies of attacks that were executed, the one to be preferred first."""
    found = []
    for name, numbers in results.executed("attack"):
        study = numbers.settings.attack[name]
        capsules, cnn = numbers.run(study.capsules), numbers.run(study.cnn)
        found.append(Compared(name, numbers, study, capsules, cnn, numbers.dataset_of(study.capsules)))
    return _studies_by_preference(found)


def attacked_images(study: Compared) -> int:
    """Test images that a study of attacks changed."""
    return int(min(study.settings.images, study.dataset.test))


def trials(
    results: Results,
    changes: Mapping[str, object],
    sizes: Mapping[str, object] = PAPER_SIZES,
    *,
    of_these_sizes: bool = False,
    sources: Sequence[str] = SOURCES,
) -> list[Trial]:
    """Trials of the paper's best model with these changes, the one to be preferred first.

    Args:
        changes: of `PAPER_CONDITION`.
        sizes: networks of these come first.
        of_these_sizes: no others.
        sources: only on data of these, the first before the others.
    """
    wanted = {**PAPER_CONDITION, **changes}
    candidates = [*runs(results, "evaluate"), *(trial for trial in ablations(results) if _is_of_table_1(trial))]
    found = [
        trial
        for trial in candidates
        if condition_of(trial.run) == wanted
        and preference(trial.dataset, sources) < len(sources)
        and (has_sizes(trial.run, sizes) or not of_these_sizes)
    ]
    return by_preference(found, sizes, sources)


def by_preference(
    found: Iterable[Trial], sizes: Mapping[str, object] = PAPER_SIZES, sources: Sequence[str] = SOURCES
) -> list[Trial]:
    """Trials, the one to be preferred first.

    Args:
        sizes, sources: as of `trials`.
    """

    def rank(trial: Trial) -> tuple[Any, ...]:
        other_sizes, *others = distance(trial.run, sizes)
        later = (trial.stage == "ablation") != other_sizes  # why, says the head of this module
        place = preference(trial.dataset, sources)
        return place, other_sizes, *others, later, *_amount(trial.run), natural(trial.name), natural(trial.item)

    return sorted(found, key=rank)


def _studies_by_preference(found: Iterable[Compared]) -> list[Compared]:
    def rank(study: Compared) -> tuple[Any, ...]:
        away = [distance(run) for run in (study.capsules, study.cnn)]
        return preference(study.dataset), *away, *_amount(study.capsules), natural(study.item)

    return sorted(found, key=rank)


def _amount(run: Recorded) -> tuple[int, int]:
    """More seeds first, then more epochs."""
    return -run.replicas, -run.training.epochs


def condition_of(run: Recorded) -> dict[str, object]:
    """What a row of Table 1 is known by."""
    return {name: run.model[name] for name in PAPER_CONDITION}


def _is_of_table_1(condition: Trial) -> bool:
    return condition.changes.keys() <= PAPER_CONDITION.keys() | PAPER_SIZES.keys()


def stands_for(condition: Trial, rows: Mapping[str, Mapping[str, object]]) -> str | None:
    """The row that a condition stands for, of `rows` by what they change; None where it stands for none."""
    if not condition.changes.keys() <= PAPER_CONDITION.keys():
        return None
    own = condition_of(condition.run)
    return next((row for row, changes in rows.items() if own == {**PAPER_CONDITION, **changes}), None)


def first_tested(candidates: Iterable[Trial], error: Literal["centre", "crops"] = "centre") -> Trial | None:
    """The first of some trials whose test error is known, on the middle of images or by several crops.

    Runs are tested both ways, conditions on the middle alone.
    """
    return next((trial for trial in candidates if trial.numbers.measured("test", error) is not None), None)


def unchanged(results: Results, trial: Trial) -> list[Trial]:
    """Of a trial with a change of Table 1, those that are the same without it."""
    if condition_of(trial.run) == PAPER_CONDITION:
        return []
    return [each for each in trials(results, {}) if _but_for_its_condition(each) == _but_for_its_condition(trial)]


def _but_for_its_condition(trial: Trial) -> object:
    """What tells trials apart that are trained otherwise or on other data, however many seeds they have."""
    model = {**trial.run.model, **PAPER_CONDITION}
    return {**trial.run, "model": model, "replicas": None}, trial.dataset
