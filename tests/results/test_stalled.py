"""What is said of a training that no longer learns."""

from __future__ import annotations

import pandas as pd
import pytest

from pipeline.results.findings import stalled
from pipeline.results.reading import Recorded

RUN = Recorded({"training": {"gradient_clip": 5.0}, "model": {"classes": 5}})
GUESSES, NO_GRADIENT, CLIPPED = "no better than guessing", "gradient is 0", "above training.gradient_clip, 5,"


def history(norms: list[float], accuracies: list[float] | None, replica: int = 0) -> pd.DataFrame:
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
    found = stalled(history(norms, accuracies), RUN)
    assert [words for words in (GUESSES, NO_GRADIENT, CLIPPED) if words in found] == told


def test_seeds_that_learn_are_counted() -> None:
    table = pd.concat([history([3.0, 3.0], [0.2, 0.9]), history([9.0, 9.0], [0.2, 0.2], replica=1)])
    found = stalled(table, RUN)
    assert found.count("1 of 2 seeds") == 2
    assert GUESSES in found
    assert CLIPPED in found
