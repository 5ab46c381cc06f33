"""The results of document 000's models: their settings, the sweep over rotations, and how both differ from the paper's.

Every result is described by the settings that it recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline.data.settings import PUBLISHED
from pipeline.results.documents import documents, remarks
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record, unique
from pipeline.results.reading import Numbers, Recorded, ResultError, Results

PAPER_SEEDS: int = documents()["generative"]["capsules"]["replicas"]
_SWEPT = {"generative": "swept_capsules", "scae": "swept_scae", "vae": "swept_vae"}
"""By variant, the settings of the paper for a run of the sweep."""


@dataclass(frozen=True)
class Sweep:
    """What the sweep over rotations measured of one run.

    Attributes:
        items: by angle (degrees), in order.
    """

    run: str
    items: dict[float, Numbers]

    @property
    def first(self) -> Numbers:
        """Those at the narrowest range."""
        return next(iter(self.items.values()))

    @property
    def records(self) -> list[Record]:
        return [record for numbers in self.items.values() for record in numbers.records]

    def measured(self, *keys: str) -> dict[float, Measured]:
        """The measurements under `keys` by angle, without the angles that have none."""
        found = {angle: numbers.measured(*keys) for angle, numbers in self.items.items()}
        return {angle: value for angle, value in found.items() if value is not None}


def classes_of(numbers: Numbers, run: str) -> int:
    """Classes of the images that a run was trained on. Raises `ResultError` where these are not recorded."""
    source = numbers.dataset_of(run).source
    if source in PUBLISHED:
        return PUBLISHED[source].classes
    own = numbers.settings.get("own_images", {}).get(source)
    if own is None:
        raise ResultError.at(numbers.path, f"has settings without the classes of {source}")
    return len(own.classes)


def chance_of(numbers: Numbers, run: str) -> float:
    """Accuracy of a guess, in percent. Raises `ResultError` as `classes_of`."""
    return 100 / classes_of(numbers, run)


def sweeps(results: Results) -> list[Sweep]:
    """Every run that was swept, by name."""
    items: dict[str, dict[float, Numbers]] = {}
    for _, numbers in results.executed("sweep"):
        item = numbers.settings.item
        items.setdefault(item.run, {})[float(item.angle)] = numbers
    return [Sweep(run, dict(sorted(by_angle.items()))) for run, by_angle in items.items()]


def swept_angles(results: Results) -> set[float]:
    """The angles that any run was swept at: a complete sweep has all of them."""
    return {angle for sweep in sweeps(results) for angle in sweep.items}


def sweep_of(results: Results, run: str | None) -> Sweep | None:
    """The sweep of a run; None if it was not swept."""
    return next((sweep for sweep in sweeps(results) if sweep.run == run), None)


def unswept(results: Results, sweep: Sweep, angle: float) -> tuple[Numbers, Measured] | None:
    """The evaluation of the run that was swept, trained on its own images, and its consistency of part use on test
    images within +-angle degrees; None where this was not measured, or the run's own images turn as far.
    """
    numbers = results.numbers("evaluate", sweep.run)
    if numbers is None or numbers.run(sweep.run).augmentation.rotation >= angle:
        return None
    value = numbers.measured("part_use", f"{angle:g}", "consistency")
    return None if value is None else (numbers, value)


def evaluated_capsules(results: Results) -> tuple[str, Numbers] | None:
    """The run of capsules behind Table 1 and its evaluation."""
    return results.answering("evaluate", results.evidence.generative.table_1.get("capsules"))


def shortcomings(
    numbers: Numbers, run: str, document: str = "capsules", *, replicas: int | None = None, tested: int | None = None
) -> list[str]:
    """In what a run that a result rests on falls short of the paper's (arguments as of `remarks`)."""
    settings, dataset = reached(numbers.run(run)), numbers.dataset_of(run)
    return remarks("generative", document, settings, dataset, replicas=replicas, tested=tested)


def reached(run: Recorded) -> Recorded:
    """A run's settings, without those of a seeding that its training does not reach."""
    if run.model.get("seeding_epoch", 0) < run.training.epochs:
        return run
    return Recorded({**run, "model": {name: run.model[name] for name in run.model if not name.startswith("seeding")}})


def swept_shortcomings(items: Iterable[Numbers], *, seeds: int | None = None, images: int | None = None) -> list[str]:
    """In what the runs that a sweep trained fall short of the paper's.

    Args:
        seeds: replicas measured, where the paper averages over several.
        images: test images used, if not all.
    """
    found = []
    for numbers in items:
        run, dataset = numbers.trained.run, numbers.dataset_of(numbers.settings.item.run)
        settings = {**reached(run), "training_share": numbers.settings.sweep.training_share}
        tested = dataset.test if images is None else min(images, dataset.test)
        found += remarks("generative", _SWEPT[run.variant], settings, dataset, replicas=seeds, tested=tested)
    return unique(found)


def tested_on(numbers: Numbers, run: str, images: int) -> str:
    """How many test images are behind a verdict where the paper does not say how many it used, as a note."""
    return f"on {min(images, numbers.dataset_of(run).test):,} test images"
