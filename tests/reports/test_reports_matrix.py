"""Matrix capsules in the report: figures and tables from made-up results, whole and with some missing."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import made_up_matrix
import numpy as np
import pandas as pd
import pytest
from made_up import Writer, check_drawn, made_up_values, recorded, spread
from made_up_matrix import CONDITIONS, evaluated, trained, with_matrix
from PIL import Image

from pipeline.data.published import CATEGORIES
from pipeline.params import parse_params
from pipeline.report import routing
from pipeline.results.reading import Recorded, Results
from pipeline.systems.matrix_capsules.report import images_seen, robustness, runs, votes
from pipeline.systems.matrix_capsules.report.runs import CLASSES, class_names


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of every study, for tests that only read them."""
    writer = Writer(tmp_path_factory.mktemp("matrix"))
    made_up_matrix.everything(writer)
    return recorded(writer.results, parse_params(with_matrix(made_up_values())))


def test_what_is_drawn_is_what_was_measured(results: Results) -> None:
    drawings = [*votes.draw(results), *robustness.draw(results)]
    names = ["matrix-votes-matrix-toys", "matrix-attacks-toys", "matrix-attacked-toys"]
    assert [drawing.name for drawing in drawings] == names
    check_drawn(drawings)
    assert results.missing == []
    votes_of_images, attacks, _ = (drawing.figure() for drawing in drawings)
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in attacks.axes[0].get_lines()}
    np.testing.assert_allclose(lines["CNN, BIM"], [88, 42, 18, 4, 2])
    np.testing.assert_allclose(lines["chance"], 20)
    titles = [axis.get_title(loc="left") for axis in votes_of_images.axes]
    assert titles[::4] == ["animal", "human", "car, taken for airplane"]


def test_errors_and_tables_1_and_2(results: Results) -> None:
    table, novel = runs.build(results)
    assert table.shown["run"].tolist() == ["matrix-toys", "cnn-toys", *["matrix-toys"] * len(CONDITIONS)]
    assert table.shown["error, central crop (%)"].tolist()[:2] == ["17.00 ± 1.00", "12.00 ± 1.00"]
    assert table.shown["error, 13 crops (%)"].tolist()[:2] == ["15.00 ± 1.00", "11.00 ± 1.00"]
    rows = table.shown.set_index("condition")
    assert list(rows.index) == ["", "", *CONDITIONS]
    assert rows["epochs (at most)"].tolist() == ["20", "20", *["10"] * len(CONDITIONS)]
    assert rows["changed"][["iterations-3", "no-coordinates"]].tolist() == ["nothing", "coordinate addition off"]
    of_conditions = ["9.7", "2.2", "1.8", "3.9", "2.9", "2.6", "3.2", "3.2", "5.8", "4.5"]
    papers = rows["the paper's error (%)"].tolist()
    assert papers == ["1.8", "", *of_conditions, ""], "colder stands for no row of the paper's"
    assert rows["error, central crop (%)"]["iterations-1"] == "30.00 ± 1.20"
    assert novel.shown.iloc[1][["study", "comparison", "network"]].tolist() == ["azimuth", "matched", "CNN"]
    assert len(novel.shown) == 8


def test_a_recipe_has_a_row_for_each_condition_with_the_mean_over_what_was_held_out(
    writer: Writer, values: dict[str, Any]
) -> None:
    assert runs.build(writer.results) == []
    changes = {"unchanged": {}, "warps": {"augmentation": {"rotation": 20}, "model": {"iterations": 3}}}
    study = {"run": "matrix-toys", "factor": "instance", "held_out": [4, 6], "known_share": 0.1}
    study |= {"replicas": 1, "epochs": 5}
    values = with_matrix(values) | {"recipe": {"toys": study | {"conditions": changes}}}
    numbers = {
        name: {"new": spread(0.2, 0.01), "known": spread(0.05, 0.0), "seconds": spread(61.2, 3.0)} for name in changes
    }
    writer.numbers("recipe", "toys", {"study": "recipe", "condition": numbers}, dataset="toys")
    (table,) = runs.build(recorded(writer.results, parse_params(values)))
    rows = table.shown.set_index("condition")
    assert rows["changed"].tolist() == ["nothing", "rotation 20, iterations 3"]
    assert rows["held out"].tolist() == ["instance 4, instance 6"] * 2
    assert rows["epochs (at most)"].tolist() == ["5", "5"]
    assert rows["error, new objects (%)"].tolist() == ["20.0 ± 1.0"] * 2
    assert rows["training error (%)"].tolist() == ["", ""], "not measured"


def test_classes_of_own_images_have_their_names() -> None:
    own = Recorded({"own_images": {"pets": {"classes": ["cat", "dog"]}}})
    assert class_names(own, Recorded({"source": "pets"}), 3) == ("cat", "dog", "2")
    assert class_names(Recorded({}), Recorded({"source": "digits"}), 2) == ("0", "1")
    assert class_names(Recorded({}), Recorded({"source": "toys"}), 5) == CLASSES
    assert CLASSES == CATEGORIES


def test_errors_stand_at_epochs_times_training_images(
    writer: Writer, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs, one of them with watched test images: a point a run, and a line by epoch. One with images held out."""
    values = with_matrix(values, norb="smallnorb")
    for name, error in (("a", 0.1), ("b", 0.05), ("c", 0.02)):
        values["runs"][name] = made_up_matrix.run("matrix_capsules", "norb")
        evaluated(writer, name, error, error)
        trained(writer, name, 1 - error)
    values["runs"]["b"]["model"] |= {"iterations": 4}  # as no public network has
    values["runs"]["c"]["holdout"] = {"factor": "instance", "value": 4, "known_share": 0.05}
    results = recorded(writer.results, parse_params(values))
    path = results.records / "train" / "a.csv"
    table = pd.read_csv(path)
    means = 0.1 + 0.4 * np.exp(-table["epoch"] / 5)
    table.assign(test_accuracy=1 - means - 0.005 + 0.01 * table["replica"]).to_csv(path, index=False)
    best, other = images_seen.seen_by_runs(results)
    images = 20 * 6400 / 1e6  # millions: 20 epochs of the training images
    assert [each.trial.item for each in (best, other)] == ["b", "a"]
    assert best.images == pytest.approx(images)
    assert (best.error.mean, best.error.n) == (pytest.approx(5), 2)
    assert best.curve.empty
    np.testing.assert_allclose(other.curve.index, np.arange(1, 21) * 6400 / 1e6)
    np.testing.assert_allclose(other.curve, 100 * means[:20])
    (drawing,) = images_seen.draw(results)
    assert {record["stage"] for record in drawing.records} == {"train", "evaluate"}
    (axis,) = drawing.figure().axes
    points = [bar for bar in axis.containers if bar.lines[0].get_xdata() == pytest.approx([images])]
    assert sorted(float(bar.lines[0].get_ydata()[0]) for bar in points) == pytest.approx([5, 10])
    lines = [np.asarray(line.get_ydata(), float) for line in axis.get_lines()]
    assert any(len(line) == 20 and np.allclose(line, 100 * means[:20]) for line in lines)
    monkeypatch.setattr(images_seen, "_BEST", 1)
    for evidence, names in (({}, ["b"]), ({"published": "a"}, ["b", "a"])):
        values["evidence"]["matrix_capsules"] = evidence
        (drawing,) = images_seen.draw(recorded(writer.results, parse_params(values)))
        labels = drawing.figure().axes[0].get_legend_handles_labels()[1]
        assert [label.split(",")[0] for label in labels] == names


# ---- routing


def test_the_figure_has_its_words_and_its_film(results: Results) -> None:
    (drawing,) = routing.draw(results)
    assert (drawing.name, drawing.document) == ("routing-matrix-toys", "004")
    assert "runs 3 iterations" in drawing.caption
    assert "25 % in iteration 2, 11 % in iteration 3, 6 % in iteration 4" in drawing.caption
    check_drawn([drawing])
    assert results.missing == []
    film = json.loads(drawing.film)
    assert film["values"] == [1, 2, 3, 4]
    assert film["notes"][0] == "equal shares"
    assert film["notes"][2:] == ["after update 2, the network's last", "after update 3, beyond the network's last"]
    assert film["classes"] == ["animal", "human", "airplane", "truck", "car"]
    assert [each["name"] for each in film["images"]] == ["human", "car, taken for airplane"]
    arrays = results.examples("routing", "matrix-toys", ["images", "parts", "shares", "activations"])
    assert arrays is not None
    second = film["images"][1]
    parts, shares = arrays["parts"][1], arrays["shares"][1]
    given = np.average(shares, axis=-1, weights=np.broadcast_to(parts, shares.shape))
    np.testing.assert_allclose(second["shares"], 100 * given, atol=0.51)
    np.testing.assert_allclose(second["parts"], parts.mean(-1), atol=1e-3)
    assert second["activations"] == arrays["activations"][1].astype(float).round(3).tolist()
    with Image.open(io.BytesIO(base64.b64decode(second["picture"]))) as opened:
        np.testing.assert_array_equal(np.asarray(opened), arrays["images"][1])


def test_every_layer_of_every_network_has_a_row(results: Results) -> None:
    layers = routing.build(results)[1]
    assert layers.name == "routing-layers"
    found = layers.shown.set_index("layer")
    assert list(found.index) == ["2 below", "1 below", "classes"]
    assert found["entropy of routing"].tolist() == ["0.700 ± 0.010", "0.500 ± 0.010", "0.300 ± 0.010"]
    assert found["dead types (%)"].tolist() == ["25.0 ± 1.0", "12.5 ± 1.0", "8.3 ± 1.0"]
    assert found["number of types"].tolist() == ["4 ± 0", "4 ± 0", "5 ± 0"]


def test_every_public_curve_has_a_source_and_values_that_can_be() -> None:
    curves = images_seen.load_public_curves()
    assert len({curve.name for curve in curves}) == len(curves) >= 10
    for curve in curves:
        assert any(word in curve.source for word in ("github.com/", "arXiv:")), curve.name
        images, errors = zip(*curve.points, strict=True)
        assert list(images) == sorted(images)
        assert 0.1 <= images[0] <= images[-1] <= 200
        assert list(errors) == sorted(errors, reverse=True), "the last is the lowest"
        assert 0.5 < errors[-1] <= errors[0] < 80, "five classes: a guess is wrong in 80 %"
        assert curve.read in ("printed", "log") or (curve.read == images_seen.OFF_A_PLOT and curve.note)
