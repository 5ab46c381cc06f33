"""CapsNet in the report: figures, tables and findings from made-up results of its four conditions."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up import Writer, spread, with_evidence
from recorded import recorded
from records import dump_record, load_record
from small import INFER, run_on

from pipeline.drawing.drawings import Written
from pipeline.drawing.style import to_bytes
from pipeline.params import Params, parse_params
from pipeline.results.findings import Finding
from pipeline.results.reading import Results
from pipeline.results.settings import MiddleLayer
from pipeline.systems.capsnet.report.claims import MEASURES
from pipeline.systems.capsnet.report.figures import draw
from pipeline.systems.capsnet.report.tables import build

RUNS = {
    "routed": {"iterations": 3, "reconstruction": "mean"},
    "unrouted": {"iterations": 0, "reconstruction": "mean"},
    "routed-margin": {"iterations": 3, "reconstruction": "none"},
    "unrouted-margin": {"iterations": 0, "reconstruction": "none"},
    "middle": {"iterations": 0, "reconstruction": "mean", "middle": 4},
}
ACCURACIES = dict(zip(RUNS, (0.9923, 0.9934, 0.9932, 0.9929, 0.9931), strict=True))
STUDIES = ("routed", "unrouted", "middle")


def layer(hoyer: float, right: float = 1.0, falls: float = 1.0) -> dict[str, Any]:
    values = {
        "hoyer": hoyer, "hoyer_standard_error": 0.01, "entropy": 1.0, "effective_number": 2.0, "silent": 0.0,
        "right": right, "length_right": 0.8, "length_others": 0.1, "energy": 0.2, "falls": falls, "last_drop": 0.001,
        "images": 6,
    }  # fmt: skip
    return {name: spread(value, 0.0, 1) for name, value in values.items()}


def middle_layer(hoyer: float, saturated: float) -> dict[str, Any]:
    of_forward = {"saturated": saturated, "length_sd": 0.15, "hoyer_inputs": 0.18}
    return layer(hoyer) | {name: spread(value, 0.0, 1) for name, value in of_forward.items()}


INFERRED: dict[str, dict[str, Any]] = {
    "routed": {"forward": {"class": layer(0.80)}, "start": {"class": layer(0.8)}},
    "unrouted": {
        "forward": {"class": layer(0.75)},
        "start": {"class": layer(0.7)},
        "predicted-clamped-none": {"class": layer(0.4)},
        "predicted-clamped-L1-1": {"class": layer(0.95)},
    },
    "middle": {"forward": {"middle": middle_layer(0.2, saturated=0.1), "class": layer(0.75)}},
}


@pytest.fixture
def params(values: dict[str, Any]) -> Params:
    runs = {}
    for name, model in RUNS.items():
        run = run_on("capsnet", "digits")
        run["model"] = run["model"] | {"middle": 0, "counting": "updates", **model}
        runs[name] = run
    infer = {name: {"run": name, **INFER} for name in STUDIES}
    evidence = {
        "runs": {name.replace("-", "_"): name for name in list(RUNS)[:4]},
        "inference": {name: name for name in ("routed", "unrouted")},
        "middle": [{"inference": "middle", "without": "unrouted"}],
    }
    named = with_evidence(values, "capsnet", **evidence)
    return parse_params(named | {"runs": values["runs"] | runs, "infer": infer})


@pytest.fixture
def studied(writer: Writer) -> Writer:
    epochs = np.arange(1, 14)
    for name, model in RUNS.items():
        losses(writer, name, 0.02 * np.exp(-epochs / (4 if model["iterations"] else 5)) + 0.01)
        probe = {"class_capsules": {p: {"rotated_0": spread(0.99, 0, 1)} for p in ("refit", "fixed")}}
        writer.numbers("evaluate", name, {"test": {"accuracy": spread(ACCURACIES[name], 0.001, 3)}, "probe": probe})
    random = np.random.default_rng(0)
    pictures = {"images": random.integers(0, 255, (6, 12, 12)), "labels": np.arange(6) % 3}
    for study, condition in INFERRED.items():
        writer.numbers("infer", study, {"condition": condition, "images": 6})
        arrays = {f"capsules_{name}": random.normal(size=(6, 3, 5)) for name in condition}
        energies = {f"energies_predicted-clamped-{name}": random.random((6, 5)) for name in ("none", "L1-1")}
        writer.examples("infer", study, **pictures, **arrays, **energies)
    return writer


def losses(writer: Writer, run: str, validation: np.ndarray) -> None:
    """A training of two replicas whose validation losses are these, by epoch."""
    rows = [
        pd.DataFrame(
            {
                "replica": replica,
                "epoch": np.arange(1, len(validation) + 1),
                "train_loss": validation / 2,
                "validation_loss": validation,
            }
        )
        for replica in range(2)
    ]
    writer.table("train", run, pd.concat(rows))
    writer.numbers("train", run, {"validation": {"loss": spread(float(validation.min()), 0.0, 2)}})


def found(results: Results) -> dict[str, Finding | None]:
    return {name: measure(results) for name, measure in MEASURES.items()}


def finding(writer: Writer, params: Params, claim: str) -> Finding:
    """What the results say of a claim, all of them made with these parameters."""
    answer = MEASURES[claim](recorded(writer.results, params))
    assert answer is not None, "not run"
    return answer


def record_again(path: Path, section: str, name: str, **changes: Any) -> None:
    """Change the settings of a run or a data set in what one result recorded."""
    content = load_record(path)
    content["provenance"][-1]["settings"][section][name].update(changes)
    dump_record(path, content)


def test_figures(studied: Writer, params: Params) -> None:
    written = Written()
    drawings = list(draw(recorded(studied.results, params), written))
    assert [drawing.name for drawing in drawings] == [
        "capsnet-losses-digits",
        "capsnet-capsules-digits",
        *(f"inference-{study}" for study in STUDIES),
    ]
    for drawing in drawings:
        content = to_bytes(drawing.figure(), drawing.kind)
        assert content.startswith(b"<?xml" if drawing.kind == "svg" else b"\x89PNG")
        assert drawing.caption.endswith(".")
        assert drawing.alt.endswith(".")
    assert [record["item"] for record in drawings[0].records] == list(RUNS)[:4]
    assert written.missing == []


def test_conditions_are_told_apart_by_more_than_colour(studied: Writer, params: Params) -> None:
    losses, _, inferred, *_ = draw(recorded(studied.results, params), Written())
    best = losses.figure().axes[2]
    assert [tick.get_text() for tick in best.get_xticklabels()] == ["routing", "none", "routing", "none"]
    halves = [tick.get_text().strip() for tick in best.get_xticklabels(minor=True)]
    assert halves == ["reconstruction", "no reconstruction"]
    faces = [part[0].get_markerfacecolor() for part in best.containers]
    assert [face == "white" for face in faces] == [False, False, True, True]
    lines = [line for line in inferred.figure().axes[0].get_lines() if "layer" in str(line.get_label())]
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-."]


def test_the_caption_tells_what_the_reconstruction_weighs(studied: Writer, params: Params) -> None:
    results = recorded(studied.results, params)
    caption = next(draw(results, Written())).caption
    assert caption.endswith("The reconstruction's weight (0.0005 of the mean error) is so small that lines with and "
                            "without it coincide.")  # fmt: skip
    for name in ("routed", "unrouted"):
        model = params.runs[name].model.model_dump() | {"reconstruction": "summed"}
        record_again(results.records / "train" / f"{name}.json", "runs", name, model=model)
    caption = next(draw(results, Written())).caption
    assert caption.endswith("different functions and cannot be compared.")


def test_tables(studied: Writer, params: Params) -> None:
    accuracies, sparsity = build(recorded(studied.results, params))
    assert accuracies.name == "capsnet-digits"
    assert accuracies.shown["run"].tolist() == list(RUNS)
    assert accuracies.shown["iterations"].tolist() == ["3 updates", "0", "3 updates", "0", "0"]
    assert accuracies.shown["own answer (%)"].iloc[0] == "99.23 ± 0.10"
    assert sparsity.name == "sparsity-digits"
    assert len(sparsity.shown) == 2 + 4 + 2
    row = sparsity.shown.iloc[5]
    assert row[["study", "condition", "layer", "images"]].tolist() == [
        "unrouted",
        "predicted-clamped-L1-1",
        "class",
        "6",
    ]
    assert row["Hoyer's index"] == "0.950"


def test_rows_and_columns_are_those_of_the_settings_that_made_a_result(studied: Writer, params: Params) -> None:
    results = recorded(studied.results, params)
    model = params.runs["unrouted"].model.model_dump() | {"iterations": 1}
    record_again(studied.results.records / "evaluate" / "unrouted.json", "runs", "unrouted", model=model)
    accuracies, _ = build(results)
    assert accuracies.shown.set_index("run").loc["unrouted", "iterations"] == "1 updates"


def test_other_systems_and_nothing_at_all_leave_no_trace(full: Writer, params: Params, tmp_path: Path) -> None:
    for results in (recorded(full.results, params), Results(tmp_path / "none", tmp_path / "none")):
        written = Written()
        assert list(draw(results, written)) == build(results) == written.missing == []
        assert set(found(results).values()) == {None}


def test_pictures_that_are_missing_are_named(studied: Writer, params: Params) -> None:
    (studied.arrays / "infer" / "routed" / "examples.npz").unlink()
    written = Written()
    names = [drawing.name for drawing in draw(recorded(studied.results, params), written)]
    assert names == ["capsnet-losses-digits", "inference-unrouted", "inference-middle"]
    assert written.missing == ["infer/routed (its examples)"]


def test_claims(studied: Writer, params: Params) -> None:
    answers = {name: finding(studied, params, name) for name in MEASURES}
    values = {name: answer.ours.mean for name, answer in answers.items() if answer.ours}
    assert values["001.acc.r3"] == pytest.approx(99.23)
    assert values["001.acc.r0"] == pytest.approx(99.34)
    assert values["001.acc.r3norec"] == pytest.approx(99.32)
    assert values["001.acc.r0norec"] == pytest.approx(99.29)
    assert values["001.fig1.sparse"] == pytest.approx(0.05)
    assert values["001.mid"] == pytest.approx(-0.55)
    for name in ("fig2", "fig1.sparse", "fig1.l1", "mid"):
        assert answers[f"001.{name}"].holds, name
        assert any("not the paper's data" in remark for remark in answers[f"001.{name}"].remarks)
    stages = [(record["stage"], record["item"]) for record in answers["001.mid"].records]
    assert stages == [
        ("train", "middle"),
        ("infer", "middle"),
        ("evaluate", "middle"),
        ("train", "unrouted"),
        ("evaluate", "unrouted"),
    ]
    assert "10 % of the middle capsules are saturated" in answers["001.mid"].notes[1]
    note = answers["001.fig1.l1"].notes[0]
    assert note.startswith("index 0.950 ± 0.010 with L1, 0.400 ± 0.010 without")
    assert "over 6 images" in note
    trained = {name: [each["item"] for each in answers[name].records if each["stage"] == "train"] for name in answers}
    assert trained["001.acc.r3"] == ["routed"]
    assert trained["001.fig1.sparse"] == ["routed", "unrouted"]
    assert trained["001.fig1.l1"] == ["unrouted"]


@pytest.mark.parametrize(
    ("claim", "study", "path", "value"),
    [
        ("001.fig1.sparse", "unrouted", ("forward", "class", "hoyer"), 0.6),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-L1-1", "class", "hoyer"), 0.45),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-none", "class", "hoyer"), 0.6),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-none", "class", "right"), 0.9),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-L1-1", "class", "falls"), 0.9),
        ("001.mid", "middle", ("forward", "middle", "hoyer"), 0.55),
        ("001.mid", "middle", ("forward", "middle", "saturated"), 0.5),
    ],
)
def test_a_claim_can_turn(
    studied: Writer, params: Params, claim: str, study: str, path: tuple[str, ...], value: float
) -> None:
    changed = copy.deepcopy(INFERRED[study])
    at = changed
    for key in path:
        at = at[key]
    at["mean"] = value
    studied.numbers("infer", study, {"condition": changed, "images": 6})
    assert finding(studied, params, claim).holds is False


@pytest.mark.parametrize(("start", "end"), [(0.001, 0.01), (0.1, 0.03), (0.2, 0.004)])
def test_losses_that_start_lower_or_end_elsewhere_refute_figure_2(
    studied: Writer, params: Params, start: float, end: float
) -> None:
    losses(studied, "unrouted-margin", np.array([*[start + end] * 3, *[end] * 10]))
    assert finding(studied, params, "001.fig2").holds is False


def test_class_capsules_that_are_equally_dense_are_not_sparse(studied: Writer, params: Params) -> None:
    for study in ("routed", "unrouted"):
        changed = copy.deepcopy(INFERRED[study])
        changed["forward"]["class"] = layer(0.45)
        studied.numbers("infer", study, {"condition": changed, "images": 6})
    assert finding(studied, params, "001.fig1.sparse").holds is False


def test_a_middle_layer_must_be_denser_than_the_output(studied: Writer, params: Params) -> None:
    changed = {"forward": {"middle": middle_layer(0.2, saturated=0.1), "class": layer(0.28)}}
    studied.numbers("infer", "middle", {"condition": changed, "images": 6})
    assert finding(studied, params, "001.mid").holds is False


def test_a_middle_layer_that_costs_accuracy_refutes_its_claim(studied: Writer, params: Params) -> None:
    studied.numbers("evaluate", "middle", {"test": {"accuracy": spread(0.97, 0.0, 1)}})
    assert finding(studied, params, "001.mid").holds is False


def test_a_layer_of_unknown_saturation_confirms_nothing(studied: Writer, params: Params) -> None:
    old = {"forward": {"middle": layer(0.2), "class": layer(0.75)}}
    studied.numbers("infer", "middle", {"condition": old, "images": 6})
    answer = finding(studied, params, "001.mid")
    assert answer.holds is False
    assert "not measured" in answer.notes[1]


def test_the_first_middle_layer_is_judged_and_the_others_are_noted(studied: Writer, params: Params) -> None:
    saturated = {"forward": {"middle": middle_layer(0.0, saturated=1.0), "class": layer(0.75)}}
    studied.numbers("infer", "middle", {"condition": saturated, "images": 6})
    assert finding(studied, params, "001.mid").holds is False
    run = params.runs["middle"]
    averaging = run.model.model_copy(update={"iterations": 1, "counting": "sums"})
    without = averaging.model_copy(update={"middle": 0})
    layers = [MiddleLayer(inference="averaged", without="averaged-without"), *params.evidence.capsnet.middle]
    capsnet = params.evidence.capsnet.model_copy(update={"middle": layers})
    inference = params.infer["middle"].model_copy(update={"run": "averaged"})
    more = params.model_copy(
        update={
            "runs": params.runs
            | {
                "averaged": run.model_copy(update={"model": averaging}),
                "averaged-without": run.model_copy(update={"model": without}),
            },
            "infer": params.infer | {"averaged": inference},
            "evidence": params.evidence.model_copy(update={"capsnet": capsnet}),
        }
    )
    studied.numbers("infer", "averaged", {"condition": INFERRED["middle"], "images": 6})
    studied.numbers("evaluate", "averaged", {"test": {"accuracy": spread(ACCURACIES["middle"], 0.001, 3)}})
    assert not finding(studied, more, "001.mid").holds, "nothing to compare its accuracy with"
    studied.numbers("evaluate", "averaged-without", {"test": {"accuracy": spread(ACCURACIES["middle"], 0.001, 3)}})
    answer = finding(studied, more, "001.mid")
    assert answer.holds
    assert answer.notes[0] == "averaged: votes are averaged, not summed"
    assert any(note.startswith("middle: 100 % of the middle capsules are saturated") for note in answer.notes)
    assert "iterations 1 / 0, counting sums / updates" in " ".join(answer.remarks)
    assert [each["item"] for each in answer.records if each["stage"] == "infer"] == ["averaged", "middle"]


def test_another_rate_of_inference_is_named(studied: Writer, params: Params) -> None:
    slowly = params.infer["unrouted"].model_copy(update={"rate": 0.001})
    answer = finding(studied, params.model_copy(update={"infer": {**params.infer, "unrouted": slowly}}), "001.fig1.l1")
    assert "rate 0.001 / 0.01" in " ".join(answer.remarks)
    assert "rate" not in " ".join(finding(studied, params, "001.fig1.l1").remarks)


def test_half_a_pair_is_compared_with_nothing(studied: Writer, params: Params) -> None:
    (studied.results.records / "train" / "unrouted-margin.json").unlink()
    (studied.results.records / "infer" / "routed.json").unlink()
    answers = found(recorded(studied.results, params))
    assert answers["001.fig2"] is answers["001.fig1.sparse"] is None
    assert answers["001.fig1.l1"] is not None


@pytest.mark.parametrize(
    ("claim", "stage", "run"),
    [
        ("001.fig2", "train", "unrouted"),
        ("001.fig1.sparse", "infer", "unrouted"),
        ("001.mid", "evaluate", "unrouted"),
        ("001.mid", "evaluate", "middle"),
    ],
)
def test_results_of_different_settings_are_not_compared(
    studied: Writer, params: Params, claim: str, stage: str, run: str
) -> None:
    """One of a pair was made again, from another seed or on other images, the other not yet."""
    path = studied.results.records / stage / f"{run}.json"
    for section, name, change in (("runs", run, {"seed": 12}), ("datasets", "digits", {"train": 1100})):
        results = recorded(studied.results, params)
        assert found(results)[claim] is not None
        record_again(path, section, name, **change)
        assert found(results)[claim] is None


def test_each_remark_is_about_the_settings_of_its_own_result(studied: Writer, params: Params) -> None:
    results = recorded(studied.results, params)
    training = params.runs["routed"].training.model_dump() | {"epochs": 7}
    record_again(studied.results.records / "evaluate" / "routed.json", "runs", "routed", training=training)
    answers = found(results)
    said = {name: " ".join(answer.remarks) for name, answer in answers.items() if answer}
    assert "epochs 7 / 13" in said["001.acc.r3"]
    assert "epochs 7 / 13" not in said["001.fig2"]
    assert "epochs 2 / 13" in said["001.fig2"]
