"""Results beside the profile: what was not executed, what has other settings, what the profile does not have."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field
from result_files import ResultFiles

from pipeline.dependencies import Graph
from pipeline.results.freshness import CHANGED, DRAFT, GONE, Expected, compare, expected_settings, summary
from pipeline.results.reading import ResultError
from pipeline.settings import WITHOUT_NEUTRAL, Section, neutral

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


def expected(**changes: Any) -> dict[str, Expected]:
    now = values(**changes)
    return expected_settings(Graph(STAGES, now), now, now)


ITEMS = ["train/capsules", "train/vae", "sweep/capsules-0", "sweep/capsules-45"]


def execute(files: ResultFiles, items: dict[str, Expected]) -> None:
    for label, each in items.items():
        stage, _, item = label.partition("/")
        files.numbers(stage, item, {}, settings=each.settings)


def test_only_stages_that_write_records_have_expected_settings() -> None:
    assert list(expected()) == ITEMS
    assert expected()["train/vae"].settings == {"runs": {"vae": {"epochs": 30}}}


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
    files.numbers("train", "vae", {}, settings=expected()["train/vae"].settings, dirty=True)
    files.numbers("train", "capsules", {}, settings={}, dirty=True)
    assert compare(files.results, expected()) == ([], {"train/capsules": CHANGED})
    missing, others = compare(files.results, expected(), publish=True)
    assert (missing, others) == ([], {"train/capsules": CHANGED, "train/vae": DRAFT})
    assert summary(missing, others)[1] == "made from uncommitted changes: train/vae"


def test_a_setting_younger_than_a_result_changes_nothing_while_it_is_neutral(files: ResultFiles) -> None:
    execute(files, expected())

    def now(averaging: float) -> list[str]:
        younger = values(runs={"capsules": {"epochs": 25, "averaging": averaging}, "vae": {"epochs": 30}})
        required = younger if averaging else values()
        return list(compare(files.results, expected_settings(Graph(STAGES, younger), younger, required))[1])

    assert now(averaging=0.0) == []
    assert now(averaging=0.1) == ["train/capsules", "sweep/capsules-0", "sweep/capsules-45"]


@pytest.mark.parametrize(
    ("recorded", "agrees"),
    [
        ({"run": {"epochs": 5}}, True),
        ({"run": {"epochs": 5, "model": {}}}, True),
        ({"run": {"epochs": 5, "averaging": 0.0, "model": {"clip": True}}}, True),
        ({"run": {"epochs": 5, "averaging": 0.1}}, False),  # not neutral then
        ({"run": {"epochs": 5, "model": {"clip": False}}}, False),
        ({"run": {}}, False),
        ({"run": {"epochs": {"5": 5}}}, False),
        ({"run": {"epochs": 5, "retired": 0.0}}, False),
        ({}, False),
    ],
)
def test_settings_agree_if_only_neutral_ones_are_missing(recorded: dict[str, Any], agrees: bool) -> None:
    every = {"run": {"epochs": 5, "averaging": 0.0, "model": {"clip": True}}}
    assert Expected(settings=every, required={"run": {"epochs": 5, "model": {}}}).agrees(recorded) is agrees


def test_neutral_values_are_left_out_of_settings_at_every_depth() -> None:
    class Inner(Section):
        clip: bool = Field(json_schema_extra=neutral(True))
        size: int

    class Outer(Section):
        averaging: float = Field(json_schema_extra=neutral(0.0))
        runs: dict[str, Inner]

    outer = Outer(averaging=0.0, runs={"a": Inner(clip=True, size=1), "b": Inner(clip=False, size=1)})
    assert outer.model_dump(context=WITHOUT_NEUTRAL) == {"runs": {"a": {"size": 1}, "b": {"clip": False, "size": 1}}}
    assert set(outer.model_dump()) == {"averaging", "runs"}
    assert "averaging" in Outer(averaging=0.5, runs={}).model_dump(context=WITHOUT_NEUTRAL)


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
