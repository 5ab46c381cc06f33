"""Matrix capsules in the report: figures and tables from made-up results, whole and with some missing."""

from __future__ import annotations

from typing import Any

import made_up_matrix
import numpy as np
import pandas as pd
import pytest
from made_up import Writer, spread, with_evidence
from made_up_matrix import CONDITIONS, CROPS, evaluated, with_matrix
from made_up_report import write_page
from recorded import recorded

from pipeline import report
from pipeline.data.norb import CATEGORIES
from pipeline.drawing.drawings import Written
from pipeline.drawing.style import to_bytes
from pipeline.params import Params, parse_params
from pipeline.results.measured import Measured
from pipeline.results.reading import Recorded, Results
from pipeline.systems.matrix_capsules.report.curves import Dot
from pipeline.systems.matrix_capsules.report.curves import accuracies as drawn_accuracies
from pipeline.systems.matrix_capsules.report.curves import attacks as drawn_attacks
from pipeline.systems.matrix_capsules.report.curves import conditions as drawn_conditions
from pipeline.systems.matrix_capsules.report.factors import by_factor, matrix
from pipeline.systems.matrix_capsules.report.figures import draw
from pipeline.systems.matrix_capsules.report.pictures import attacked
from pipeline.systems.matrix_capsules.report.pictures import votes as drawn_votes
from pipeline.systems.matrix_capsules.report.runs import CLASSES, class_names
from pipeline.systems.matrix_capsules.report.tables import (
    attacks,
    build,
    conditions,
    errors,
    gradients,
    recipes,
    viewpoints,
)


@pytest.fixture
def params(values: dict[str, Any]) -> Params:
    return parse_params(with_matrix(values))


@pytest.fixture
def studied(writer: Writer, params: Params) -> Writer:
    made_up_matrix.everything(writer)
    return writer


@pytest.fixture
def results(studied: Writer, params: Params) -> Results:
    return recorded(studied.results, params)


def test_figures(results: Results) -> None:
    written = Written()
    drawings = {drawing.name: drawing for drawing in draw(results, written)}
    assert list(drawings) == [
        "matrix-learning-toys",
        "matrix-factors-toys",
        "matrix-conditions-matrix-toys",
        "matrix-votes-matrix-toys",
        "matrix-viewpoints-toys",
        "matrix-attacks-toys",
        "matrix-attacked-toys",
    ]
    for drawing in drawings.values():
        content = to_bytes(drawing.figure(), drawing.kind)
        assert content.startswith(b"<?xml" if drawing.kind == "svg" else b"\x89PNG")
        assert drawing.caption.endswith(".")
        assert drawing.alt.endswith(".")
    assert written.missing == []
    sources = {record["item"] for record in drawings["matrix-conditions-matrix-toys"].records}
    assert sources == {"toys", "matrix-toys", "cnn-toys"}


def test_what_is_drawn_is_what_was_measured(results: Results) -> None:
    figures = {drawing.name: drawing.figure() for drawing in draw(results, Written())}
    ours, papers = figures["matrix-conditions-matrix-toys"].axes
    assert [tick.get_text() for tick in ours.get_yticklabels()] == [
        *(name.replace("-", " ") for name in CONDITIONS), "matrix-toys (20 epochs)", "cnn-toys (CNN)",
    ]  # fmt: skip
    drawn = [float(line.get_xdata()[0]) for line in papers.get_lines()]
    of_conditions = [9.7, 2.2, 1.8, 3.9, 2.9, 2.6, 3.2, 3.2, 5.8, 4.5]
    assert drawn == [*of_conditions, 1.8, 5.2], "colder stands for no row of the paper's"
    assert papers.get_title(loc="left") == "the paper's (other scale)", "30 % are more than thrice 9.7 %"
    assert ours.get_xlim()[1] > 30 > papers.get_xlim()[1]
    general, targeted, _ = figures["matrix-attacks-toys"].axes
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in general.get_lines()}
    np.testing.assert_allclose(lines["CNN, BIM"], [88, 42, 18, 4, 2])
    np.testing.assert_allclose(lines["chance"], 20)
    assert "chance" not in {line.get_label() for line in targeted.get_lines()}
    (elevation,) = figures["matrix-factors-toys"].axes
    rows = [label.get_text() for label in elevation.get_yticklabels()]
    np.testing.assert_allclose(elevation.get_images()[0].get_array()[rows.index("cnn-toys")], [12, 13, 14])
    learning = figures["matrix-learning-toys"].axes[1].get_lines()[0]
    assert float(learning.get_ydata()[-1]) == pytest.approx(100 * (1 - 0.85 + 0.6 * np.exp(-4) + 0.01))


def test_errors_by_factor_are_means_over_seeds() -> None:
    rows = [(0, "centre", 0.5), (0, "lighting-1", 0.5), (1, "lighting-1", 0.7), (0, "azimuth-340", 0.9)]
    found = by_factor(pd.DataFrame(rows, columns=["replica", "test", "accuracy"]))
    assert found[["factor", "value"]].to_numpy().tolist() == [["azimuth", 340], ["lighting", 1]]
    np.testing.assert_allclose(found["error"], [10, 40])


def test_errors_by_factor_are_drawn_as_numbers_the_best_run_first() -> None:
    rows = [("azimuth", 0, 5.2), ("azimuth", 340, 10.0), ("lighting", 1, 40.0)]
    found = pd.DataFrame(rows, columns=["factor", "value", "error"])
    better = found[:2].assign(error=[1.0, 2.0])
    azimuth, lighting = matrix({"a": found, "b": better}).axes
    assert [label.get_text() for label in azimuth.get_xticklabels()] == ["0", "340"]
    assert [label.get_text() for label in azimuth.get_yticklabels()] == ["b", "a"]
    assert [text.get_text() for text in azimuth.texts] == ["1", "2", "5", "10"]
    assert [(text.get_text(), text.get_position()) for text in lighting.texts] == [("40", (0, 1))], "b has no such test"


def test_errors_by_factor_take_as_many_lines_as_their_columns_need() -> None:
    rows = [(factor, value, 1.0) for factor, count in (("azimuth", 18), ("lighting", 6)) for value in range(count)]
    figure = matrix({"a": pd.DataFrame(rows, columns=["factor", "value", "error"])})
    assert [len(line.axes) for line in figure.subfigs] == [1, 1]
    assert [
        len(line.axes) for line in matrix({"a": pd.DataFrame(rows[16:], columns=["factor", "value", "error"])}).subfigs
    ] == [2]


def test_conditions_of_like_errors_have_one_scale() -> None:
    dots = [Dot(name, Measured(error, 0.0, 1), paper) for name, error, paper in (("a", 14.0, 9.7), ("b", 9.0, None))]
    ours, papers = drawn_conditions(dots).axes
    assert ours.get_xlim() == papers.get_xlim()
    assert papers.get_title(loc="left") == "the paper's"


def test_the_papers_error_is_drawn_once_beside_the_cnn_that_answers_for_it(
    studied: Writer, values: dict[str, Any]
) -> None:
    values = with_matrix(values)
    values["runs"]["a-warped"] = values["runs"]["cnn-toys"] | {"augmentation": CROPS | {"rotation": 12.0}}
    evaluated(studied, "a-warped", 0.1, 0.1)
    drawings = {drawing.name: drawing for drawing in draw(recorded(studied.results, parse_params(values)), Written())}
    ours, papers = drawings["matrix-conditions-matrix-toys"].figure().axes
    rows = [tick.get_text() for tick in ours.get_yticklabels()]
    of_cnn = [rows[int(line.get_ydata()[0])] for line in papers.get_lines() if line.get_xdata()[0] == 5.2]
    assert rows[-2:] == ["a-warped (CNN)", "cnn-toys (CNN)"]
    assert of_cnn == ["cnn-toys (CNN)"]


def test_errors_are_logarithmic_from_one_percent_on() -> None:
    table = pd.DataFrame({"epoch": [1, 2, 3], "train_accuracy": [0.6, 0.9, 1.0], "validation_accuracy": [0.9] * 3})
    tables = {"run": (False, table)}
    for axis in drawn_accuracies(tables).axes:
        assert axis.get_yscale() == "symlog"
        assert axis.get_yticks().tolist() == [0, 1, 2, 5, 10, 20]
        assert axis.get_ylim()[0] == 0


def test_matched_networks_do_not_hide_each_other_and_studies_have_one_scale(results: Results) -> None:
    drawings = {drawing.name: drawing for drawing in draw(results, Written())}
    azimuth, elevation = drawings["matrix-viewpoints-toys"].figure().axes
    assert azimuth.get_ylim() == elevation.get_ylim()
    capsules, cnn = (
        next(part for part in azimuth.containers if part.get_label() == f"{name}, matched")
        for name in ("capsules", "CNN")
    )
    assert capsules[0].get_markersize() > 1.5 * cnn[0].get_markersize()
    assert capsules[0].get_zorder() < cnn[0].get_zorder()


def test_votes_end_where_few_are_left() -> None:
    counts = np.zeros((1, 2, 3, 10))
    counts[..., 0], counts[..., 3], counts[..., 9] = 50, 49.5, 0.5
    arrays = {"counts": counts, "edges": np.linspace(0, 5, 11), "images": np.zeros((1, 1, 4, 4))}
    arrays |= {"labels": np.array([0]), "scores": np.eye(3)[:1]}
    assert [axis.get_xlim() for axis in drawn_votes(arrays, ("a", "b", "c")).axes[1:]] == [(0, 2)] * 2


def test_votes_mark_the_right_class_and_the_one_taken_for_it(results: Results) -> None:
    arrays = results.examples("evaluate", "matrix-toys", ["counts"])
    assert arrays is not None
    assert CLASSES == CATEGORIES
    figure = drawn_votes(arrays, CLASSES)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles[::4] == ["animal", "human", "car, taken for airplane"]
    assert titles[1:4] == ["iteration 1", "iteration 2", "iteration 3"]


def test_attacked_images_are_ordered_by_epsilon(results: Results) -> None:
    arrays = results.examples("attack", "toys", [])
    assert arrays is not None
    labels = [axis.get_ylabel().replace("\n", " ") for axis in attacked(arrays).axes[::8]]
    assert labels == [
        "as they are", "capsules, epsilon 0.1", "CNN, epsilon 0.1", "capsules, epsilon 0.4", "CNN, epsilon 0.4",
    ]  # fmt: skip


def test_table_of_errors(results: Results) -> None:
    (table,) = errors(results)
    assert table.name == "matrix-errors-toys"
    assert table.shown["run"].tolist() == ["matrix-toys", "cnn-toys"]
    assert table.shown["error, middle (%)"].tolist() == ["17.00 ± 1.00", "12.00 ± 1.00"]
    assert table.shown["error, 13 crops (%)"].tolist() == ["15.00 ± 1.00", "11.00 ± 1.00"]


def test_warped_runs_are_told_from_others(studied: Writer, values: dict[str, Any]) -> None:
    values = with_matrix(values)
    cnn = values["runs"]["cnn-toys"]
    cnn["augmentation"] = cnn["augmentation"] | {"rotation": 12.0}
    values["attack"] = {}  # whose networks must see the same images
    (studied.results.records / "attack" / "toys.json").unlink()
    results = recorded(studied.results, parse_params(with_evidence(values, "matrix_capsules", attack=None)))
    assert errors(results)[0].shown["trained on"].tolist() == ["crops", "crops and warps"]
    assert set(conditions(results)[0].shown["trained on"]) == {"crops"}
    assert viewpoints(results)[0].shown["trained on"].tolist() == ["crops", "crops and warps"] * 4
    captions = {drawing.name: drawing.caption for drawing in draw(results, Written())}
    for name in ("learning-toys", "factors-toys", "conditions-matrix-toys"):
        assert captions[f"matrix-{name}"].endswith(" Trained on crops and warps: cnn-toys.")


def test_table_1(results: Results) -> None:
    (table,) = conditions(results)
    rows = table.shown.set_index("condition")
    assert list(rows.index) == [*CONDITIONS, "matrix-toys"]
    assert rows["epochs"][["mixing", "matrix-toys"]].tolist() == ["10", "20"]
    assert rows["changed"][["iterations-3", "no-coordinates"]].tolist() == ["nothing", "coordinate addition False"]
    papers = rows["the paper's error (%)"]
    assert papers[["iterations-1", "vector-no-coordinates", "mixing", "colder"]].tolist() == ["9.7", "3.2", "4.5", ""]
    assert rows["error, middle (%)"]["iterations-1"] == "30.00 ± 1.20"
    assert rows["validation accuracy (%)"]["iterations-1"] == "90.00 ± 1.00"
    assert rows[["parameters", "seconds"]].iloc[0].tolist() == ["14210", "130"]
    assert rows[["parameters", "seconds"]].iloc[-1].tolist() == ["310064", "512"]
    assert rows["error, middle (%)"]["matrix-toys"] == "17.00 ± 1.00"
    assert rows["validation accuracy (%)"]["matrix-toys"] == "85.00 ± 1.00"


def test_table_2(results: Results) -> None:
    (table,) = viewpoints(results)
    assert len(table.shown) == 8
    row = table.shown.iloc[1]
    assert row[["study", "read where", "network", "the paper's, familiar (%)", "the paper's, novel (%)"]].tolist() == [
        "azimuth", "matched", "CNN", "3.7", "20",
    ]  # fmt: skip
    assert row[["error, familiar (%)", "error, novel (%)", "epoch"]].tolist() == [
        "10.00 ± 1.00", "26.00 ± 1.00", "26.0 ± 2.0",
    ]  # fmt: skip
    best = table.shown[table.shown["read where"] == "best"]
    assert set(best["the paper's, novel (%)"]) == {""}


@pytest.mark.parametrize(
    ("epsilons", "scale", "ticks"),
    [([0.0, 0.05, 0.4], "linear", None), ([0.0, 0.0025, 0.02, 0.2], "symlog", ["0", "0.01", "0.1"])],
)
def test_epsilons_of_several_orders_are_spread_out(epsilons: list[float], scale: str, ticks: list[str] | None) -> None:
    rows = [
        (network, 0, method, kind, epsilon, 0.5)
        for network in ("capsules", "cnn")
        for method in ("FGSM", "BIM")
        for kind in ("general", "targeted", "black-box")
        for epsilon in epsilons
    ]
    columns = ["network", "replica", "method", "kind", "epsilon", "value"]
    table = pd.DataFrame(rows, columns=columns)
    figure = drawn_attacks(table, 20.0)
    for axis in figure.axes:
        assert axis.get_xscale() == scale
        assert ticks is None or [label.get_text() for label in axis.get_xticklabels()] == ticks


def test_tables_of_attacks(results: Results) -> None:
    (table,) = attacks(results)
    assert len(table.shown) == 3 * 2 * 2
    row = table.shown.iloc[7]
    assert row[["attack", "method", "network", "epsilon 0.4"]].tolist() == [
        "towards another class", "BIM", "CNN", "87.0 ± 1.4",
    ]  # fmt: skip
    (table,) = gradients(results)
    assert table.shown["exactly 0 (%)"].tolist() == ["1.000 ± 0.100", "2.000 ± 0.100"]
    assert table.shown["median of the others (1e-6)"].tolist() == ["20.000 ± 2.000", "1,000.000 ± 100.000"]


def test_what_was_not_run_is_left_to_the_stage_to_name(writer: Writer) -> None:
    written = Written()
    assert list(draw(writer.results, written)) == []
    assert build(writer.results) == []
    assert written.missing == []


def test_all_tables_are_built(results: Results) -> None:
    assert [table.name for table in build(results)] == [
        "matrix-errors-toys", "matrix-conditions-matrix-toys", "matrix-viewpoints", "matrix-attacks-toys",
        "matrix-gradients",
    ]  # fmt: skip


def test_lost_pictures_and_tables_are_named_and_the_rest_is_drawn(studied: Writer, results: Results) -> None:
    for item in ("evaluate/matrix-toys", "attack/toys"):
        (studied.arrays / item / "examples.npz").unlink()
    for item in ("train/cnn-toys", "evaluate/cnn-toys", "viewpoint/azimuth", "attack/toys"):
        (studied.results.records / f"{item}.csv").unlink()
    written = Written()
    names = [drawing.name for drawing in draw(results, written)]
    assert names == [
        "matrix-learning-toys", "matrix-factors-toys", "matrix-conditions-matrix-toys", "matrix-viewpoints-toys",
    ]  # fmt: skip
    assert written.missing == [
        "train/cnn-toys (its table)", "evaluate/cnn-toys (its table)", "evaluate/matrix-toys (its examples)",
        "viewpoint/azimuth (its table)", "attack/toys (its table)", "attack/toys (its examples)",
    ]  # fmt: skip


def test_each_result_is_described_by_its_own_settings(studied: Writer, values: dict[str, Any]) -> None:
    """Some were made before the parameters were changed."""
    values = made_up_matrix.apart(studied, with_matrix(values), "vector")
    recorded(studied.results, parse_params(values))
    values["runs"]["matrix-toys"]["training"] |= {"epochs": 12}
    values["ablation"]["vector"] |= {"epochs": 7, "conditions": {"vector": {"pose": "vector", "iterations": 2}}}
    values["datasets"]["toys"] |= {"test": 400}
    values["attack"]["toys"] |= {"images": 900, "steps": 3}
    changed = ("evaluate/matrix-toys", "ablation/vector", "attack/toys")
    results = made_up_matrix.made_again(studied.results, parse_params(values), *changed)

    (table,) = conditions(results)
    rows = table.shown.set_index("condition")
    assert rows["epochs"][["vector", "mixing", "matrix-toys"]].tolist() == ["7", "10", "12"]
    assert rows["changed"]["vector"] == "pose vector, iterations 2"
    papers = rows["the paper's error (%)"][["vector", "mixing"]].tolist()
    assert papers == ["", "4.5"], "no row has both changes"
    (table,) = attacks(results)
    assert "400 images" in table.caption, "of 900 asked for"
    assert "BIM has 3 steps" in table.caption
    drawings = {drawing.name: drawing for drawing in draw(results, Written())}
    labels = [tick.get_text() for tick in drawings["matrix-conditions-matrix-toys"].figure().axes[0].get_yticklabels()]
    assert {"matrix-toys (12 epochs)", "mixing", "vector"} < set(labels)
    assert "400 or 1,600 test images" in drawings["matrix-factors-toys"].caption
    assert "400 images" in drawings["matrix-attacks-toys"].caption


def test_the_page_shows_them_beside_everything_else(full: Writer, params: Params) -> None:
    made_up_matrix.everything(full)
    tables = {table.name: table for table in report.build(recorded(full.results, params))}
    assert {"matrix-errors-toys", "matrix-conditions-matrix-toys", "matrix-viewpoints", "matrix-attacks-toys"} <= set(
        tables
    )
    training = tables["training"].shown.set_index("run")
    assert training["all parameters"]["matrix-toys"] == "310,064"
    assert training["validation bound"]["matrix-toys"] == ""
    content = write_page(full, params)
    assert "Adversarial attacks on matrix capsules and on the CNN, toys" in content
    assert "learning-capsules-digits" in content


def test_a_recipe_has_a_row_for_each_condition_with_the_mean_over_what_was_held_out(
    writer: Writer, values: dict[str, Any]
) -> None:
    assert recipes(writer.results) == []
    changes = {"unchanged": {}, "warps": {"augmentation": {"rotation": 20}, "model": {"iterations": 3}}}
    study = {"run": "matrix-toys", "factor": "instance", "held_out": [4, 6], "known_share": 0.1}
    study |= {"replicas": 1, "epochs": 5}
    values = with_matrix(values) | {"recipe": {"toys": study | {"conditions": changes}}}
    numbers = {
        name: {"new": spread(0.2, 0.01), "known": spread(0.05, 0.0), "seconds": spread(61.2, 3.0)} for name in changes
    }
    writer.numbers("recipe", "toys", {"study": "recipe", "condition": numbers}, dataset="toys")
    (table,) = recipes(recorded(writer.results, parse_params(values)))
    rows = table.shown.set_index("condition")
    assert rows["changed"].tolist() == ["nothing", "rotation 20, iterations 3"]
    assert rows["held out"].tolist() == ["instance 4, instance 6"] * 2
    assert rows["epochs"].tolist() == ["5", "5"]
    assert rows["seconds"].tolist() == ["61", "61"]
    assert rows["error, new objects (%)"].tolist() == ["20.0 ± 1.0"] * 2
    assert rows["training images (%)"].tolist() == ["", ""], "not measured"


def test_classes_of_own_images_have_their_names() -> None:
    own = Recorded({"own_images": {"pets": {"classes": ["cat", "dog"]}}})
    assert class_names(own, Recorded({"source": "pets"}), 3) == ("cat", "dog", "2")
    assert class_names(Recorded({}), Recorded({"source": "digits"}), 2) == ("0", "1")
    assert class_names(Recorded({}), Recorded({"source": "toys"}), 5) == CLASSES
