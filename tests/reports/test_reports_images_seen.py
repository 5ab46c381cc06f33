"""Errors on smallNORB by images seen: what is drawn and listed from made-up results of matrix capsules."""

from __future__ import annotations

from typing import Any

import made_up_matrix
import matplotlib
import numpy as np
import pandas as pd
import pytest
from made_up import Writer
from made_up_matrix import evaluated, trained, with_matrix
from recorded import recorded
from test_reports_figures import words

from pipeline.drawing import style
from pipeline.drawing.drawings import Drawing, Written
from pipeline.params import parse_params
from pipeline.results.public_curves import load_public_curves
from pipeline.results.reading import Results
from pipeline.systems.matrix_capsules.report.figures import draw
from pipeline.systems.matrix_capsules.report.images_seen import seen_by_runs

NAME = "matrix-images-seen"
IMAGES = 20 * 6400 / 1e6
"""Millions: 20 epochs of the made-up training images."""


@pytest.fixture
def values(values: dict[str, Any]) -> dict[str, Any]:
    return with_matrix(values, norb="smallnorb", copied="smallnorb48", posed="smallnorb48-posed")


def results_of(writer: Writer, values: dict[str, Any], errors: dict[str, float], **more: dict[str, Any]) -> Results:
    """Results of runs on `norb` with these errors.

    Args:
        more: settings of a run that are others, its model's under `model`.
    """
    for name, error in errors.items():
        of_run = more.get(name, {})
        run = made_up_matrix.run("matrix_capsules", "norb", **of_run.get("model", {}))
        values["runs"][name] = run | {key: value for key, value in of_run.items() if key != "model"}
        evaluated(writer, name, error, error)
        trained(writer, name, 1 - error)
    return recorded(writer.results, parse_params(values))


def with_watched(results: Results, name: str) -> np.ndarray:
    """Give a run test errors after every epoch, one point apart between its seeds; return their means in percent."""
    path = results.records / "train" / f"{name}.csv"
    table = pd.read_csv(path)
    means = 0.1 + 0.4 * np.exp(-table["epoch"] / 5)
    table.assign(test_accuracy=1 - means - 0.005 + 0.01 * table["replica"]).to_csv(path, index=False)
    return 100 * means[:20].to_numpy()


def figure_of(results: Results) -> Drawing | None:
    return next((each for each in draw(results, Written()) if each.name == NAME), None)


def test_errors_stand_at_epochs_times_training_images(writer: Writer, values: dict[str, Any]) -> None:
    results = results_of(writer, values, {"a": 0.1, "b": 0.05})
    best, other = seen_by_runs(results)
    assert [each.trial.item for each in (best, other)] == ["b", "a"]
    assert best.images == pytest.approx(IMAGES)
    assert (best.error.mean, best.error.n) == (pytest.approx(5), 2)
    assert best.curve.empty
    drawing = figure_of(results)
    assert drawing is not None
    assert {record["stage"] for record in drawing.records} == {"train", "evaluate"}
    (axis,) = drawing.figure().axes
    points = [bar for bar in axis.containers if bar.lines[0].get_xdata() == pytest.approx([IMAGES])]
    assert sorted(float(bar.lines[0].get_ydata()[0]) for bar in points) == pytest.approx([5, 10])
    assert (axis.get_xscale(), axis.get_yscale()) == ("log", "log")


def test_watched_test_images_are_a_line_by_epoch(writer: Writer, values: dict[str, Any]) -> None:
    results = results_of(writer, values, {"a": 0.1})
    means = with_watched(results, "a")
    (found,) = seen_by_runs(results)
    np.testing.assert_allclose(found.curve["x"], np.arange(1, 21) * 6400 / 1e6)
    np.testing.assert_allclose(found.curve["y"], means)
    drawing = figure_of(results)
    assert drawing is not None
    lines = [np.asarray(line.get_ydata(), float) for line in drawing.figure().axes[0].get_lines()]
    assert any(len(line) == 20 and np.allclose(line, means) for line in lines)


@pytest.mark.parametrize("watched", [False, True])
def test_no_words_lie_on_each_other_or_outside(writer: Writer, values: dict[str, Any], watched: bool) -> None:
    names = [f"matrix-of-a-long-name-{place}" for place in range(7)]
    results = results_of(writer, values, {name: 0.05 + 0.01 * place for place, name in enumerate(names)})
    if watched:
        with_watched(results, names[0])
    drawing = figure_of(results)
    assert drawing is not None
    with matplotlib.rc_context(style.RC):
        figure = drawing.figure()
        boxes = words(figure)
    page = figure.bbox
    for place, (text, box) in enumerate(boxes):
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, text  # noqa: PT018
        overlapped = [other for other, its in boxes[:place] if box.overlaps(its)]
        assert not overlapped, f"{text} on {overlapped}"


def test_points_read_off_a_plot_are_open_and_shapes_are_iterations(writer: Writer, values: dict[str, Any]) -> None:
    results = results_of(writer, values, {"two": 0.1, "three": 0.2}, two={"model": {"iterations": 2}})
    drawing = figure_of(results)
    assert drawing is not None
    (axis,) = drawing.figure().axes
    lines = axis.get_lines()
    public = {curve.points[0]: curve for curve in load_public_curves()}
    drawn = {}
    for line in lines:
        points = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        if points and (curve := public.get(tuple(map(float, points[0])))):  # type: ignore[arg-type]
            drawn[curve.name] = line
            assert (line.get_markerfacecolor() == "white") == (curve.read == "read off a plot")
    ours = {
        handle.get_label().partition(",")[0]: handle.get_marker()
        for handle in drawing.figure().legends[0].legend_handles
    }
    assert ours["two"] == drawn["IBM, 2 iterations"].get_marker() != ours["three"]
    assert ours["three"] == drawn["Officium"].get_marker()
