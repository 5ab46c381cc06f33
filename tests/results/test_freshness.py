"""Results beside the profile: their states, on a handful of items with known times."""

from __future__ import annotations

from typing import Any

import pytest
from records import ResultFiles

from pipeline.dependencies import Graph
from pipeline.results.freshness import (
    STATES,
    ItemStatus,
    by_reason,
    compare,
    current_settings,
    statuses,
    table,
)

STAGES: dict[str, Any] = {
    stage: {
        "foreach": "${runs}",
        "do": {
            "cmd": f"{stage} ${{key}}",
            "params": ["runs.${key}", "device"],
            "outs": [{f"reports/${{profile}}/results/{stage}/${{key}}.json": {"cache": False}}],
        },
    }
    for stage in ("train", "evaluate")
}
STAGES["tables"] = {"cmd": "tables", "deps": ["reports/${profile}/results"], "outs": ["reports/scorecard.json"]}
VALUES = {"profile": "quick", "runs": {"a": {"epochs": 10}, "b": {"epochs": 20}, "c": {"epochs": 5}}}

GRAPH = Graph(STAGES, VALUES)
EXPECTED = current_settings(GRAPH, VALUES | {"device": "cpu"})


@pytest.fixture
def files(files: ResultFiles) -> ResultFiles:
    """A is recorded, but its evaluation a draft, c is stale, and there is a result that is not in the profile."""
    stale = {"runs": {"c": {"epochs": 7}}}
    files.numbers("train", "a", {}, settings=EXPECTED["train/a"], seconds=3600.0, commit="0123456789")
    files.numbers("train", "c", {}, settings=stale, seconds=7 * 360.0, commit="fedcba9876", dirty=True)
    files.numbers("evaluate", "a", {}, settings=EXPECTED["evaluate/a"], seconds=1800.0, dirty=True)
    files.numbers("train", "old", {"seconds": 900.0}, settings={"runs": {"old": {}}}, seconds=300.0)
    return files


def found(files: ResultFiles, **options: Any) -> dict[str, ItemStatus]:
    return {each.label: each for each in statuses(files.results, EXPECTED, **options)}


def test_each_item_has_its_state(files: ResultFiles) -> None:
    states = {label: each.state for label, each in found(files, publish=True).items()}
    assert states == {
        "train/a": "recorded",
        "train/b": "missing",
        "train/c": "stale",
        "evaluate/a": "draft",
        "evaluate/b": "missing",
        "evaluate/c": "missing",
        "train/old": "gone",
    }
    assert found(files)["train/c"].changed == (("runs.c.epochs", 7, 5),)
    assert found(files)["evaluate/a"].state == "recorded"
    code = {label: [("pipeline/a.py", "0123456", "fedcba9")] for label in ("train/a", "train/c", "train/old")}
    changed = found(files, changed_code=code)
    assert [label for label, each in changed.items() if each.state == "outdated"] == ["train/a"], "others say more"
    assert "    pipeline/a.py  0123456 -> fedcba9" in table([changed["train/a"]])
    assert not changed["train/old"].changed
    assert found(files, locked={"train/a"})["train/a"].state == "recorded"
    assert found(files, locked={"train/b"})["train/a"].state == "unlocked"
    running = found(files, running={"train/b", "train/a"}.__contains__)
    assert [label for label, each in running.items() if each.state == "running"] == ["train/a", "train/b"]


def test_what_differs_from_the_profile_has_a_reason_and_the_device_is_none(files: ResultFiles) -> None:
    differing = compare(files.results, current_settings(GRAPH, VALUES | {"device": "cuda"}), publish=True)
    assert by_reason(differing, differing) == {
        STATES["missing"]: ["train/b", "evaluate/b", "evaluate/c"],
        STATES["stale"]: ["train/c"],
        STATES["draft"]: ["evaluate/a"],
        STATES["gone"]: ["train/old"],
    }


def test_hours_are_recorded_or_the_median_of_the_stage(files: ResultFiles) -> None:
    by_label = found(files)
    hours = {label: (each.hours, each.estimated) for label, each in by_label.items()}
    assert hours["train/a"] == (1.0, False)
    assert hours["train/b"] == hours["train/c"] == (pytest.approx(0.7), True)
    assert hours["evaluate/b"] == (0.5, True)
    assert hours["train/old"] == (0.25, False), "all parts of a training that was resumed"
    assert by_label["train/a"].commit == "0123456"
    assert by_label["train/b"].commit == ""
    assert "2 recorded (1.5 h)" in table(list(by_label.values()))[-1]
