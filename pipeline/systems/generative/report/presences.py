"""Notes and a table on whether presences carry information about the image.

The table also has runs with changed settings. A probe on log odds does not measure this information, because
standardising log odds enlarges small differences. A probe on relaxed samples does not measure it either, because a
sample's distance from 0 and 1 reveals the log odds. Binary samples show only whether an object is present.
"""

import math
from collections.abc import Mapping

from pipeline.drawing.table import Row, Table, cells, in_words, measured_table
from pipeline.results.measured import Measured
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report.shared import classes_of

SILENT_NATS = 0.1
"""Presences with less information than this are called silent. To tell ten classes apart takes log 10 = 2.3 nats."""
NEAR_CHANCE = 10.0
"""A probe does not tell the class if its accuracy is at most this many points above chance (see `silence`)."""
READABLE = 30.0
"""A probe tells the class if its accuracy is at least this many points above chance."""

_HEADS = {
    "t0_binary": ("probe: 0 or 1 (%)", 1),
    "t0_sampled": ("probe: relaxed sample (%)", 1),
    "t0": ("probe: log odds (%)", 1),
    "t0_A0": ("probe: log odds, A0 (%)", 1),
    "binary_information": ("I(t0; x), 0 or 1", 2),
    "presence_information": ("I(t0; x), relaxed", 2),
    "presence_information_by_object": ("sum over objects", 2),
    "presence_kl": ("KL to the prior", 2),
    "pixel_error": ("pixel error", 2),
}
Found = Mapping[str, Measured | None]
"""Measurements by column of `_HEADS`. The accuracies of probes (percent) are for clean images."""


def measured(numbers: Numbers) -> Found:
    """Measurements of a run's presences from its evaluation."""
    probes = {name: numbers.measured("probe", name, "refit", "rotated_0") for name in _HEADS}
    return cells(numbers, _HEADS, "test") | {name: found.scaled(100) for name, found in probes.items() if found}


def silence(found: Found, classes: int) -> str | None:
    """The reason, in words, to call presences silent, or None. They are silent if their information is below
    `SILENT_NATS`, or if probes tell the class (one of `classes`) from log odds but not from binary samples.
    """
    information, sampled, log_odds = found["presence_information"], found["t0_binary"], found["t0"]
    if information and information.mean < SILENT_NATS:
        needed = f"to distinguish {classes} classes takes {math.log(classes):.1f}"
        return f"presences carry almost no information: {_nats(information)} nats ({needed})"
    chance = 100 / classes
    if sampled and log_odds and sampled.mean <= chance + NEAR_CHANCE and log_odds.mean >= chance + READABLE:
        probes = f"accuracy {sampled.mean:.1f} %, with standardised log odds {log_odds.mean:.1f} %"
        return f"a probe on samples of presences hardly tells the class: {probes}"
    return None


def notes(numbers: Numbers, run: str) -> list[str]:
    """Notes on an evaluated run: a warning if its presences are silent, then the accuracies of probes on samples and
    the information of presences. The list is empty if one of these measurements is missing.
    """
    found = measured(numbers)
    binary, relaxed, information = (found[name] for name in ("t0_binary", "t0_sampled", "presence_information"))
    if not (binary and relaxed and information):
        return []
    samples = (
        f"clean images: probe on samples that are 0 or 1: {binary.mean:.1f} %, on relaxed samples: {relaxed.mean:.1f} "
        f"% (they show log odds, too); information of relaxed samples about the image: {_nats(information)} nats"
    )
    return [note for note in (silence(found, classes_of(numbers, run)), samples) if note]


def build(results: Results) -> list[Table]:
    """A list with one table of runs, conditions of ablations and values of a setting. Empty if there are no results."""
    rows: list[Row] = []

    def add(numbers: Numbers, run: str, epochs: int, changed: str, found: Found) -> None:
        verdict = "informative" if found["presence_information"] else ""
        verdict = "silent" if silence(found, classes_of(numbers, run)) else verdict
        rows.append(([run, epochs, changed, verdict], found, numbers))

    for run, numbers in results.executed("evaluate"):
        found = measured(numbers)
        if found["presence_information"] or found["presence_information_by_object"]:
            add(numbers, run, numbers.run(run).training.epochs, "", found)
    for study, numbers in results.executed("presence_ablation"):
        settings = numbers.settings.presence_ablation[study]
        for condition in numbers.names("condition"):
            changed = in_words(settings.conditions.get(condition, {}))
            found = cells(numbers, _HEADS, "condition", condition)
            add(numbers, settings.run, settings.epochs, changed, found)
    for name, numbers in results.executed("sensitivity"):
        settings, own = numbers.settings.sensitivity, numbers.number("own")
        for value in sorted(numbers.names("value"), key=float):
            changed = in_words({name: float(value)}) + " (the run's own)" * (float(value) == own)
            add(numbers, settings.run, settings.epochs, changed, cells(numbers, _HEADS, "value", value))
    caption = (
        "How much presences of objects depend on the test image, in runs and in shorter runs with changed settings. "
        "Numbers of epochs are given as for the full run. In studies of one number, a changed floor of pose sds scales "
        "the initial sd and that of absent parts, too, and a changed temperature scales both temperatures. Probe: "
        "accuracy of refit probes on a sample of t0 (binary or relaxed), on log odds, and on log odds and the mean of "
        "A0. Only a rounded sample hides the log odds. I(t0; x): mutual information of t0 and the image "
        f"(distinguishing ten classes takes {math.log(10):.1f}). Sum over objects: an upper bound of I(t0; x). SCAE "
        "does not sample presences, so the sum takes them as probabilities. Information and KL are in nats. KLs to "
        "different priors cannot be compared. Pixel error: squared, summed over an image. Silent: I(t0; x) is below "
        f"{SILENT_NATS:g}, or a probe on rounded samples is at most {NEAR_CHANCE:g} points above chance, but a probe "
        f"on log odds at least {READABLE:g} points above chance."
    )
    keys = ["run", "epochs", "changed", "presences"]
    return measured_table("presences", "Do presences carry information?", caption, keys, _HEADS, rows)


def _nats(value: Measured) -> str:
    return f"{max(value.mean, 0.0):.2f}"  # an estimate around zero may be negative
