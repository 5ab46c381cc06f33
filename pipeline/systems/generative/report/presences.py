"""Notes and a table on how much information the presences of objects carry about the image.

A probe on log odds does not measure this information, because standardising log odds enlarges small differences. Nor
does a probe on relaxed samples (between 0 and 1), because their distances from 0 and 1 reveal the log odds. Binary
samples show only whether an object is present. The table also has shorter runs with changed settings.
"""

import math
from collections.abc import Mapping

from pipeline.drawing.table import Row, Table, cells, in_words, measured_table
from pipeline.results.measured import Measured
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report.shared import classes_of

SILENT_NATS = 0.1
"""Presences with fewer nats of information than this are silent. To tell ten classes apart takes log 10 = 2.3 nats."""
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
"""The measurement, or None, for each column of `_HEADS`. Accuracies of probes are in percent, on clean images."""


def measured(numbers: Numbers) -> Found:
    """The measurements of a run's presences, by column of `_HEADS`. `numbers` is the evaluation of the run."""
    probes = {name: numbers.measured("probe", name, "refit", "rotated_0") for name in _HEADS}
    return cells(numbers, _HEADS, "test") | {name: found.scaled(100) for name, found in probes.items() if found}


def silence(found: Found, classes: int) -> str | None:
    """Why presences are silent, in words, or None if they are not known to be. They are silent if their information is
    below `SILENT_NATS`, or if a probe tells the class (one of `classes`) from log odds but not from binary samples.
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
    """Notes on an evaluated run. If its presences are silent, the first note is a warning. The last note gives the
    accuracies of probes on samples, and the information of presences. If one of these is missing, there are no notes.
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
    """A list with one table, or none. Its rows are runs, conditions of ablations and tried values of a setting."""
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
        "Epochs in `changed` are as for the full run. In studies of one setting, a changed floor of pose sds scales "
        "the initial sd and that of absent parts, too, and a changed temperature scales both temperatures. Probe: "
        "accuracy of refit probes on a sample of t0 (binary or relaxed), on log odds, and on log odds and the mean of "
        "A0. Only a binary sample hides the log odds. I(t0; x): mutual information of t0 and the image "
        f"(distinguishing ten classes takes {math.log(10):.1f}). Sum over objects: an upper bound of I(t0; x). SCAE "
        "does not sample presences, so the sum takes them as probabilities. Information and KL are in nats. KLs to "
        "different priors cannot be compared. Pixel error: squared, summed over an image. Silent: I(t0; x) is below "
        f"{SILENT_NATS:g}, or a probe on binary samples is at most {NEAR_CHANCE:g} points above chance, but a probe "
        f"on log odds at least {READABLE:g} points above chance."
    )
    keys = ["run", "epochs", "changed", "presences"]
    return measured_table("presences", "Do presences carry information?", caption, keys, _HEADS, rows)


def _nats(value: Measured) -> str:
    return f"{max(value.mean, 0.0):.2f}"  # an estimate around zero may be negative
