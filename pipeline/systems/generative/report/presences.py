"""Whether the presences of a run carry information, and what settings contribute: notes for claims, and tables.

A probe on standardised log odds does not show it, and a relaxed sample leaks a trace of them: only a sample that is 0
or 1 is what a capsule that is there or not there can tell.
"""

from __future__ import annotations

import math

from pipeline.drawing.table import Row, Table, cells, in_words, measured_table
from pipeline.results.measured import Measured
from pipeline.results.reading import Numbers, Results
from pipeline.systems.generative.report.shared import classes_of

SILENT_NATS = 0.1
"""Presences with less information than this are silent. To tell ten classes apart takes log 10 = 2.3 nats."""
NEAR_CHANCE = 10.0
"""Points above chance up to which a probe on samples says next to nothing, ..."""
READABLE = 30.0
"""... where the probe on log odds is so many points or more above chance."""


def silence(numbers: Numbers, classes: int) -> str | None:
    """Why presences are silent, in words; None if they are not, or if too little was measured in the evaluation of a
    run on images of so many classes.
    """
    information = numbers.measured("test", "presence_information")
    if information and information.mean < SILENT_NATS:
        needed = f"to tell {classes} classes apart takes {math.log(classes):.1f}"
        return f"presences carry next to no information: {_nats(information)} nats ({needed})"
    sampled, log_odds = _probe(numbers, "t0_binary"), _probe(numbers, "t0")
    chance = 100 / classes
    if sampled and log_odds and sampled.mean <= chance + NEAR_CHANCE and log_odds.mean >= chance + READABLE:
        probes = f"probe on samples {sampled.mean:.1f} %, on standardised log odds {log_odds.mean:.1f} %"
        return f"samples of presences say next to nothing about the class: {probes}"
    return None


def notes(numbers: Numbers, run: str) -> list[str]:
    """What the evaluation of a run measured of its presences, as notes; none if it lacks these numbers."""
    binary, relaxed = _probe(numbers, "t0_binary"), _probe(numbers, "t0_sampled")
    information = numbers.measured("test", "presence_information")
    if not (binary and relaxed and information):
        return []
    said = (
        f"probe on samples that are 0 or 1 {binary.mean:.1f} %, on relaxed samples {relaxed.mean:.1f} % (standardised, "
        f"like the log odds), I(t0; x) {_nats(information)} nats, relaxed"
    )
    return [note for note in (silence(numbers, classes_of(numbers, run)), said) if note]


def notes_of_run(results: Results, run: str, numbers: Numbers) -> list[str]:
    """The notes for a study of a run, from its evaluation; none if that was of other settings than the study's."""
    evaluated = results.numbers("evaluate", run)
    if evaluated and evaluated.run(run) == numbers.run(run) and evaluated.dataset_of(run) == numbers.dataset_of(run):
        return notes(evaluated, run)
    return []


_HEADS = {
    "t0_binary": ("probe: 0 or 1 (%)", 1),
    "t0_sampled": ("probe: relaxed sample (%)", 1),
    "t0": ("probe: log odds (%)", 1),
    "t0_A0": ("probe: log odds, A0 (%)", 1),
    "binary_information": ("I(t0; x), 0 or 1", 2),
    "presence_information": ("I(t0; x), relaxed", 2),
    "presence_information_by_object": ("sum by object", 2),
    "presence_kl": ("KL to the prior", 2),
    "pixel_error": ("pixel error", 2),
}


def build(results: Results) -> list[Table]:
    """What presences tell of the image, for each run and each condition of the ablations; sensitivity."""
    return [*_of_runs(results), *_of_conditions(results), *sensitivity(results)]


def _of_runs(results: Results) -> list[Table]:
    heads = {name: head for name, head in _HEADS.items() if name not in ("t0_A0", "pixel_error")}
    rows: list[Row] = []
    for run, numbers in results.executed("evaluate"):
        found = cells(numbers, heads, "test")
        if any(found.values()):
            found |= {features: _probe(numbers, features) for features in ("t0_binary", "t0_sampled", "t0")}
            why = silence(numbers, classes_of(numbers, run))
            verdict = "silent" if why else "" if found["presence_information"] is None else "informative"
            rows.append(([run, verdict], found, numbers))
    caption = (
        "Whether the presences of objects depend on the image (test images, nats). Probe: accuracy of refit probes on "
        "one sample of t0, as 0 or 1 and relaxed, and on its log odds; only a sample that is 0 or 1 shows the noise "
        "that the model lives with. I(t0; x): mutual information of t0 and the image; telling ten classes apart takes "
        f"{math.log(10):.1f}. Sum by object: an upper bound (of SCAE, which does not sample presences, of binary ones "
        f"with its probabilities). Silent: less than {SILENT_NATS:g} nats, or a probe on samples within "
        f"{NEAR_CHANCE:g} points of chance where that on log odds is {READABLE:g} or more above it."
    )
    return measured_table("presences", "Do presences carry information?", caption, ["run", "presences"], heads, rows)


def _of_conditions(results: Results) -> list[Table]:
    heads = {name: head for name, head in _HEADS.items() if name != "presence_information_by_object"}
    rows: list[Row] = []
    for study, numbers in results.executed("presence_ablation"):
        settings = numbers.settings.presence_ablation[study]
        for condition in numbers.names("condition"):
            found = cells(numbers, heads, "condition", condition)
            changed = in_words(settings.conditions.get(condition, {}))
            rows.append(([study, settings.run, condition, changed], found, numbers))
    caption = (
        "A run trained for fewer epochs with some settings changed (times in epochs of the whole run): accuracy of "
        "probes on one sample of t0, as 0 or 1 and relaxed, on its log odds and on these with the mean of A0 (clean "
        "images); information and KL divergence from the prior in nats; squared pixel error summed over an image. "
        "Divergences from different priors cannot be compared."
    )
    keys = ["study", "run", "condition", "changed"]
    return measured_table(
        "presence-ablation", "Which settings make presences carry information", caption, keys, heads, rows
    )


def sensitivity(results: Results) -> list[Table]:
    """Appendix B: probes and pixel error by the values of each hyperparameter."""
    names = {"pose_sd_floor": "least sd of a part's pose", "pixel_sd": "sd of a pixel", "temperature": "temperature"}
    heads = {"t0": ("t0 (%)", 1), "t0_A0": ("t0 and A0 (%)", 1), "pixel_error": ("pixel error", 1)}
    rows: list[Row] = []
    for name, words in names.items():
        if numbers := results.numbers("sensitivity", name):
            study, own = numbers.settings.sensitivity, numbers.number("own")
            for value in sorted(numbers.names("value"), key=float):
                keys = [study.run, study.epochs, words, float(value), "yes" * (float(value) == own)]
                rows.append((keys, cells(numbers, heads, "value", value), numbers))
    caption = (
        "The run trained for the given number of epochs with one hyperparameter changed and its schedule shortened in "
        "proportion: accuracy of the probes on clean images, squared pixel error summed over an image. Other sds of "
        "poses are scaled with the least sd, the final temperature with the initial one."
    )
    head = ["run", "epochs", "hyperparameter", "value", "the run's own"]
    return measured_table("sensitivity", "Sensitivity to hyperparameters", caption, head, heads, rows)


def _probe(numbers: Numbers, features: str) -> Measured | None:
    """Accuracy (percent) of the refit probe on clean images."""
    accuracy = numbers.measured("probe", features, "refit", "rotated_0")
    return accuracy.scaled(100) if accuracy else None


def _nats(value: Measured) -> str:
    return f"{max(value.mean, 0.0):.2f}"  # an estimate around zero may be negative
