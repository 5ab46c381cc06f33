"""All systems side by side under one measure of equivariance, and the verdict on document 003's claim."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from made_up import Writer, spread
from recorded import recorded
from small import EQUIVARIANCE, run_on
from test_reports_figures import words

from pipeline import report
from pipeline.drawing import style
from pipeline.drawing.drawings import Written
from pipeline.page.images import front_picture, load_figures
from pipeline.page.scorecard import build_scorecard
from pipeline.params import parse_params
from pipeline.report import equivariance, equivariance_layers, equivariance_summary
from pipeline.results.claims import load_claims
from pipeline.results.reading import Results

FAMILIES = {"rotation": ["15", "45", "90", "180"], "shift": ["2"], "scale": ["1.2"], "shear": ["0.2"]}
RUNS = {
    "capsules-digits": "generative",
    "scae-digits": "scae",
    "vae-digits": "vae",
    "capsnet-digits": "capsnet",
    "matrix-toys": "matrix_capsules",
    "cnn-toys": "cnn",
}
COMPARED = RUNS | {"cnn-digits": "cnn"}
"""With a convolutional network on each data set."""
LAYERS: dict[str, dict[str, dict[str, float]]] = {
    "generative": {
        "parts": {"own": 0.2, "fitted": 0.2, "invariance": 0.9},
        "objects": {"own": 0.25, "fitted": 0.3, "invariance": 1.2},
        "presences": {"invariance": 0.3},
    },
    "scae": {"parts": {"own": 0.3, "fitted": 0.3, "invariance": 0.9}, "objects": {"own": 0.3, "invariance": 0.8}},
    "vae": {"code": {"fitted": 0.5, "invariance": 1.1}},
    "capsnet": {"capsules": {"fitted": 0.35, "invariance": 0.8}, "presences": {"invariance": 0.5}},
    "matrix_capsules": {"poses": {"own": 0.4, "fitted": 0.4, "invariance": 1.0}, "presences": {"invariance": 0.6}},
    "cnn": {"maps": {"own": 0.9, "invariance": 1.1}, "hidden": {"fitted": 0.7, "invariance": 1.0}},
}
"""Errors at which the claim holds."""
CONTROLS = {
    "pixels": {"pixels": {"own": 0.0, "invariance": 1.0}},
    "moments": {"moments": {"own": 0.01, "invariance": 1.0}},
    "quarter turns": {"turns": {"own": 0.0, "invariance": 0.5}},
}


def numbers(layers: dict[str, dict[str, float]], se: float = 0.02, n: int = 2) -> dict[str, Any]:
    """Made-up results of one item; a layer without measures is constant."""
    subjects = {"trained": layers, "untrained": layers, **CONTROLS}
    found: dict[str, Any] = {
        name: {} for name in ("relative_error", "relative_error_se", "derivative", "derivative_se", "layers")
    }
    for subject, of in subjects.items():
        replicas = n if subject == "trained" else 1
        for layer, measures in of.items():
            about = {"variation": spread(0.4 if measures else 1e-4, 0.0, replicas), "dimensions": spread(5.0, 0, 1)}
            found["layers"].setdefault(subject, {})[layer] = about
            for measure, error in measures.items():
                exact = subject == "quarter turns" and measure == "own"
                families = {"rotation": ["90", "180"]} if exact else FAMILIES
                for name, value, sd in (("relative_error", error, 0.0), ("relative_error_se", se, 0.0)):
                    found[name].setdefault(subject, {}).setdefault(layer, {})[measure] = {
                        family: {magnitude: spread(value, sd, replicas) for magnitude in magnitudes}
                        for family, magnitudes in families.items()
                    }
                    derivatives = found[name.replace("relative_error", "derivative")].setdefault(subject, {})
                    derivatives.setdefault(layer, {})[measure] = {
                        family: spread(value / 100, 0.0, replicas) for family in FAMILIES
                    }
    return found


def pairs(runs: dict[str, str]) -> list[dict[str, Any]]:
    """Evidence: every capsule run beside the convolutional network on its data, or on others where there is none."""
    networks = {name.split("-")[-1]: name for name, variant in runs.items() if variant == "cnn"}
    capsules = [name for name, variant in runs.items() if variant not in ("cnn", "vae")]
    cnns = [(name, networks.get(name.split("-")[-1], next(iter(networks.values()), None))) for name in capsules]
    return [
        {"cnn": cnn, "capsules": [name for name, beside in cnns if beside == cnn]}
        for cnn in dict.fromkeys(cnn for _, cnn in cnns if cnn)
    ]


def results(
    writer: Writer,
    values: dict[str, Any],
    runs: dict[str, str] | None = None,
    sources: tuple[str, str] = ("digits", "toys"),
    **changes: dict[str, dict[str, float]],
) -> Results:
    """Made-up results of runs by their variants; `changes` replace layers of a variant.

    Args:
        sources: of the data sets called `digits` and `toys`.
    """
    runs = RUNS if runs is None else runs
    digits = values["datasets"]["digits"] | {"source": sources[0]}
    toys = digits | {"source": sources[1], "canvas": 48}
    params = values | {
        "sources": list(sources),
        "datasets": values["datasets"] | {"digits": digits, "toys": toys},
        "runs": values["runs"]
        | {name: run_on(variant, dataset := name.split("-")[-1], dataset) for name, variant in runs.items()},
        "equivariance": {name: {"run": name, **EQUIVARIANCE} for name in runs},
        "evidence": {"comparison": {"equivariance": pairs(runs)}},
    }
    for name, variant in runs.items():
        label = "toys (stand-in)" if name.endswith("toys") else "digits (scikit-learn)"
        layers = LAYERS[variant] | changes.get(variant, {})
        writer.numbers("equivariance", name, numbers(layers), dataset=label)
    return recorded(writer.results, parse_params(params))


def verdict(found: Results) -> tuple[str, Any]:
    rows = {row["id"]: row for row in build_scorecard(load_claims(), found)}
    return rows["003.equivariance"]["verdict"], rows["003.equivariance"]


def test_the_claim_holds_where_all_poses_follow_better_than_the_networks_features(
    writer: Writer, values: dict[str, Any]
) -> None:
    assert "003.equivariance" in report.measures()
    told, row = verdict(results(writer, values, COMPARED))
    assert told == "holds"
    assert row["ours"]["value"] == pytest.approx(0.4 / 0.7), "the worst poses against the best features"
    assert row["ours"]["n"] == 2
    assert "not the paper's data" in row["dataset"]
    (note,) = row["notes"]
    assert "matrix-toys, poses: 0.40 ± 0.02 by theory, 1.00 ± 0.02 without moving" in note
    assert "cnn-toys, hidden: 0.70 ± 0.02 by a fitted map" in note
    assert "cnn-digits, hidden: 0.70 ± 0.02 by a fitted map" in note
    assert "vae" not in note


def test_the_documents_data_their_copies_and_other_data_are_told_apart(writer: Writer, values: dict[str, Any]) -> None:
    for sources, remarks in (
        (("mnist", "smallnorb"), []),
        (("mnist", "smallnorb48"), ["decoded from JPEG copies"]),
        (("fashion-mnist", "smallnorb48"), ["decoded from JPEG copies", "not the paper's data"]),
    ):
        row = verdict(results(writer, values, COMPARED, sources))[1]
        marks = [mark for mark in ("decoded from JPEG copies", "not the paper's data") if mark in row["dataset"]]
        assert marks == remarks


@pytest.mark.parametrize(
    "changes",
    [
        {"generative": {"objects": {"own": 0.8, "fitted": 0.1, "invariance": 1.2}}},
        {"generative": {"objects": {"own": 0.66, "fitted": 0.1, "invariance": 1.2}}},
        {"generative": {"objects": {"own": 0.3, "fitted": 0.1, "invariance": 0.2}}},
        {"generative": {"objects": {}}},
        {"capsnet": {"capsules": {"fitted": 0.9, "invariance": 1.2}}},
        {"cnn": {"maps": {"own": 0.3, "invariance": 1.1}}},
    ],
    ids=["worse", "not clearly better", "stay rather than follow", "constant", "fitted, worse", "maps are as good"],
)
def test_one_layer_of_poses_that_is_no_better_refutes_it(
    writer: Writer, values: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert verdict(results(writer, values, COMPARED, **changes))[0] == "fails"


def test_that_it_holds_needs_every_system_and_that_it_fails_needs_one(writer: Writer, values: dict[str, Any]) -> None:
    some = {name: variant for name, variant in COMPARED.items() if variant in ("generative", "cnn")}
    assert verdict(results(writer, values, some))[0] == "not run"
    worse = {"parts": {"own": 2.0, "fitted": 0.2, "invariance": 0.9}}
    told, row = verdict(results(writer, values, some, generative=worse))
    assert told == "fails"
    assert row["notes"][-1] == "not measured: capsnet, matrix_capsules, scae"


def test_poses_are_compared_with_a_network_on_the_same_data(writer: Writer, values: dict[str, Any]) -> None:
    """Without one on digits, poses on digits say nothing, and matrix capsules alone do not confirm the claim."""
    worse = {"parts": {"own": 2.0, "invariance": 0.9}}
    assert verdict(results(writer, values, RUNS, generative=worse))[0] == "not run"
    poses = {"poses": {"own": 0.8, "fitted": 0.4, "invariance": 1.0}}
    told, row = verdict(results(writer, values, RUNS, matrix_capsules=poses))
    assert told == "fails"
    assert row["ours"]["value"] == pytest.approx(0.8 / 0.7)
    assert row["notes"][-1] == "no CNN was measured on the data of capsules-digits, scae-digits, capsnet-digits"


def test_without_a_convolutional_network_there_is_nothing_to_compare_with(
    writer: Writer, values: dict[str, Any]
) -> None:
    alone = {name: variant for name, variant in RUNS.items() if variant != "cnn"}
    found = results(writer, values, alone)
    assert verdict(found)[0] == "not run"
    assert equivariance_layers.build(found), "the table is there all the same"


def test_the_overall_error_is_the_mean_over_families(writer: Writer, values: dict[str, Any]) -> None:
    found = results(writer, values).numbers("equivariance", "cnn-toys")
    assert found is not None
    place = found.values["relative_error"]["trained"]["hidden"]["fitted"]
    for magnitude, error in zip(("15", "45", "90", "180"), (0.0, 0.2, 0.4, 0.6), strict=True):
        place["rotation"][magnitude] = spread(error, 0.08, 4)
    error = equivariance.overall(found, "hidden", "fitted")
    assert error is not None
    assert error.mean == pytest.approx((0.3 + 3 * 0.7) / 4)
    assert error.se == pytest.approx((0.02**2 + 0.08**2 / 4) ** 0.5 / 4 + 3 * 0.02 / 4)


def test_the_table_has_controls_once_for_each_data_set_and_says_what_is_constant(
    writer: Writer, values: dict[str, Any]
) -> None:
    (table,) = equivariance_layers.build(results(writer, values, scae={"objects": {}}))
    shown = table.shown
    assert shown["run"].value_counts()["pixels"] == 2 * 4
    assert shown["run"].value_counts()["quarter turns"] == 2 * 2
    parts = shown[(shown["run"] == "capsules-digits") & (shown["layer"] == "parts")]
    assert parts["moved by"].tolist() == ["rotation 45°", "shift 2 px", "scale x 1.2", "shear 0.2"]
    assert parts["by theory"].tolist() == ["0.20 ± 0.02"] * 4
    assert parts["untrained, by theory"].tolist() == ["0.20 ± 0.02"] * 4
    assert parts["derivative, by theory"].tolist()[0] == "0.002 ± 0.000 per 1°"
    constant = shown[(shown["run"] == "scae-digits") & (shown["layer"] == "objects")]
    assert set(constant["by theory"]) == {"constant"}
    assert len(table.data) == len(shown)
    assert table.data["trained_own"].max() == 0.9
    assert "| by theory |" in table.to_markdown()


def test_the_figure_shows_every_system_with_the_controls(writer: Writer, values: dict[str, Any]) -> None:
    more = RUNS | {"cnn-warped-toys": "cnn"}
    found = results(writer, values, more)
    panels = equivariance_layers.lines(list(found.executed("equivariance")))
    theory = {line.label for line in panels["own"]}
    assert {"capsules-digits: parts", "matrix-toys: poses", "cnn-toys: maps", "moments", "quarter turns"} <= theory
    assert {"vae-digits: code", "capsnet-digits: capsules"} <= {line.label for line in panels["fitted"]}
    invariant = {line.label for line in panels["invariance"]}
    assert {"capsules-digits: presences", "cnn-toys: hidden", "pixels", "untrained"} <= invariant
    assert "capsules-digits: parts" not in invariant, "poses should move"
    dashes = {line.label: line.dashes for line in panels["own"]}
    assert dashes["cnn-toys: maps"] != dashes["cnn-warped-toys: maps"]
    (drawing,) = equivariance_layers.draw(found, Written())
    assert drawing.caption.count(". ") <= 2
    content = style.to_bytes(drawing.figure(), drawing.kind)
    assert content == style.to_bytes(drawing.figure(), drawing.kind)
    with matplotlib.rc_context(style.RC):
        figure = drawing.figure()
        boxes = words(figure)
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    runs = [run for run, _ in itertools.groupby(label.split(": ")[0] for label in labels)]
    assert len(runs) == len(set(runs)), "the layers of a run are together"
    assert labels[-4:] == ["moments", "quarter turns", "pixels", "untrained"]
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a.x1 <= b.x0 + 1 or b.x1 <= a.x0 + 1 or a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1
        assert apart, f"'{one}' and '{other}' overlap"
    assert all(box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 for _, box in boxes)


def test_without_results_there_is_nothing_to_show(writer: Writer) -> None:
    assert list(equivariance_layers.draw(writer.results, Written())) == []
    assert equivariance_layers.build(writer.results) == []
    assert equivariance.poses_are_equivariant(writer.results) is None


# ---- the picture of the first screen


def test_the_summary_has_the_layer_of_each_system_that_follows_best(writer: Writer, values: dict[str, Any]) -> None:
    found = results(writer, values, cnn={"maps": {"own": 0.9, "invariance": 1.1}, "hidden": {}})
    rows = {row.label: row.followed for row in equivariance_summary.rows(found)}
    assert list(rows) == ["probabilistic capsules", "SCAE", "VAE", "CapsNet", "matrix capsules", "CNN"]
    capsules = rows["probabilistic capsules"]
    assert (capsules.layer, capsules.measure) == ("parts", "own")
    assert capsules.error.mean == pytest.approx(0.2)
    assert capsules.error.se == pytest.approx(0.02)
    assert capsules.invariance is not None
    assert capsules.invariance.mean == pytest.approx(0.9)
    assert rows["CNN"].layer == "maps", "its other layer is constant"
    assert str(rows["CapsNet"]) == "capsules, fitted map"
    judged = {row.label: row.judged for row in equivariance_summary.rows(found)}
    assert (judged["CapsNet"], judged["matrix capsules"]) == ("fitted map, digits", "by theory, toys")


def test_poses_that_are_vectors_are_summed_up_by_a_map(writer: Writer, values: dict[str, Any]) -> None:
    found = results(writer, values, matrix_capsules={"poses": {"fitted": 0.45, "invariance": 1.0}})
    (poses,) = (row.followed for row in equivariance_summary.rows(found) if row.variant == "matrix_capsules")
    assert (poses.measure, poses.error.mean) == ("fitted", pytest.approx(0.45))


def test_runs_of_one_system_are_told_apart(writer: Writer, values: dict[str, Any]) -> None:
    runs = {"cnn-toys": "cnn", "matrix-toys": "matrix_capsules", "matrix-warped-toys": "matrix_capsules"}
    found = results(writer, values, runs)
    assert [row.label for row in equivariance_summary.rows(found)] == ["matrix-toys", "matrix-warped-toys", "CNN"]


def test_the_summary_is_drawn_and_is_the_documents_picture(
    writer: Writer, values: dict[str, Any], tmp_path: Path
) -> None:
    found = results(writer, values)
    (drawing,) = equivariance_summary.draw(found, Written())
    assert drawing.caption.count(". ") <= 2
    assert "CNN: hidden, fitted map, on toys (stand-in)" in drawing.caption
    with matplotlib.rc_context(style.RC):
        figure = drawing.figure()
        boxes = words(figure)
    assert {"by theory, digits", "fitted map, toys"} <= {text for text, _ in boxes}
    assert not [(one, other) for (one, a), (other, b) in itertools.combinations(boxes, 2) if a.overlaps(b)]
    assert all(box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 for _, box in boxes)
    (axes,) = figure.axes
    open_marks = [line for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
    assert [float(line.get_xdata()[0]) for line in open_marks] == pytest.approx([0.9, 0.9, 1.1, 0.8, 1.0, 1.0])
    (tmp_path / drawing.file).write_bytes(style.to_bytes(figure, "png"))
    front = front_picture(equivariance_summary.DOCUMENT, load_figures(tmp_path, [drawing]))
    assert front is not None
    assert front[1].drawing.name == "equivariance-summary"


def test_without_results_there_is_no_summary(writer: Writer) -> None:
    assert list(equivariance_summary.draw(writer.results, Written())) == []
