"""How far a training came, and whether it still learns, from made-up histories."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from records import ResultFiles

from pipeline.results.findings import Learned, learned, stalled
from pipeline.results.reading import Recorded

EPOCHS = 16


def history(train: float = 0.9, last: float = 0.8, epochs: int = EPOCHS, **more: Any) -> pd.DataFrame:
    """Two seeds, whose validation accuracies are `last` in the last eighth, with a point between the seeds, and 0.7
    before; the training accuracy of the last epoch is `train`, before it 0.5.
    """
    part = epochs // 8
    of_seeds = []
    for seed in (0, 1):
        training = np.where(np.arange(epochs) == epochs - 1, train, 0.5)
        validation = np.where(np.arange(epochs) >= epochs - part, last + 0.01 * seed, 0.7)
        columns = {"train_accuracy": training, "validation_accuracy": validation, **more}
        of_seeds.append(pd.DataFrame({"replica": seed, "epoch": np.arange(1, epochs + 1), **columns}))
    return pd.concat(of_seeds)


def write(files: ResultFiles, table: pd.DataFrame, mixup: float = 0.0, **run: Any) -> Learned | None:
    """What is learned of a run with this history; `run` are settings of it."""
    training = {"epochs": EPOCHS, "patience": EPOCHS}
    runs = {"net": {"dataset": "norb", "training": training, "model": {"mixup": mixup}, **run}}
    settings = {"runs": runs, "datasets": {"norb": {"train": 1000, "validation": 300, "test": 400}}}
    for stage in ("train", "evaluate"):
        files.numbers(stage, "net", {}, settings=settings)
    files.table("train", "net", table)
    numbers = files.results.numbers("evaluate", "net")
    assert numbers is not None
    return learned(files.results, numbers, "net")


def short_and_long() -> pd.DataFrame:
    """The first seed stopped after half of the epochs."""
    short, longer = history(train=0.7, epochs=8), history()
    return pd.concat([short[short["replica"] == 0], longer[longer["replica"] == 1]])


WATCHED = history(test_accuracy=np.linspace(0, 0.75, EPOCHS))


@pytest.mark.parametrize(
    ("table", "run", "expected"),
    [
        (history().sample(frac=1, random_state=0), {}, Learned(10, "validation", 30, 19.5, 300)),
        (WATCHED, {"watched": 1000}, Learned(10, "test", 37.5, 27.5, 400)),  # no more than there are
        (short_and_long(), {}, Learned(20, "validation", 30, 19.5, 300)),
        (history(), {"holdout": {"factor": "instance"}}, Learned(10)),  # how many were held out is not known
        (history(epochs=7), {}, Learned(10)),
        (history(), {"mixup": 0.2}, Learned(None, "validation", 30, 19.5, 300)),
    ],
    ids=["mixed rows", "watched test images", "a seed stopped early", "held out", "few epochs", "mixed images"],
)
def test_errors_are_means_over_the_last_epochs_and_over_seeds_in_percent(
    files: ResultFiles, table: pd.DataFrame, run: dict[str, Any], expected: Learned
) -> None:
    found = write(files, table, **run)
    assert found is not None
    assert (found.measured, found.images) == (expected.measured, expected.images)
    errors = [(each.training_error or 0, each.before, each.last) for each in (found, expected)]
    assert errors[0] == pytest.approx(errors[1])
    assert (found.training_error is None) == (expected.training_error is None)


# ---- a training that no longer learns

RUN = Recorded({"training": {"gradient_clip": 5.0}, "model": {"classes": 5}})
GUESSES, NO_GRADIENT, CLIPPED = "no better than guessing", "gradient is 0", "above training.gradient_clip, 5,"


def gradients(norms: list[float], accuracies: list[float] | None, replica: int = 0) -> pd.DataFrame:
    columns = {"replica": replica, "epoch": range(1, len(norms) + 1), "train_gradient_norm": norms}
    return pd.DataFrame(columns | ({} if accuracies is None else {"validation_accuracy": accuracies}))


@pytest.mark.parametrize(
    ("norms", "accuracies", "told"),
    [
        ([9.0, 3.0], [0.2, 0.9], []),
        ([9.0, 3.0], None, []),
        ([3.0], [0.2], []),
        ([3.0, 3.0], [0.7, 0.215], [GUESSES]),
        ([3.0, 3.0], [0.7, 0.25], []),
        ([3.0, 3.0], [0.1, 0.05], [GUESSES]),
        ([0.0, 3.0], None, []),
        ([3.0, 0.0], None, [NO_GRADIENT]),
        ([9.0, 5.1], [0.8, 0.9], [CLIPPED]),
        ([3.0, 0.0], [0.2, 0.2], [GUESSES, NO_GRADIENT]),
    ],
)
def test_a_training_that_no_longer_learns_is_told_by_its_epochs(
    norms: list[float], accuracies: list[float] | None, told: list[str]
) -> None:
    found = stalled(gradients(norms, accuracies), RUN)
    assert [words for words in (GUESSES, NO_GRADIENT, CLIPPED) if words in found] == told


def test_seeds_that_learn_are_counted() -> None:
    table = pd.concat([gradients([3.0, 3.0], [0.2, 0.9]), gradients([9.0, 9.0], [0.2, 0.2], replica=1)])
    found = stalled(table, RUN)
    assert found.count("1 of 2 seeds") == 2
    assert GUESSES in found
    assert CLIPPED in found
