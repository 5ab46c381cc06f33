"""Test errors of matrix capsules and of the convolutional network beside them (document 004), and what changes of a
training come to.
"""

from __future__ import annotations

from pipeline.drawing.table import Row, Table, cells, in_words, measured_table, tables_of
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.report.runs import BOTH, rounded, runs, trained_on

ERRORS = {"centre": ("error, middle (%)", 2), "crops": ("error, 13 crops (%)", 2)}
"""Columns of tables: what was tested, its heading and decimals."""


def build(results: Results) -> list[Table]:
    """Test errors of runs, by data set; and what changes of a training come to on objects that it does not see."""
    rows: dict[str, list[Row]] = {}
    for trial in runs(results, *BOTH):
        keys: list[object] = [trial.item, trial.run.variant.replace("_", " "), trained_on(trial.run)]
        found = cells(trial.numbers, ERRORS, "test")
        rows.setdefault(trial.run.dataset, []).append((keys, found, trial.numbers))
    caption = (
        "Test errors from the middle of an image, and from scores averaged over 13 crops of it (capsules' activations, "
        "the CNN's probabilities)."
    )
    head, title = ["run", "network", "trained on"], "Errors of matrix capsules and the CNN"
    return [*tables_of("matrix-errors", title, caption, head, ERRORS, rows), *_recipes(results)]


def _recipes(results: Results) -> list[Table]:
    heads = {
        "new": ("error, new objects (%)", 1),
        "known": ("known objects (%)", 1),
        "train": ("training images (%)", 1),
    }
    rows: list[Row] = []
    for study, numbers in results.executed("recipe"):
        settings = numbers.settings.recipe[study]
        for condition in numbers.names("condition"):
            parts = settings.conditions.get(condition, {}).values()
            changed = in_words({name: value for part in parts for name, value in part.items()})
            held_out = ", ".join(f"{settings.factor} {value}" for value in settings.held_out)
            epochs = numbers.trained[condition].training.epochs
            seconds = rounded(numbers, "condition", condition, "seconds", "mean")
            keys: list[object] = [settings.run, condition, changed, held_out, epochs, seconds]
            rows.append((keys, cells(numbers, heads, "condition", condition), numbers))
    caption = (
        "Networks trained with something changed in the run. New objects are the images held out, known objects other "
        "images like those trained on: both errors are of the network after its last epoch. That on training images is "
        "the mean over the last epoch, on images as they are augmented, and thus cannot be compared between conditions "
        "that augment differently. Each network counts as a seed, whether its seed or the value held out is another; "
        "seconds are the mean of these trainings. No test image is used."
    )
    head = ["run", "condition", "changed", "held out", "epochs", "seconds"]
    return measured_table("matrix-recipe", "Changes of training, on objects held out", caption, head, heads, rows)
