"""CapsNet in the report: figures, tables and findings from made-up results of its four conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_up import Writer, check_drawn, finding, recorded, spread, with_evidence
from records import changed, dump_record, load_record
from small import INFER, run_on

from pipeline import report
from pipeline.params import Params, parse_params
from pipeline.results.measured import Measured
from pipeline.results.reading import NotMeasuredError
from pipeline.systems.capsnet.report import claims, figures

MEASURES = {name: report.measures()[name] for name in claims.MEASURES}

RUNS = {
    "routed": {"iterations": 3, "reconstruction": "mean"},
    "unrouted": {"iterations": 0, "reconstruction": "mean"},
    "routed-margin": {"iterations": 3, "reconstruction": "none"},
    "unrouted-margin": {"iterations": 0, "reconstruction": "none"},
    "middle": {"iterations": 0, "reconstruction": "mean", "middle": 4},
}
ACCURACIES = dict(zip(RUNS, (0.9923, 0.9934, 0.9932, 0.9929, 0.9931), strict=True))
STUDIES = ("routed", "unrouted", "middle")


def layer(hoyer: float, **more: float) -> dict[str, Any]:
    values = {
        "hoyer": hoyer, "hoyer_standard_error": 0.01, "entropy": 1.0, "effective_number": 2.0, "silent": 0.0,
        "right": 1.0, "length_right": 0.8, "length_others": 0.1, "energy": 0.2, "falls": 1.0, "last_drop": 0.001,
        "images": 6,
    }  # fmt: skip
    return {name: spread(value, 0.0, 1) for name, value in (values | more).items()}


MIDDLE_LAYER = layer(0.2, saturated=0.1, length_sd=0.15, hoyer_inputs=0.18)
INFERRED: dict[str, dict[str, Any]] = {
    "routed": {"forward": {"class": layer(0.80)}, "start": {"class": layer(0.8)}},
    "unrouted": {
        "forward": {"class": layer(0.75)},
        "start": {"class": layer(0.7)},
        "predicted-clamped-none": {"class": layer(0.4)},
        "predicted-clamped-L1-1": {"class": layer(0.95)},
        "free-clamped-none-unrectified": {"class": layer(0.3)},
        "free-clamped-L1-0.5-unrectified": {"class": layer(0.9)},
    },
    "middle": {"forward": {"middle": MIDDLE_LAYER, "class": layer(0.75)}},
}


@pytest.fixture
def params(values: dict[str, Any]) -> Params:
    small = run_on("capsnet", "digits")
    runs = {
        name: small | {"model": small["model"] | {"middle": 0, "counting": "updates", **model}}
        for name, model in RUNS.items()
    }
    infer = {name: {"run": name, **INFER} for name in STUDIES}
    evidence = {
        "runs": {name.replace("-", "_"): name for name in list(RUNS)[:4]},
        "inference": {"routed": "routed", "unrouted": "unrouted", "as_coded": "unrouted"},
        "middle": [{"inference": "middle", "without": "unrouted"}],
    }
    named = with_evidence(values, "capsnet", **evidence)
    return parse_params(named | {"runs": values["runs"] | runs, "infer": infer})


@pytest.fixture
def studied(writer: Writer) -> Writer:
    epochs = np.arange(1, 14)
    for name, model in RUNS.items():
        losses(writer, name, 0.02 * np.exp(-epochs / (4 if model["iterations"] else 5)) + 0.01)
        test = {"accuracy": spread(ACCURACIES[name], 0.001, 3), "margin_loss": spread(0.01, 0.001, 3)}
        writer.numbers("evaluate", name, {"test": test})
    random = np.random.default_rng(0)
    pictures = {"images": random.integers(0, 255, (6, 12, 12)), "labels": np.arange(6) % 3}
    for study, condition in INFERRED.items():
        writer.numbers("infer", study, {"condition": condition, "images": 6})
        arrays = {f"capsules_{name}": random.normal(size=(6, 3, 5)) for name in condition}
        writer.examples("infer", study, **pictures, **arrays)
    return writer


def losses(writer: Writer, run: str, training: np.ndarray, norm: float = 1.0) -> None:
    """A training of two replicas with these losses on training images, by epoch, and twice as much on validation."""
    columns = {"train_loss": training, "validation_loss": 2 * training, "train_gradient_norm": norm}
    columns["epoch"] = np.arange(1, len(training) + 1)
    writer.table("train", run, pd.concat([pd.DataFrame({"replica": replica, **columns}) for replica in range(2)]))
    writer.numbers("train", run, {"validation": {"loss": spread(2 * float(training.min()), 0.0, 2)}})


def test_figures(studied: Writer, params: Params) -> None:
    results = recorded(studied.results, params)
    drawings = list(figures.draw(results))
    assert [drawing.name for drawing in drawings] == ["capsnet-losses-digits", "capsnet-capsules-digits"]
    check_drawn(drawings)
    assert [len(axis.get_lines()) for axis in drawings[0].figure().axes] == [4, 4]
    assert results.missing == []


def test_table(studied: Writer, params: Params) -> None:
    (sparsity,) = figures.build(recorded(studied.results, params))
    assert len(sparsity.shown) == 2 + 6 + 2
    row = sparsity.shown.iloc[-3]
    expected = ["unrouted", "predicted-clamped-L1-1", "class", "6", "0.950"]
    assert row[["study", "condition", "layer", "images", "Hoyer's index"]].tolist() == expected


def test_claims(studied: Writer, params: Params) -> None:
    answers = {name: finding(studied, params, name) for name in MEASURES}
    values = {name: answer.ours.mean for name, answer in answers.items() if answer.ours}
    expected = {"acc.r3": 99.23, "acc.r0": 99.34, "acc.r3norec": 99.32, "acc.r0norec": 99.29}
    expected |= {"fig1.sparse": 0.05, "fig1.l1.code": 0.6, "mid": -0.55}
    assert {name: values[f"001.{name}"] for name in expected} == pytest.approx(expected)
    for name in ("fig2", "fig1.sparse", "fig1.l1", "fig1.l1.code", "mid"):
        assert answers[f"001.{name}"].holds, name
        assert any("not the paper's data" in remark for remark in answers[f"001.{name}"].remarks)
    trained = {name: [each["item"] for each in answers[name].records if each["stage"] == "train"] for name in answers}
    assert trained["001.acc.r3"] == ["routed"]
    assert trained["001.fig1.sparse"] == ["routed", "unrouted"]
    assert trained["001.fig1.l1"] == ["unrouted"]


def test_an_accuracy_says_if_its_network_never_learnt(studied: Writer, params: Params) -> None:
    assert not finding(studied, params, "001.acc.r0").notes
    losses(studied, "unrouted", np.array([0.03, 0.02]), norm=0.0)
    assert finding(studied, params, "001.acc.r0").notes == ["the gradient is 0 at the end"]


INFERENCE = "infer/unrouted/condition/"
MIDDLE = "infer/middle/condition/forward/"


@pytest.mark.parametrize(
    ("claim", "changes"),
    [
        ("fig1.sparse", {f"{INFERENCE}forward/class/hoyer/mean": 0.6}),
        ("fig1.sparse", {"infer/routed/condition/forward/class/hoyer/mean": 0.6}),
        ("fig1.sparse", {f"infer/{run}/condition/forward/class/hoyer/mean": 0.45 for run in ("routed", "unrouted")}),
        ("fig1.l1", {f"{INFERENCE}predicted-clamped-L1-1/class/hoyer/mean": 0.45}),
        ("fig1.l1", {f"{INFERENCE}predicted-clamped-none/class/hoyer/mean": 0.75}),  # sparser than before
        ("fig1.l1", {f"{INFERENCE}predicted-clamped-none/class/right/mean": 0.9}),
        ("fig1.l1", {f"{INFERENCE}predicted-clamped-L1-1/class/falls/mean": 0.9}),
        ("fig1.l1.code", {f"{INFERENCE}free-clamped-none-unrectified/class/hoyer/mean": 0.55}),
        ("fig1.l1.code", {f"{INFERENCE}free-clamped-L1-0.5-unrectified/class/hoyer/mean": 0.45}),
        ("fig1.l1.code", {f"{INFERENCE}free-clamped-none-unrectified/class/right/mean": 0.9}),
        ("mid", {f"{MIDDLE}middle/hoyer/mean": 0.55}),
        ("mid", {f"{MIDDLE}class/hoyer/mean": 0.28}),  # a middle layer must be denser than the output
        ("mid", {f"{MIDDLE}middle/saturated/mean": 0.5}),
        ("mid", {"evaluate/middle/test/accuracy/mean": 0.97}),
        ("fig2", {"evaluate/unrouted/test/margin_loss/mean": 0.016}),
        ("fig2", {"evaluate/unrouted-margin/test/margin_loss/mean": 0.006}),
    ],
)
def test_a_claim_can_fail(studied: Writer, params: Params, claim: str, changes: dict[str, Any]) -> None:
    assert finding(studied, params, f"001.{claim}", changes).holds is False


def test_figure_2_is_refuted_if_learning_without_routing_does_not_start_slower(studied: Writer, params: Params) -> None:
    found = finding(studied, params, "001.fig2")
    assert found.ours == Measured(1.0, pytest.approx(0.1 * 2**0.5), 3)
    assert "loss without routing / with it: 1.06 on training images" in found.notes[0]
    losses(studied, "unrouted-margin", np.array([0.011] * 3 + [0.02] * 10))
    assert finding(studied, params, "001.fig2").holds is False


def test_half_a_pair_is_compared_with_nothing(studied: Writer, params: Params) -> None:
    (studied.results.records / "train" / "unrouted-margin.json").unlink()
    (studied.results.records / "infer" / "routed.json").unlink()
    results = recorded(studied.results, params)
    for claim in ("001.fig2", "001.fig1.sparse"):
        with pytest.raises(NotMeasuredError, match=r"unrouted_margin|infer/routed has no result"):
            MEASURES[claim](results)
    assert MEASURES["001.fig1.l1"](results).records


@pytest.mark.parametrize(
    ("claim", "stage", "run"),
    [
        ("001.fig2", "train", "unrouted"),
        ("001.fig2", "evaluate", "unrouted"),
        ("001.fig1.sparse", "infer", "unrouted"),
        ("001.mid", "evaluate", "middle"),
    ],
)
def test_results_of_different_settings_are_not_compared(
    studied: Writer, params: Params, claim: str, stage: str, run: str
) -> None:
    """One of a pair was made again, from another seed or on other images, the other not yet."""
    path = studied.results.records / stage / f"{run}.json"
    for where, change in ((f"runs/{run}/seed", 12), ("datasets/digits/train", 1100)):
        results = recorded(studied.results, params)
        assert MEASURES[claim](results).records
        dump_record(path, changed(load_record(path), f"provenance/-1/settings/{where}", change))
        with pytest.raises(NotMeasuredError, match=r"settings|differ"):
            MEASURES[claim](results)
