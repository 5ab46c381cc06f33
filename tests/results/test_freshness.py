"""Results beside the profile: what was not executed, what has other settings, what the profile does not have."""

from __future__ import annotations

from typing import Any

from records import ResultFiles

from pipeline.dependencies import Graph
from pipeline.results.freshness import CHANGED, DRAFT, GONE, compare, expected_settings, summary

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


def execute(files: ResultFiles, items: dict[str, dict[str, Any]]) -> None:
    for label, each in items.items():
        stage, _, item = label.partition("/")
        files.numbers(stage, item, {}, settings=each)


def test_right_after_everything_was_executed_nothing_is_to_be_said(files: ResultFiles) -> None:
    execute(files, expected())
    missing, others = compare(files.results, expected())
    assert (missing, others) == ([], {})
    assert summary(missing, others) == []
    # Where a result was computed is no setting of it.
    assert compare(files.results, expected(device="cuda")) == ([], {})


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
