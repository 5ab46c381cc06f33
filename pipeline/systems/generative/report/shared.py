"""Functions shared by the reports on document 000. They read results, and describe differences from the paper."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pipeline.data.settings import PUBLISHED
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding, Remark
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record, unique
from pipeline.results.reading import NotMeasuredError, Numbers, Recorded, Results, with_training

_SWEPT = {"generative": "swept_capsules", "scae": "swept_scae", "vae": "swept_vae"}
"""For each system that document 000 probes, the entry of `documents.yaml` with the settings of the paper's sweep."""


def evaluated(results: Results) -> dict[str, Numbers]:
    """The evaluation of every run of the three systems that document 000 probes, by name of the run."""
    return {run: numbers for run, numbers in results.executed("evaluate") if numbers.run(run).variant in _SWEPT}


def evaluated_capsules(results: Results) -> tuple[str, Numbers]:
    """The name of the capsules' run for Table 1, and its evaluation. Raises `NotMeasuredError` if there is none."""
    return results.answering("evaluate", results.evidence.generative.table_1.get("capsules"))


@dataclass(frozen=True)
class Sweep:
    """A run trained and tested on several ranges of rotation. Its results are in `items`, by rising angle (degrees)."""

    run: str
    items: dict[float, Numbers]

    @property
    def records(self) -> list[Record]:
        return [record for numbers in self.items.values() for record in numbers.records]

    def measured(self, *keys: str) -> dict[float, Measured]:
        """The measurements under nested `keys`, by angle. Angles without this measurement are left out."""
        found = ((angle, numbers.measured(*keys)) for angle, numbers in self.items.items())
        return {angle: value for angle, value in found if value}


def sweeps(results: Results) -> dict[str, Sweep]:
    """The sweeps of all runs that have one, by name of the run."""
    items: dict[str, dict[float, Numbers]] = {}
    for _, numbers in results.executed("sweep"):
        item = numbers.settings.item
        items.setdefault(item.run, {})[float(item.angle)] = numbers
    return {run: Sweep(run, dict(sorted(by_angle.items()))) for run, by_angle in items.items()}


def complete_sweep(results: Results, role: str, *keys: str) -> tuple[Sweep, dict[float, Measured]]:
    """The sweep that evidence names for `role` ("capsules", "scae" or "vae"), and its measurements under `keys`, by
    angle. Raises `NotMeasuredError` if the sweep is missing, or has no measurement at an angle of another sweep.
    """
    found = sweeps(results)
    angles = {angle for sweep in found.values() for angle in sweep.items}
    sweep = found.get(results.evidence.generative.sweep.get(role, ""))
    measured = sweep.measured(*keys) if sweep else {}
    if not sweep or measured.keys() != angles:
        raise NotMeasuredError(f"the sweep of {role} has no result, or none at an angle of another sweep")
    return sweep, measured


def rises(values: Sequence[Measured]) -> bool:
    """Whether the last value is above the first, and none is below the previous one by more than the larger sd."""
    no_fall = all(after.mean >= before.mean - max(before.sd, after.sd) for before, after in pairwise(values))
    return no_fall and values[-1].mean > values[0].mean


def groups(compared: Mapping[str, str], names: Collection[str]) -> list[list[str]]:
    """Divide the runs `names` into groups. Each has its own figures and table. The first group has the runs that
    `compared` names for the roles "capsules", "scae" and "vae". Every other run is a group of its own.
    """
    together = [run for role in ("capsules", "scae", "vae") if (run := compared.get(role, "")) in names]
    alone = [[name] for name in names if name not in together]
    return [together, *alone] if together else alone


def classes_of(numbers: Numbers, run: str) -> int:
    """The number of classes in the data set that `run` was trained on."""
    source = numbers.dataset_of(run).source
    return PUBLISHED[source].classes if source in PUBLISHED else len(numbers.settings.own_images[source].classes)


def answer(
    results: Results,
    numbers: Numbers,
    run: str,
    ours: Measured,
    document: str = "capsules",
    *,
    tested: int | None = None,
    **more: Any,
) -> Finding:
    """The finding about a claim that rests on one run. Its remarks compare the run with the entry `document` of
    `documents.yaml`. `tested` is the number of test images. If it is None, remarks do not compare the numbers of test
    images and of seeds with the paper's. `more` has further fields of `Finding`.
    """
    settings, dataset = _reached(numbers.run(run)), numbers.dataset_of(run)
    replicas = None if tested is None else ours.n
    said = remarks("generative", document, settings, dataset, replicas=replicas, tested=tested)
    return Finding(ours, with_training(results, numbers, run), remarks=said, **more)


def _reached(run: Recorded) -> Recorded:
    """A run's settings. Those of `seeding`, which sets objects from parts, are left out if training ends before it."""
    if run.model.get("seeding_epoch", 0) < run.training.epochs:
        return run
    return Recorded({**run, "model": {name: run.model[name] for name in run.model if not name.startswith("seeding")}})


def swept_shortcomings(items: Iterable[Numbers], *, seeds: int | None = None) -> list[Remark]:
    """Remarks on how the runs of sweeps differ from the paper's runs. No remark is repeated. `items` are the results of
    the sweeps. `seeds` is the number of seeds. If it is None, remarks leave out the numbers of test images and seeds.
    """
    found = []
    for numbers in items:
        run, dataset = numbers.trained.run, numbers.dataset_of(numbers.settings.item.run)
        settings = {**_reached(run), "training_share": numbers.settings.sweep.training_share}
        tested = None if seeds is None else dataset.test
        found += remarks("generative", _SWEPT[run.variant], settings, dataset, replicas=seeds, tested=tested)
    return unique(found)


def tested_on(numbers: Numbers, run: str, images: int) -> str:
    """A note on how many test images were used (at most `images`), for claims where the paper does not say this."""
    return f"on {min(images, numbers.dataset_of(run).test):,} test images"


def name_of_test(test: str) -> str:
    """The readable name of a test set, such as "0°", "±45°" or "affine"."""
    if not test.startswith("rotated_"):
        return test
    angle = float(test.removeprefix("rotated_"))
    return f"{'±' * (angle != 0)}{angle:g}°"
