"""Results beside the profile: what was not executed, what has other settings, what the profile does not have."""

from __future__ import annotations

from typing import Any

import pytest
from result_files import ResultFiles

from pipeline.dependencies import Graph
from pipeline.results.freshness import CHANGED, DRAFT, GONE, compare, expected_settings, summary
from pipeline.results.reading import ResultError

STAGES: dict[str, Any] = {
    "download": {"foreach": "${sources}", "do": {"cmd": "get ${item}", "outs": ["data/raw/${item}"]}},
    "train": {
        "foreach": "${runs}",
        "do": {
            "cmd": "train ${key}",
            "deps": ["data/raw/digits"],
            "params": ["runs.${key}", "device"],
            "outs": ["models/${key}", {"reports/${profile}/results/train/${key}.json": {"cache": False}}],
        },
    },
    "sweep": {
        "matrix": {"run": "${sweep.runs}", "angle": "${sweep.angles}"},
        "cmd": "sweep ${item.run} ${item.angle}",
        "deps": ["models/${item.run}"],
        "params": ["sweep.replicas"],
        "outs": [{"reports/${profile}/results/sweep/${item.run}-${item.angle}.json": {"cache": False}}],
    },
    "tables": {
        "cmd": "tables",
        "deps": ["reports/${profile}/results"],
        "outs": [{"reports/${profile}/scorecard.json": {"cache": False}}],
    },
}


def values(**changes: Any) -> dict[str, Any]:
    return {
        "profile": "quick",
        "device": "cpu",
        "sources": ["digits"],
        "runs": {"capsules": {"epochs": 25}, "vae": {"epochs": 30}},
        "sweep": {"runs": ["capsules"], "angles": [0, 45], "replicas": 2},
    } | changes


def expected(**changes: Any) -> dict[str, dict[str, Any]]:
    now = values(**changes)
    return expected_settings(Graph(STAGES, now), now)


ITEMS = ["train/capsules", "train/vae", "sweep/capsules-0", "sweep/capsules-45"]


def execute(files: ResultFiles, items: dict[str, dict[str, Any]]) -> None:
    for label, each in items.items():
        stage, _, item = label.partition("/")
        files.numbers(stage, item, {}, settings=each)


def test_only_stages_that_write_records_have_expected_settings() -> None:
    assert list(expected()) == ITEMS
    assert expected()["train/vae"] == {"runs": {"vae": {"epochs": 30}}}


def test_right_after_everything_was_executed_nothing_is_to_be_said(files: ResultFiles) -> None:
    execute(files, expected())
    missing, others = compare(files.results, expected())
    assert (missing, others) == ([], {})
    assert summary(missing, others) == []
    # Where a result was computed is no setting of it.
    assert compare(files.results, expected(device="cuda")) == ([], {})


def test_without_results_everything_is_missing(files: ResultFiles) -> None:
    missing, others = compare(files.results, expected())
    assert (missing, others) == (ITEMS, {})
    assert summary(missing, others) == [f"not executed: {', '.join(ITEMS)}"]


def test_a_changed_run_shows_in_all_that_rests_on_it(files: ResultFiles) -> None:
    execute(files, expected())
    missing, others = compare(files.results, expected(runs={"capsules": {"epochs": 26}, "vae": {"epochs": 30}}))
    assert missing == []
    assert others == dict.fromkeys(["train/capsules", "sweep/capsules-0", "sweep/capsules-45"], CHANGED)


def test_what_was_made_from_uncommitted_changes_is_a_draft_where_results_are_published(files: ResultFiles) -> None:
    execute(files, expected())
    files.numbers("train", "vae", {}, settings=expected()["train/vae"], dirty=True)
    files.numbers("train", "capsules", {}, settings={}, dirty=True)
    assert compare(files.results, expected()) == ([], {"train/capsules": CHANGED})
    missing, others = compare(files.results, expected(), publish=True)
    assert (missing, others) == ([], {"train/capsules": CHANGED, "train/vae": DRAFT})
    assert summary(missing, others)[1] == "made from uncommitted changes: train/vae"


def test_items_that_left_the_profile_come_last(files: ResultFiles) -> None:
    execute(files, expected())
    files.numbers("retired", "study", {}, settings={})
    now = expected(runs={"capsules": {"epochs": 25}}, sweep={"runs": ["capsules"], "angles": [45, 180], "replicas": 3})
    missing, others = compare(files.results, now)
    assert missing == ["sweep/capsules-180"]
    assert list(others.items()) == [
        ("sweep/capsules-45", CHANGED),
        ("train/vae", GONE),
        ("sweep/capsules-0", GONE),
        ("retired/study", GONE),
    ]
    assert summary(missing, others) == [
        "not executed: sweep/capsules-180",
        f"{CHANGED}: sweep/capsules-45",
        f"{GONE}: train/vae, sweep/capsules-0, retired/study",
    ]


def test_a_result_that_does_not_say_is_not_taken_for_the_profiles(files: ResultFiles) -> None:
    files.numbers("train", "vae", {})
    assert compare(files.results, expected())[1] == {"train/vae": CHANGED}


def test_a_corrupt_result_is_refused_by_name(files: ResultFiles) -> None:
    path = files.text("train", "vae", "{")
    with pytest.raises(ResultError, match="corrupt") as error:
        compare(files.results, expected())
    assert str(path) in str(error.value)
