"""Top-down attention in the report: real studies in small, their figures and tables, and how claims are judged."""

from __future__ import annotations

from typing import Any

import pytest
from made_up import Writer, check_drawn, finding, recorded
from small import ATTENTION

from pipeline.params import Params, parse_params
from pipeline.results.outcome import Outcome
from pipeline.systems.attention.experiments import density, iterated, parsing, toy
from pipeline.systems.attention.report.attention import MEASURES, draw
from pipeline.systems.attention.settings import DensityStudy, IteratedStudy, ParsingStudy, ToyStudy


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return {
        "toy": toy.run(ToyStudy(**ATTENTION["toy"])),
        "iterated": iterated.run(IteratedStudy(**ATTENTION["iterated"])),
        "density": density.run(DensityStudy(**ATTENTION["density"])),
        "parsing": parsing.run(ParsingStudy(**ATTENTION["parsing"])),
    }


@pytest.fixture
def studied(writer: Writer, outcomes: dict[str, Outcome]) -> Writer:
    for name, outcome in outcomes.items():
        writer.numbers("attention", name, outcome.numbers, dataset="planted scenes")
        writer.table("attention", name, outcome.table)
        if outcome.arrays:
            writer.examples("attention", name, **outcome.arrays)
    return writer


@pytest.fixture
def params(values: dict[str, Any]) -> Params:
    """With one study of each kind."""
    more = {"attention": ATTENTION, "evidence": {"attention": {name: name for name in ATTENTION}}}
    return parse_params(values | more)


def test_figures(studied: Writer, params: Params) -> None:
    results = recorded(studied.results, params)
    drawings = list(draw(results))
    names = [drawing.name for drawing in drawings]
    assert names == ["attention-parsing", "scenes-parsing", "attention-toy"]
    check_drawn(drawings)
    assert results.missing == []


def test_claims(studied: Writer, params: Params, outcomes: dict[str, Outcome]) -> None:
    results = recorded(studied.results, params)
    found = {claim: MEASURES[claim](results) for claim in ("001.toy", "001.toy.output", "001.vmf", "001.vmf.infer")}
    assert [each.holds for each in found.values()] == [False, True, True, True]
    assert [each.remarks for each in found.values()] == [[], [], [], []], "a note is no difference"
    toy, *_, infer = (each.ours for each in found.values())
    assert toy
    assert toy.mean > 1.5, "at weight 1, not at the weight with the fewest"
    leads = outcomes["parsing"].numbers["lead"]
    smallest = min(leads[method]["mean"] for method in ("dynamic routing", "dynamic routing, long"))
    assert infer
    assert infer.mean == pytest.approx(100 * smallest)
    assert 0 < infer.sd < 10


END = "attention/toy/end/two-sided/{}/{}/effective_number/mean"
FIRST, LAST = (f"attention/iterated/{when}/{{}}/entropy/mean" for when in ("first", "last"))
ALL_LAST = {LAST.format(scale): 0.01 for scale in (1, 8)}


@pytest.mark.parametrize(
    ("claim", "changes", "holds"),
    [
        ("toy", {END.format(2, "L1"): 1.0}, False),
        ("toy", {END.format(1, "L1"): 1.0}, True),
        ("toy", {END.format(1, "L1"): 1.1}, False),
        ("toy", {END.format(1, "L1"): 1.0, END.format(1, "none"): 1.0}, False),
        ("toy", {END.format(1, "L1"): 1.0, END.format(1, "L2"): 1.0}, False),
        ("attn", ALL_LAST, True),
        ("attn", ALL_LAST | {LAST.format(1): 0.2}, False),
        ("attn", ALL_LAST | {LAST.format(8): 0.2}, False),
        ("attn", ALL_LAST | {FIRST.format(1): 0.005}, False),
        ("vmf", {"attention/density/largest_z/mean": 6.0}, False),
        ("vmf.infer", {"attention/parsing/lead/dynamic routing, long/mean": 0.001}, False),
    ],
)
def test_a_claim_holds_and_fails_by_its_rule(
    studied: Writer, params: Params, claim: str, changes: dict[str, float], holds: bool
) -> None:
    assert finding(studied, params, f"001.{claim}", changes).holds is holds
