"""CapsNet in the report: figures, tables and verdicts from made-up results of its four conditions."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up import Writer, spread
from small import INFER, small_run

from pipeline.drawing.drawings import Written
from pipeline.drawing.style import to_bytes
from pipeline.page.scorecard import build_scorecard
from pipeline.params import Params, parse_params
from pipeline.results.claims import load_claims
from pipeline.systems.capsnet.report.claims import CONDITIONS, Condition, candidates, family, pairs, partner
from pipeline.systems.capsnet.report.figures import draw
from pipeline.systems.capsnet.report.tables import accuracies, sparsity

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


INFERRED: dict[str, dict[str, Any]] = {
    "routed": {"forward": {"class": layer(0.80)}, "start": {"class": layer(0.8)}},
    "unrouted": {
        "forward": {"class": layer(0.75)},
        "start": {"class": layer(0.7)},
        "predicted-clamped-none": {"class": layer(0.4)},
        "predicted-clamped-L1-1": {"class": layer(0.95)},
    },
    "middle": {"forward": {"middle": layer(0.2), "class": layer(0.75)}},
}


@pytest.fixture
def params(values: dict[str, Any]) -> Params:
    runs = {}
    for name, model in RUNS.items():
        run = small_run("capsnet").model_dump() | {"dataset": "digits"}
        run["model"] = run["model"] | {"middle": 0, "counting": "updates", **model}
        runs[name] = run
    infer = {name: {"run": name, **INFER} for name in STUDIES}
    return parse_params(values | {"runs": values["runs"] | runs, "infer": infer})


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


def verdicts(writer: Writer, params: Params) -> dict[str, Any]:
    return {row["id"]: row for row in build_scorecard(load_claims(), writer.results, params)}


def test_figures(studied: Writer, params: Params) -> None:
    written = Written()
    drawings = list(draw(studied.results, params, written))
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
    assert written.missing == []


def test_tables(studied: Writer, params: Params) -> None:
    (table,) = accuracies(studied.results, params, Written())
    assert table.name == "capsnet-digits"
    assert table.shown["run"].tolist() == list(RUNS)
    assert table.shown["iterations"].tolist() == ["3 updates", "0", "3 updates", "0", "0"]
    assert table.shown["own answer (%)"].iloc[0] == "99.23 ± 0.10"
    (table,) = sparsity(studied.results, params, Written())
    assert len(table.shown) == 2 + 4 + 2
    row = table.shown.iloc[5]
    assert row[["study", "condition", "layer", "images"]].tolist() == [
        "unrouted",
        "predicted-clamped-L1-1",
        "class",
        "6",
    ]
    assert row["Hoyer's index"] == "0.950"


def test_what_was_not_run_is_named(params: Params, writer: Writer) -> None:
    written = Written()
    assert list(draw(writer.results, params, written)) == []
    assert accuracies(writer.results, params, written) == sparsity(writer.results, params, written) == []
    assert {*(f"train/{run}" for run in RUNS), *(f"infer/{study}" for study in STUDIES)} <= set(written.missing)
    assert {row["verdict"] for name, row in verdicts(writer, params).items() if name.startswith("001.acc")} == {
        "not run"
    }


def test_claims(studied: Writer, params: Params) -> None:
    found = verdicts(studied, params)
    assert found["001.acc.r3"]["ours"]["value"] == pytest.approx(99.23)
    assert found["001.acc.r0"]["ours"]["value"] == pytest.approx(99.34)
    assert found["001.acc.r3norec"]["ours"]["value"] == pytest.approx(99.32)
    assert found["001.acc.r0norec"]["ours"]["value"] == pytest.approx(99.29)
    for name in ("fig2", "fig1.sparse", "fig1.l1", "mid"):
        assert found[f"001.{name}"]["verdict"] == "holds", name
        assert "not the paper's data" in found[f"001.{name}"]["dataset"]
    assert found["001.fig1.sparse"]["ours"]["value"] == pytest.approx(0.05)
    assert found["001.mid"]["ours"]["value"] == pytest.approx(-0.55)


@pytest.mark.parametrize(
    ("claim", "study", "path", "value"),
    [
        ("001.fig1.sparse", "unrouted", ("forward", "class", "hoyer"), 0.6),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-L1-1", "class", "hoyer"), 0.45),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-none", "class", "hoyer"), 0.6),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-none", "class", "right"), 0.9),
        ("001.fig1.l1", "unrouted", ("predicted-clamped-L1-1", "class", "falls"), 0.9),
        ("001.mid", "middle", ("forward", "middle", "hoyer"), 0.55),
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
    assert verdicts(studied, params)[claim]["verdict"] == "fails"


@pytest.mark.parametrize(("start", "end"), [(0.001, 0.01), (0.1, 0.03)])
def test_losses_that_start_lower_or_end_elsewhere_refute_figure_2(
    studied: Writer, params: Params, start: float, end: float
) -> None:
    losses(studied, "unrouted-margin", np.array([*[start + end] * 3, *[end] * 10]))
    assert verdicts(studied, params)["001.fig2"]["verdict"] == "fails"


def test_a_middle_layer_that_costs_accuracy_refutes_its_claim(studied: Writer, params: Params) -> None:
    studied.numbers("evaluate", "middle", {"test": {"accuracy": spread(0.97, 0.0, 1)}})
    assert verdicts(studied, params)["001.mid"]["verdict"] == "fails"


def test_a_study_whose_energies_rise_gives_way_to_one_whose_fall(studied: Writer, params: Params) -> None:
    rising = copy.deepcopy(INFERRED["unrouted"])
    rising["predicted-clamped-L1-1"]["class"] |= {"falls": spread(0.0, 0.0, 1), "hoyer": spread(0.3, 0.0, 1)}
    studied.numbers("infer", "unrouted", {"condition": rising, "images": 6})
    assert verdicts(studied, params)["001.fig1.l1"]["verdict"] == "fails"
    slowly = params.infer["unrouted"].model_copy(update={"rate": 0.001})
    studied.numbers("infer", "slowly", {"condition": INFERRED["unrouted"], "images": 6})
    row = verdicts(studied, params.model_copy(update={"infer": {**params.infer, "slowly": slowly}}))["001.fig1.l1"]
    assert row["verdict"] == "holds"
    assert "inference at rate 0.001 (paper: 0.01)" in row["dataset"]


def test_half_a_pair_is_compared_with_nothing(studied: Writer, params: Params) -> None:
    (studied.metrics / "train" / "unrouted-margin.json").unlink()
    (studied.metrics / "infer" / "routed.json").unlink()
    found = verdicts(studied, params)
    assert found["001.fig2"]["verdict"] == found["001.fig1.sparse"]["verdict"] == "not run"
    assert found["001.fig1.l1"]["verdict"] == "holds"


def test_runs_nearer_to_the_papers_settings_come_first(params: Params) -> None:
    routed = params.runs["routed"]
    near = routed.model_copy(update={"model": routed.model.model_copy(update={"channels": 256, "kernel": 9})})
    once = routed.model_copy(update={"model": near.model.model_copy(update={"iterations": 1})})
    more = params.model_copy(update={"runs": params.runs | {"once": once, "near": near}})
    assert candidates(more, Condition(routed=True, reconstructed=True)) == ["near", "routed"], (
        "one iteration is not three"
    )
    assert partner(more, "near", iterations=1) == "once"
    assert partner(more, "near", iterations=0) is None
    assert list(pairs(more, reconstructed=True)) == [("routed", "unrouted")], "like is compared with like"
    assert family(more, "routed") == dict(zip(CONDITIONS, RUNS, strict=False))
    assert [condition.words for condition in CONDITIONS][:2] == [
        "routing, reconstruction",
        "no routing, reconstruction",
    ]
