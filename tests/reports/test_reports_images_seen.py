"""Errors on smallNORB by images seen: what is drawn and listed from made-up results of matrix capsules."""

from __future__ import annotations

from typing import Any

import made_up_matrix
import numpy as np
import pandas as pd
import pytest
from made_up import Writer, recorded
from made_up_matrix import evaluated, trained, with_matrix

from pipeline.drawing.drawings import Written
from pipeline.params import parse_params
from pipeline.systems.matrix_capsules.report.images_seen import draw, seen_by_runs

IMAGES = 20 * 6400 / 1e6
"""Millions: 20 epochs of the made-up training images."""


def test_errors_stand_at_epochs_times_training_images(writer: Writer, values: dict[str, Any]) -> None:
    """Two runs, one of them with watched test images: a point a run, and a line by epoch."""
    values = with_matrix(values, norb="smallnorb")
    for name, error in (("a", 0.1), ("b", 0.05)):
        values["runs"][name] = made_up_matrix.run("matrix_capsules", "norb")
        evaluated(writer, name, error, error)
        trained(writer, name, 1 - error)
    results = recorded(writer.results, parse_params(values))
    path = results.records / "train" / "a.csv"
    table = pd.read_csv(path)
    means = 0.1 + 0.4 * np.exp(-table["epoch"] / 5)
    table.assign(test_accuracy=1 - means - 0.005 + 0.01 * table["replica"]).to_csv(path, index=False)
    best, other = seen_by_runs(results)
    assert [each.trial.item for each in (best, other)] == ["b", "a"]
    assert best.images == pytest.approx(IMAGES)
    assert (best.error.mean, best.error.n) == (pytest.approx(5), 2)
    assert best.curve.empty
    np.testing.assert_allclose(other.curve["x"], np.arange(1, 21) * 6400 / 1e6)
    np.testing.assert_allclose(other.curve["y"], 100 * means[:20])
    (drawing,) = draw(results, Written())
    assert {record["stage"] for record in drawing.records} == {"train", "evaluate"}
    (axis,) = drawing.figure().axes
    points = [bar for bar in axis.containers if bar.lines[0].get_xdata() == pytest.approx([IMAGES])]
    assert sorted(float(bar.lines[0].get_ydata()[0]) for bar in points) == pytest.approx([5, 10])
    lines = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()]
    assert any(len(line) == 20 and np.allclose(line, 100 * means[:20]) for line in lines)
