"""Verdict rules on cases worked out by hand, and a scorecard of stand-in measures that leaves no claim out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from records import ResultFiles

from pipeline import report
from pipeline.page.scorecard import Row, build_scorecard, count_verdicts, judge, tolerance
from pipeline.results.claims import Claim, load_claims
from pipeline.results.findings import Finding, Learned, Measure, Remark
from pipeline.results.measured import Measured
from pipeline.results.reading import NotMeasuredError, Results, with_training


def numeric(value: float, sd: float | None = None, better: str = "higher", **more: Any) -> Claim:
    return Claim.model_validate(
        {"id": "000.x", "where": "here", "claim": "c", "value": value, "sd": sd, "better": better, **more}
    )


def found(mean: float, holds: bool | None = None) -> Finding:
    return Finding(Measured(mean, 0.0, 1), [], holds=holds)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "records", tmp_path / "arrays")


@pytest.mark.parametrize(
    ("claim", "ours", "verdict"),
    [
        (numeric(96, 1), 98.0, "within"),  # just two sd
        (numeric(96, 1), 94.0, "within"),
        (numeric(94, 1), 0.96 * 100, "within"),  # a tie, up to rounding
        (numeric(96, 1), 98.1, "better"),
        (numeric(96, 1), 93.9, "worse"),
        (numeric(2.2, 0.1, "lower"), 1.9, "better"),
        (numeric(2.2, 0.1, "lower"), 2.5, "worse"),
        (numeric(0.5, tolerance=0.25), 0.0, "worse"),
        (numeric(0.5, tolerance=0.25), 0.7, "within"),
        (numeric(0.5, tolerance=0.25), 0.8, "better"),
        (numeric(94, 1, "neither"), 97.0, "worse"),  # a baseline
        (numeric(94, 1, "neither"), 91.0, "worse"),
    ],
)
def test_a_number_is_judged_by_its_tolerance_and_its_good_side(claim: Claim, ours: float, verdict: str) -> None:
    assert judge(claim, found(ours)) == verdict


def test_tolerance_without_sd_is_two_binomial_standard_errors_on_ten_thousand_images() -> None:
    # 10 % of 10,000 images: the count has a variance of 10,000 * 0.1 * 0.9 = 900, so an sd of 30 images or 0.3 points.
    assert tolerance(numeric(10, better="lower"))[0] == pytest.approx(0.6)
    assert tolerance(numeric(99.23))[0] == pytest.approx(0.1748, abs=1e-4)


def test_a_statement_holds_or_fails_as_its_check_says_and_is_not_run_without_one() -> None:
    assert judge(STATEMENT, found(1.0, holds=True)) == "holds"
    assert judge(STATEMENT, found(1.0, holds=False)) == "fails"
    assert judge(STATEMENT, None) == "not run"
    assert judge(numeric(1), None) == "not run"


LOWER = numeric(1.8, better="lower")
JPEG = Remark("decoded from JPEG copies (the paper's: the published files)", "data")
STEPS = Remark("4 epochs of 50 steps (the published code: 200,000 steps)", "budget")
CHANNELS = Remark("channels 64 / 32 (ours / the paper's)")
SEEDS = Remark("1 seed (paper: 5)", "noise")
STATEMENT = Claim(id="000.x", where="here", claim="c", holds_when="it does", unit="%")


def row_of(claim: Claim, results: Results, mean: float, sd: float = 0.0, n: int = 1, **more: Any) -> Row:
    finding = Finding(Measured(mean, sd, n), [], **more)
    (row,) = build_scorecard([claim], results, {claim.id: lambda _: finding})
    return row


def test_a_poor_or_short_training_leaves_only_numbers_untested_that_are_worse_errors(results: Results) -> None:
    learned = Learned(50.0, "validation", 60.0, 40.0, 10_000)
    rows = [
        row_of(numeric(96, 1), results, 90.0, learned=learned),
        row_of(numeric(5.2, 0.2, "neither"), results, 1.1, learned=learned),  # a baseline better than the document's
        row_of(STATEMENT, results, 90.0, holds=False, learned=learned, remarks=[CHANNELS, SEEDS]),
        *(row_of(LOWER, results, ours, remarks=[STEPS]) for ours in (1.8, 1.0)),
    ]
    assert all(row["verdict"] == row["judged"] for row in rows)


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize(("remarks", "why"), [([JPEG, STEPS], ("budget", STEPS)), ([CHANNELS, JPEG], ("data", JPEG))])
def test_a_statement_is_not_tested_with_too_few_steps_or_on_other_images(
    results: Results, holds: bool, remarks: list[Remark], why: tuple[str, str]
) -> None:
    row = row_of(STATEMENT, results, 90.0, holds=holds, remarks=remarks)
    assert (row["verdict"], row["judged"]) == ("not tested", "holds" if holds else "fails")
    assert row["why"] == why


@pytest.mark.parametrize(
    ("ours", "remarks", "learned", "why", "verdict"),
    [
        ((5.0,), [JPEG], Learned(3.104), ("budget", "training error 3.10 %"), "not tested"),
        ((5.0,), [CHANNELS], Learned(1.8), ("setting", CHANNELS), "worse"),
        *(((ours,), [JPEG], Learned(1.0), ("data", JPEG), "not tested") for ours in (5.0, 1.8, 1.0)),
        ((1.8,), [STEPS], Learned(3.1), None, "within"),
        ((1.0,), [CHANNELS], Learned(3.1, "test", 9.0, 2.0, 1000), ("setting", CHANNELS), "better"),
        (
            (5.0,),
            [],
            Learned(1.0, "test", 5.0, 2.0, 1000),
            ("budget", "test error still falls, from 5.00"),
            "not tested",
        ),
        # The difference of 5 and 2 % has a standard error of 1.5 points of 300 images, and of 1.8 points of 200.
        ((5.0,), [], Learned(1.0, "validation", 5.0, 2.0, 300), ("budget", "validation error still"), "not tested"),
        ((5.0,), [SEEDS], Learned(1.0, "validation", 5.0, 2.0, 200), ("noise", SEEDS), "worse"),
        ((5.0,), [SEEDS], Learned(1.0, "validation", 2.0, 5.0, 10_000), ("noise", SEEDS), "worse"),  # it rises
        ((5.0, 4.9, 9), [SEEDS], None, ("noise", "two standard errors of our mean are 3.3"), "undecided"),
        ((1.0, 3.0, 9), [STEPS], None, ("noise", "two standard errors of our mean are 2"), "undecided"),
        ((5.0, 4.7, 9), [SEEDS], None, ("noise", SEEDS), "worse"),  # two standard errors are 3.13, it is 3.2 off
        ((5.0, 4.9, 9), [JPEG, CHANNELS, STEPS], None, ("budget", STEPS), "not tested"),
        ((5.0,), [SEEDS, CHANNELS], None, ("setting", f"{CHANNELS}; other differences: noise"), "worse"),
        ((5.0,), [], None, ("unexplained", "as far as it gives them"), "worse"),
        ((1.0,), [STEPS, CHANNELS], None, ("setting", f"{CHANNELS}; other differences: budget"), "better"),
    ],
)
def test_a_row_says_what_may_explain_that_it_does_not_agree(
    results: Results,
    ours: tuple[float, ...],
    remarks: list[Remark],
    learned: Learned | None,
    why: tuple[str, str] | None,
    verdict: str,
) -> None:
    row = row_of(LOWER, results, *ours, remarks=remarks, learned=learned)
    assert row["verdict"] == verdict
    assert row["judged"] == row_of(LOWER, results, *ours)["judged"], "by the number alone"
    assert (row["why"] or [None])[0] == (why or [None])[0]
    assert why is None or (row["why"] is not None and why[1] in row["why"][1])


def test_a_draft_answers_no_claim_where_results_are_published_and_its_row_says_what_it_comes_to(
    tmp_path: Path,
) -> None:
    claim = numeric(96, 1)
    files = ResultFiles(tmp_path, tmp_path)
    results = files.results

    def write(item: str, dirty: bool, value: float, stage: str = "evaluate") -> None:
        runs = {item: {"dataset": "digits", "training": {"epochs": 1, "patience": 1}}}
        settings = {"runs": runs, "datasets": {"digits": {}}}
        files.numbers(stage, item, {"value": value}, dirty=dirty, settings=settings)

    def measure(found: Results) -> Finding:
        """The first item answers."""
        for item, numbers in found.executed("evaluate"):
            value = numbers.number("value")
            assert value is not None
            return Finding(Measured(value, 0.0, 1), with_training(found, numbers, item))
        raise NotMeasuredError("evaluate has no result")

    def row(drafts: bool) -> Row:
        (only,) = build_scorecard([claim], results, {claim.id: measure}, drafts=drafts)
        return only

    assert row(False)["why"] == ("not run", "evaluate has no result")
    write("a", True, 90.0)
    assert (row(True)["verdict"], row(True)["notes"]) == ("worse", [])
    assert row(False)["verdict"] == "not run"
    assert row(False)["ours"] is None
    (note,) = row(False)["notes"]
    assert note == "drafts would give the verdict worse (90 %): evaluate/a made from uncommitted changes"
    assert row(False)["why"] == ("not run", "it rests on a draft")
    write("b", True, 0.0, "train")
    write("b", False, 96.0)
    assert row(False)["notes"] == ["drafts would give the verdict within (96 %): train/b made from uncommitted changes"]
    write("a", False, 95.0)
    assert (row(False)["verdict"], row(False)["notes"]) == ("within", [])
    assert row(False)["ours"] == {"value": 95.0, "sd": 0.0, "n": 1}


def test_every_claim_has_a_row_in_order_and_those_in_other_settings_are_counted_apart(results: Results) -> None:
    trained, probed, swept = (
        {"stage": stage, "item": "capsules", "dataset": "digits"} for stage in ("train", "evaluate", "sweep")
    )
    claims = [numeric(96, 1), *(STATEMENT.model_copy(update={"id": name}) for name in ("000.y", "001.z"))]
    held = Finding(None, [swept], holds=True, remarks=[CHANNELS], notes=["a note"])

    def missing(_: Results) -> Finding:
        raise NotMeasuredError("evaluate/z has no result")

    measures: dict[str, Measure] = {
        "000.x": lambda _: Finding(Measured(95.5, 0.4, 5), [trained, probed]),
        "000.y": lambda _: held,
        "001.z": missing,
    }
    rows = build_scorecard(claims, results, measures)
    assert [row["id"] for row in rows] == ["000.x", "000.y", "001.z"]
    assert [row["verdict"] for row in rows] == ["within", "holds", "not run"]
    json.dumps(rows, allow_nan=False)
    first, second, third = rows
    assert first["ours"] == {"value": 95.5, "sd": 0.4, "n": 5}
    assert first["paper"] == {"value": 96.0, "sd": 1.0}
    assert first["provenance"]["items"] == ["train/capsules", "evaluate/capsules"]
    assert (second["ours"], second["notes"]) == (None, ["a note"])
    assert (second["dataset"], second["remarks"]) == ("digits", [CHANNELS])
    assert (third["ours"], third["dataset"], third["provenance"]["items"]) == (None, None, [])
    assert [row["why"] for row in rows] == [None, None, ("not run", "evaluate/z has no result")]
    counts = count_verdicts(rows)
    found = {tier: {verdict: count for verdict, count in row.items() if count} for tier, row in counts.items()}
    assert found == {
        "document's setting": {"within": 1},
        "other settings": {"holds": 1},
        None: {"not run": 1},
    }


def test_every_claim_has_a_measure_and_every_measure_a_claim() -> None:
    assert report.measures().keys() == {claim.id for claim in load_claims()}
