"""How far a profile is, on a handful of items with known times."""

from __future__ import annotations

from typing import Any

import pytest
from records import ResultFiles

from pipeline.results.status import ItemStatus, statuses, trained_images


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
    assert found(files)["evaluate/a"].state == "recorded"
    assert found(files, locked={"train/a"})["train/a"].state == "recorded"
    assert found(files, locked={"train/b"})["train/a"].state == "unlocked"
    running = found(files, running={"train/b", "train/a"}.__contains__)
    assert [label for label, each in running.items() if each.state == "running"] == ["train/a", "train/b"]


def test_hours_are_recorded_or_follow_from_images_epochs_and_seeds(files: ResultFiles) -> None:
    by_label = found(files)
    hours = {label: (each.hours, each.estimated) for label, each in by_label.items()}
    assert hours["train/a"] == (1.0, False)
    assert hours["train/b"] == (pytest.approx(6.0), True)  # six times as many images
    assert hours["train/c"] == (pytest.approx(0.5), True)  # not the time of the other settings
    assert hours["train/other"] == (None, True), "nothing like it was trained"
    assert hours["evaluate/b"] == (0.5, True), "the median of its stage"
    assert hours["train/old"] == (0.25, False), "all parts of a training that was resumed"
    assert by_label["train/a"].commit == "0123456"
    assert by_label["train/b"].commit == ""


def test_images_trained_on_are_counted_over_all_conditions_and_seeds() -> None:
    def of(stage: str, name: str, study: dict[str, Any], **more: Any) -> dict[str, float]:
        return trained_images(stage, name, RUNS["a"] | {stage: study} | more)

    conditions = {"run": "a", "epochs": 4, "conditions": {"x": {}, "y": {}}}
    assert of("ablation", "s", {"s": conditions | {"replicas": 3}}) == {"vae": 4 * 2 * 3 * 1000}
    longer = {"conditions": {"x": {}, "y": {"model": {}}, "z": {"training": {"epochs": 6}}}}
    recipe = conditions | longer | {"held_out": [4, 6, 7]}
    assert of("recipe", "s", {"s": recipe}) == {"vae": (4 + 4 + 6) * 3 * 1000}
    swept = {"replicas": 2, "training_share": 0.5}
    assert of("sweep", "a-45", swept, item={"run": "a", "angle": 45}) == {"vae": 10 * 0.5 * 2 * 1000}
    varied = {"run": "a", "epochs": 4, "replicas": 1, "hyperparameters": {"p": [0.1, 0.2]}}
    assert of("sensitivity", "p", varied) == {"vae": 4 * 3 * 1000}
    posterior = {"s": {"run": "a", "epochs": 4, "replicas": 2}}
    assert of("posterior", "s", posterior) == {"vae": (10 + 2 * 4) * 2 * 1000}
    both = {"runs": RUNS["a"]["runs"] | RUNS["other"]["runs"]}
    views = {"s": {"dataset": "few", "capsules": "a", "cnn": "other", "epochs": 6, "replicas": 1}}
    datasets = {"digits": {"train": 1000}, "few": {"train": 300}}
    found = of("viewpoint", "s", views, **both, datasets=datasets)
    assert found == pytest.approx({"vae": 600.0, "cnn": 600.0}), "of the study's own data set"
    shares = {"s": {"run": "a", "shares": [0.1, 1.0], "epochs": 4, "replicas": 2}}
    assert of("data_efficiency", "s", shares) == {"vae": 4 * 2 * 2 * 1000}, "as many on each share"
    assert of("evaluate", "a", {}) == {}
    assert trained_images("regression", "x", {}) == {}
