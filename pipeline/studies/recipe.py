"""What single changes of the training result in, by the error on objects that it is not trained on.

Settings are chosen by this error, never on test images: for each value of a factor in turn, the training images of that
value validate. Each network is judged at the end of training, not at its best epoch: that would be chosen by the error
that is reported. A final run, whose validation images are of known objects, keeps the weights of their lowest loss.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pipeline.classification.settings import CroppedRun, RecipeParams
from pipeline.data.holdout import KNOWN
from pipeline.learning.gradient import Trained
from pipeline.results.outcome import MOST_HEADLINES, Outcome
from pipeline.results.spread import spread
from pipeline.studies.context import Context

ERRORS = {"new": "validation_accuracy", "known": f"{KNOWN}_accuracy", "train": "train_accuracy"}
"""The errors that are kept, and the accuracies in a training's history that they come from."""


def measure(context: Context) -> Outcome:
    """Train the run of an entry of `recipe` in every condition, without each of the values held out."""
    settings: RecipeParams = context.settings
    unchanged = context.params.runs[settings.run]
    assert isinstance(unchanged, CroppedRun)  # params.yaml was checked
    measured = {}
    for condition in settings.conditions:
        run = settings.changed(unchanged, condition)
        measured[condition] = {
            value: errors(context.train(f"{condition}-{value}", settings.without(run, value), key=condition).trained)
            for value in settings.held_out
        }
    return outcome(measured)


def errors(trained: Trained) -> list[dict[str, float]]:
    """Errors in [0, 1] and the seconds of training, of each seed.

    Returns:
        by name: new and known, after the last epoch (known only if a share of such images is left out of training);
        train, the mean over the last epoch, on augmented images; seconds, the mean over seeds.
    """
    last = trained.history.groupby("replica").tail(1)
    measured = [name for name, column in ERRORS.items() if name != "known" or column in last]
    seconds = trained.seconds / len(last)
    return [
        {name: 1 - float(row[ERRORS[name]]) for name in measured} | {"seconds": seconds} for _, row in last.iterrows()
    ]


def outcome(measured: Mapping[str, Mapping[int, list[dict[str, float]]]]) -> Outcome:
    """What was measured in every condition.

    Args:
        measured: by condition and held-out value, what `errors` returns.
    """
    rows = [
        (condition, value, replica, metric, number)
        for condition, by_value in measured.items()
        for value, by_replica in by_value.items()
        for replica, numbers in enumerate(by_replica)
        for metric, number in numbers.items()
    ]
    table = pd.DataFrame(rows, columns=["condition", "held_out", "replica", "metric", "value"])
    numbers = {
        condition: {metric: spread(values) for metric, values in own.groupby("metric", sort=False)["value"]}
        for condition, own in table.groupby("condition", sort=False)
    }
    headline = tuple(f"condition.{condition}.new" for condition in measured)[:MOST_HEADLINES]
    return Outcome("recipe", table, {"condition": numbers}, headline)
