"""What the reports of document 000 share: its results, how far their settings are from the paper's, and how accuracies
are drawn.

Every result is described by the settings that it recorded.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pipeline.data.settings import PUBLISHED
from pipeline.drawing.features import Look, look
from pipeline.drawing.style import FAINT
from pipeline.results.documents import remarks
from pipeline.results.findings import Finding
from pipeline.results.measured import Measured
from pipeline.results.provenance import Record, unique
from pipeline.results.reading import Numbers, Recorded, ResultError, Results, with_training

COMPARED = ("generative", "scae", "vae")
"""The systems that document 000 probes. Classifiers are probed too, but have their own tables."""
FEATURES_DRAWN = ("t0", "t0_A0", "posterior", "mu_sigma")
"""The features in Table 1 and Figure 4; other features that were probed are in the tables."""
ACCURACY = "accuracy (%)"
CHANCE = Line2D([], [], color=FAINT, linestyle=":", linewidth=0.8, label="chance")
_SWEPT = {"generative": "swept_capsules", "scae": "swept_scae", "vae": "swept_vae"}
"""By variant, the settings of the paper for a run of the sweep."""


# ---- results


def evaluated(results: Results) -> dict[str, Numbers]:
    """The evaluated runs of the systems compared, by name."""
    return {run: numbers for run, numbers in results.executed("evaluate") if numbers.run(run).variant in COMPARED}


def evaluated_capsules(results: Results) -> tuple[str, Numbers]:
    """The run of capsules behind Table 1 and its evaluation. Raises `NotMeasuredError` if there is none."""
    return results.answering("evaluate", results.evidence.generative.table_1.get("capsules"))


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


def sweeps(results: Results) -> dict[str, Sweep]:
    """Every run that was swept, by name."""
    items: dict[str, dict[float, Numbers]] = {}
    for _, numbers in results.executed("sweep"):
        item = numbers.settings.item
        items.setdefault(item.run, {})[float(item.angle)] = numbers
    return {run: Sweep(run, dict(sorted(by_angle.items()))) for run, by_angle in items.items()}


def complete_sweep(results: Results, run: str | None, *keys: str) -> tuple[Sweep, dict[float, Measured]] | None:
    """The sweep of a run and its measurements under `keys`; None unless these are there at all angles of any sweep."""
    found = sweeps(results)
    angles = {angle for sweep in found.values() for angle in sweep.items}
    sweep = found.get(run or "")
    measured = sweep.measured(*keys) if sweep else {}
    return (sweep, measured) if sweep and measured.keys() == angles else None


def groups(compared: Mapping[str, str], names: Collection[str]) -> list[list[str]]:
    """Runs to show together, of those called `names`: the capsules, SCAE and VAE that evidence compares, and every
    other run alone.
    """
    together = [run for role in ("capsules", "scae", "vae") if (run := compared.get(role, "")) in names]
    alone = [[name] for name in names if name not in together]
    return [together, *alone] if together else alone


# ---- settings


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


def shortcomings(
    numbers: Numbers, run: str, document: str = "capsules", *, replicas: int | None = None, tested: int | None = None
) -> list[str]:
    """In what a run that a result rests on falls short of the paper's (arguments as of `remarks`)."""
    settings, dataset = _reached(numbers.run(run)), numbers.dataset_of(run)
    return remarks("generative", document, settings, dataset, replicas=replicas, tested=tested)


def answer(
    results: Results,
    numbers: Numbers,
    run: str,
    ours: Measured,
    document: str = "capsules",
    *,
    replicas: int | None = None,
    tested: int | None = None,
    **more: Any,
) -> Finding:
    """What a result finds about a claim that rests on one run (document, replicas, tested as of `shortcomings`).

    Args:
        more: fields of `Finding`.
    """
    said = shortcomings(numbers, run, document, replicas=replicas, tested=tested)
    return Finding(ours, with_training(results, numbers, run), remarks=said, **more)


def _reached(run: Recorded) -> Recorded:
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
        settings = {**_reached(run), "training_share": numbers.settings.sweep.training_share}
        tested = dataset.test if images is None else min(images, dataset.test)
        found += remarks("generative", _SWEPT[run.variant], settings, dataset, replicas=seeds, tested=tested)
    return unique(found)


def tested_on(numbers: Numbers, run: str, images: int) -> str:
    """How many test images are behind a verdict where the paper does not say how many it used, as a note."""
    return f"on {min(images, numbers.dataset_of(run).test):,} test images"


def other_images(found: Mapping[str, Numbers], group: Sequence[str]) -> str:
    """A note on the runs of a group that were trained on other images than its first run; empty if there are none."""
    words = {}
    for name in group:
        canvas, shift = found[name].dataset_of(name).canvas, found[name].run(name).augmentation.shift
        words[name] = f"{canvas}x{canvas} pixels" + (f" shifted by up to {shift:g}" if shift else "")
    first = words[group[0]]
    differing = [f"{name} on {images}" for name, images in words.items() if images != first]
    return f" ({group[0]} was trained on {first}, {' and '.join(differing)})" if differing else ""


# ---- drawing


def percent(found: Measured) -> tuple[float, float, int]:
    """Mean, sd and n of an accuracy, as a row of the tables that are drawn."""
    return found.mean * 100, found.sd * 100, found.n


def drawn(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Tables of several runs as one, without the features that are not drawn."""
    table = pd.concat(parts, ignore_index=True)
    return table[table["features"].isin(FEATURES_DRAWN)]


def names_of(table: pd.DataFrame) -> str:
    """The features of a table in words."""
    return ", ".join(look(features).name for features in table["features"].unique())


def symbols(table: pd.DataFrame) -> str:
    """What t0 and A0 are, where they are drawn."""
    return " (t0: presences of the objects; A0: their poses)" if {"t0", "t0_A0"} & set(table["features"]) else ""


def name_of_test(test: str) -> str:
    """The readable name of a test set: "0°", "±45°", "affine"."""
    if not test.startswith("rotated_"):
        return test
    angle = float(test.removeprefix("rotated_"))
    return f"{'±' * (angle != 0)}{angle:g}°"


def wide(data: pd.DataFrame, keys: list[str], column: str) -> pd.DataFrame:
    """The `text` of tidy data in a row for each of `keys`, with a column for each value of `column`."""
    return data.pivot_table(index=keys, columns=column, values="text", aggfunc="first", sort=False).fillna("")


def plot_accuracy(axes: Axes, x: pd.Series[float], rows: pd.DataFrame, style: Look, **more: Any) -> None:
    """Means of accuracies over `x`, with bars of one sd where there are several replicas.

    Args:
        rows: columns mean, sd, n.
        more: arguments of `Axes.errorbar`.
    """
    error = rows["sd"].where(rows["n"] > 1)
    looks: Any = {"color": style.colour, "marker": style.marker, "linewidth": 1.2, "elinewidth": 0.8}
    axes.errorbar(x, rows["mean"], yerr=error, **looks, **more)


def accuracy_axis(axes: Axes, chance: float) -> None:
    """From 0 to 100 %, with a line at chance."""
    axes.set_ylim(0, 102)
    axes.set_yticks(range(0, 101, 20))
    axes.axhline(chance, color=FAINT, linewidth=0.8, linestyle=":")


def lines_of(kinds: Iterable[str], more: str = "") -> list[Line2D]:
    """For a legend, the line of each kind of features, and `more` after its name."""
    looks = [look(kind) for kind in kinds]
    return [Line2D([], [], color=each.colour, marker=each.marker, label=f"{each.label}{more}") for each in looks]


def legend_columns(entries: int, most: int) -> int:
    """Columns of a legend: one row if there are at most `most` entries, else rows of about the same length."""
    return math.ceil(entries / math.ceil(entries / most))
