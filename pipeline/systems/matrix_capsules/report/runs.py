"""The results of document 004's networks, each with the settings that it recorded, and words that all questions share.

A trial is a trained network with its numbers: a run of `runs`, or a condition of an entry of `ablation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pipeline.drawing.style import BLUE, PURPLE
from pipeline.results.measured import Measured
from pipeline.results.reading import NotMeasuredError, Numbers, Recorded, Results, natural

BOTH = ("matrix_capsules", "cnn")
"""Variants of the document's networks."""
NETWORKS = {"capsules": "capsules", "cnn": "CNN"}
"""Both networks of a study, and how they are called."""
LOOKS = {"capsules": (BLUE, "o"), "cnn": (PURPLE, "v")}
"""Colour and marker of either network."""
SOURCES = ("smallnorb", "smallnorb48", "smallnorb48-posed", "toys")
"""Of the paper's main data set: itself, copies of it, and what stands in for it."""
CLASSES = ("animal", "human", "airplane", "truck", "car")
"""Of smallNORB, by label. As `data.published.CATEGORIES`, but a figure does not depend on how data are read."""
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


def runs(results: Results, *variants: str) -> list[Trial]:
    """The runs of these variants that were evaluated, in the variants' order and by name."""
    found = [
        Trial("evaluate", name, name, numbers, numbers.run(name), numbers.dataset_of(name), name, {})
        for name, numbers in results.executed("evaluate")
    ]
    return [trial for variant in variants for trial in found if trial.run.variant == variant]


def ablations(results: Results) -> Iterator[Trial]:
    """The conditions of all ablations that were executed, by the ablation's name and then their own."""
    for item, whole in results.executed("ablation"):
        study = whole.settings.ablation[item]
        for name in sorted(whole.names("condition"), key=natural):
            run, changes = whole.trained[name], study.conditions[name]
            dataset = whole.settings.datasets[run.dataset]
            yield Trial("ablation", item, name, whole.part("condition", name), run, dataset, study.run, changes)


def trial_of(results: Results, network: str | None) -> Trial:
    """The trial of a network as evidence names it: a run, or <ablation>/<condition>. `NotMeasuredError` without it."""
    item, _, condition = (network or "").partition("/")
    trials = ablations(results) if condition else runs(results, *BOTH)
    for trial in trials:
        if (trial.item, trial.name) == (item, condition or item):
            return trial
    raise NotMeasuredError(f"{network} is not there")


def trained_on(run: Recorded) -> str:
    """What a run's images are trained as, in words."""
    return "crops and warps" if any(run.augmentation.get(name) for name in _WARPS) else "crops"


def class_names(settings: Recorded, dataset: Recorded, outputs: int) -> tuple[str, ...]:
    """Names of a network's `outputs`, of which data may have fewer: smallNORB's, those of own images, or numbers."""
    if dataset.source in SOURCES:
        return CLASSES
    own = settings.get("own_images", {}).get(dataset.source, {}).get("classes", [])
    return (*own, *map(str, range(len(own), outputs)))


def in_percent(share: Measured) -> str:
    """A share in words, such as "3.1 %"."""
    return f"{100 * share.mean:.1f} %"
