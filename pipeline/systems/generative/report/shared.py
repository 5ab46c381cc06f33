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
"""By system that document 000 probes: the name in `documents.yaml` of the settings of the paper's sweep."""


def evaluated(results: Results) -> dict[str, Numbers]:
    """Results of all evaluated runs of the systems that document 000 probes, by name of the run."""
    return {run: numbers for run, numbers in results.executed("evaluate") if numbers.run(run).variant in _SWEPT}


def evaluated_capsules(results: Results) -> tuple[str, Numbers]:
    """Name and evaluation of the run that is compared with Table 1. Raises `NotMeasuredError` if it is missing."""
    return results.answering("evaluate", results.evidence.generative.table_1.get("capsules"))


@dataclass(frozen=True)
class Sweep:
    """A run trained and tested on several ranges of rotation. `items` has the results by angle (degrees), ascending."""

    run: str
    items: dict[float, Numbers]

    @property
    def records(self) -> list[Record]:
        return [record for numbers in self.items.values() for record in numbers.records]

    def measured(self, *keys: str) -> dict[float, Measured]:
        """The measurements under `keys` by angle, without angles that have no measurement."""
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
    """The sweep of the run in a role ("capsules", "scae" or "vae"), and its measurements under `keys` by angle. Raises
    `NotMeasuredError` if the sweep is missing, or lacks an angle at which another run was measured.
    """
    found = sweeps(results)
    angles = {angle for sweep in found.values() for angle in sweep.items}
    sweep = found.get(results.evidence.generative.sweep.get(role, ""))
    measured = sweep.measured(*keys) if sweep else {}
    if not sweep or measured.keys() != angles:
        raise NotMeasuredError(f"no complete sweep of {role}")
    return sweep, measured


def rises(values: Sequence[Measured]) -> bool:
    """Whether the last value exceeds the first, and no value is below the one before by more than the larger sd."""
    no_fall = all(after.mean >= before.mean - max(before.sd, after.sd) for before, after in pairwise(values))
    return no_fall and values[-1].mean > values[0].mean


def groups(compared: Mapping[str, str], names: Collection[str]) -> list[list[str]]:
    """Divide the runs `names` into groups to show together. The first group has the runs with the roles capsules, SCAE
    and VAE in `compared` (runs by role). Every other run is a group of its own.
    """
    together = [run for role in ("capsules", "scae", "vae") if (run := compared.get(role, "")) in names]
    alone = [[name] for name in names if name not in together]
    return [together, *alone] if together else alone


def classes_of(numbers: Numbers, run: str) -> int:
    """Number of classes of the images that a run was trained on."""
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
    """The finding about a claim that rests on one run. `document` (a name in `documents.yaml`) and `tested` (the number
    of test images) are passed to the function `remarks`. If `tested` is None, the numbers of test images and of
    seeds are not compared with the paper's. `more` are further fields of `Finding`.
    """
    settings, dataset = _reached(numbers.run(run)), numbers.dataset_of(run)
    replicas = None if tested is None else ours.n
    said = remarks("generative", document, settings, dataset, replicas=replicas, tested=tested)
    return Finding(ours, with_training(results, numbers, run), remarks=said, **more)


def _reached(run: Recorded) -> Recorded:
    """A run's settings, without the `seeding` of objects from parts if training ends before `seeding_epoch`."""
    if run.model.get("seeding_epoch", 0) < run.training.epochs:
        return run
    return Recorded({**run, "model": {name: run.model[name] for name in run.model if not name.startswith("seeding")}})


def swept_shortcomings(items: Iterable[Numbers], *, seeds: int | None = None) -> list[Remark]:
    """Remarks on differences between the runs of a sweep and the paper's runs, without repetitions. `seeds` is the
    number of replicas. If it is None, the numbers of test images and of seeds are not compared with the paper's.
    """
    found = []
    for numbers in items:
        run, dataset = numbers.trained.run, numbers.dataset_of(numbers.settings.item.run)
        settings = {**_reached(run), "training_share": numbers.settings.sweep.training_share}
        tested = None if seeds is None else dataset.test
        found += remarks("generative", _SWEPT[run.variant], settings, dataset, replicas=seeds, tested=tested)
    return unique(found)


def tested_on(numbers: Numbers, run: str, images: int) -> str:
    """A note on the number of test images, for claims whose number of images the paper does not give."""
    return f"on {min(images, numbers.dataset_of(run).test):,} test images"


def name_of_test(test: str) -> str:
    """The readable name of a test set: "0°", "±45°", "affine"."""
    if not test.startswith("rotated_"):
        return test
    angle = float(test.removeprefix("rotated_"))
    return f"{'±' * (angle != 0)}{angle:g}°"
