"""How far a profile is, on a handful of items with known times."""

from __future__ import annotations

from typing import Any

import pytest
from records import ResultFiles

from pipeline.results.status import ItemStatus, statuses


def settings(run: str, epochs: int, variant: str = "vae", replicas: int = 1) -> dict[str, Any]:
    training = {"variant": variant, "dataset": "digits", "replicas": replicas, "training": {"epochs": epochs}}
    return {"runs": {run: training}, "datasets": {"digits": {"train": 1000}}}


RUNS = {
    "a": settings("a", 10),
    "b": settings("b", 20, replicas=3),
    "c": settings("c", 5),
    "other": settings("other", 10, variant="cnn"),
}
EXPECTED = {f"{stage}/{run}": each for stage in ("train", "evaluate") for run, each in RUNS.items()}


@pytest.fixture
def files(files: ResultFiles) -> ResultFiles:
    """A is recorded, c is stale, and there is a result that is not in the profile."""
    files.numbers("train", "a", {}, settings=RUNS["a"], seconds=3600.0, commit="0123456789")
    files.numbers("train", "c", {}, settings=settings("c", 7), seconds=7 * 360.0, commit="fedcba9876")
    files.numbers("evaluate", "a", {}, settings=RUNS["a"], seconds=1800.0, dirty=True)
    files.numbers("train", "old", {"seconds": 900.0}, settings=settings("old", 1), seconds=300.0)
    return files


def found(files: ResultFiles, **options: Any) -> dict[str, ItemStatus]:
    return {each.label: each for each in statuses(files.results, EXPECTED, **options)}


def test_each_item_has_its_state(files: ResultFiles) -> None:
    states = {label: each.state for label, each in found(files, publish=True).items()}
    assert states == {
        "train/a": "recorded",
        "train/b": "missing",
        "train/c": "stale",
        "train/other": "missing",
        "evaluate/a": "draft",
        "evaluate/b": "missing",
        "evaluate/c": "missing",
        "evaluate/other": "missing",
        "train/old": "gone",
    }
    assert found(files)["train/c"].changed == (("runs.c.training.epochs", 7, 5),)
    assert found(files)["evaluate/a"].state == "recorded"
    assert found(files, locked={"train/a"})["train/a"].state == "recorded"
    assert found(files, locked={"train/b"})["train/a"].state == "unlocked"
    running = found(files, running={"train/b", "train/a"}.__contains__)
    assert [label for label, each in running.items() if each.state == "running"] == ["train/a", "train/b"]


def test_hours_are_recorded_or_the_median_of_the_stage(files: ResultFiles) -> None:
    by_label = found(files)
    hours = {label: (each.hours, each.estimated) for label, each in by_label.items()}
    assert hours["train/a"] == (1.0, False)
    assert hours["train/b"] == hours["train/c"] == (pytest.approx(0.7), True)
    assert hours["evaluate/b"] == (0.5, True)
    assert hours["train/old"] == (0.25, False), "all parts of a training that was resumed"
    assert by_label["train/a"].commit == "0123456"
    assert by_label["train/b"].commit == ""
