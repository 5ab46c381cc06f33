"""In what settings differ from a document's, in words: cases worked out by hand, and data that fit our settings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.params import load_params
from pipeline.profiles import Profiles
from pipeline.results import documents
from pipeline.results.documents import COPIES, LABELS, remarks
from pipeline.results.reading import Recorded
from pipeline.systems.capsnet.settings import CapsNetModelParams

ROOT = Path(__file__).parents[2]
STUDY = """
system:
  study:
    dataset: {source: mnist, train: 100, test: 50, canvas: 28}
    replicas: 3
    training: {epochs: {least: 10}, steps: {least: 300}}
    model: {sizes: [1, 2], gate: true, cost: null, width: 2000, rate: 0.5}
    published_code: {model: {order: all}}
    budget: [training.epochs]
    words:
      training.steps: "{training.epochs} epochs of {training.epoch_steps} steps"
      model.gate: "gate: {model.gate}"
  copied: {dataset: {source: [smallnorb, mnist], train: 100}}
"""
DATA = {"source": "mnist", "train": 100, "validation": 20, "canvas": 28}
MODEL = {"sizes": [1, 2], "gate": True, "cost": None, "width": 2000, "rate": 0.5, "order": "all", "ours": 1}
TRAINING = {"epochs": 30, "batch_size": 10}


@pytest.fixture
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "documents", lambda: yaml.safe_load(STUDY))


def said(name: str = "study", dataset: dict[str, Any] | None = None, **more: Any) -> list[str]:
    """Remarks on settings that are the document's but for these."""
    settings = {"model": MODEL | more.pop("model", {}), "training": TRAINING | more.pop("training", {})}
    settings |= {key: more.pop(key) for key in ("holdout",) if key in more}
    return remarks("system", name, settings, Recorded(DATA | (dataset or {})), **more)


@pytest.mark.usefixtures("_made_up")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"replicas": 3, "tested": 50}, []),
        ({"training": {"epochs": 90}, "dataset": {"train": 200}, "replicas": 9, "tested": 60}, []),
        ({"dataset": {"train": 97}}, ["trained on 97 images (paper: 100)", "30 epochs of 9 steps"]),
        ({"dataset": {"train": 98}}, ["30 epochs of 9 steps"]),  # the others validate
        ({"tested": 9, "replicas": 1}, ["tested on 9 images (paper: 50)", "1 seed (paper: 3)"]),
        ({"replicas": 2}, ["2 seeds (paper: 3)"]),
        (
            {"dataset": {"source": "digits", "train": 10}, "training": {"batch_size": 1}},
            ["not the paper's data (MNIST)"],
        ),
        ({"dataset": {"canvas": 40}}, ["canvas 40 / 28 (ours / the paper's)"]),
        (
            {"model": {"sizes": [3], "cost": 1.0, "width": 10_000, "rate": 2e-7}},
            ["sizes [3] / [1, 2], cost 1 / none, width 10,000 / 2,000, rate 2e-07 / 0.5 (ours / the paper's)"],
        ),
        ({"model": {"gate": False}}, ["gate: False"]),
        ({"model": {"order": "none"}}, ["order none / all (ours / the published code's)"]),
        ({"training": {"epochs": 9}}, ["epochs 9 / 10 (ours / the paper's)", "9 epochs of 10 steps"]),
        ({"share": 0.5}, ["30 epochs of 5 steps"]),
        ({"holdout": Recorded({"known_share": 0.5})}, ["30 epochs of less than 6 steps"]),
    ],
)
def test_every_difference_is_worded_once(changes: dict[str, Any], expected: list[str]) -> None:
    assert said(**changes) == expected


@pytest.mark.usefixtures("_made_up")
def test_copies_are_told_from_other_data() -> None:
    assert said("copied", {"source": "smallnorb"}) == said("copied", {"source": "mnist"}) == []
    assert said("copied", {"source": "smallnorb48", "train": 9}) == [
        COPIES["smallnorb48"],
        "trained on 9 images (paper: 100)",
    ]
    assert said("copied", {"source": "toys"}) == ["not the paper's data (smallNORB or MNIST)"]
    assert said(dataset={"source": "smallnorb48"})[0] == "not the paper's data (MNIST)"


@pytest.mark.usefixtures("_made_up")
def test_remarks_on_other_images_and_on_shorter_trainings_are_told_from_others() -> None:
    for found in (said("copied", {"source": "smallnorb48"}), said("copied", {"source": "toys"})):
        assert [each.kind for each in found] == ["data"]
    changed = said(dataset={"train": 97}, training={"epochs": 9}, model={"cost": 1.0}, replicas=1)
    kinds = {str(each): each.kind for each in changed}
    assert kinds == {
        "trained on 97 images (paper: 100)": "budget",
        "cost 1 / none (ours / the paper's)": "setting",
        "epochs 9 / 10 (ours / the paper's)": "budget",
        "9 epochs of 9 steps": "budget",
        "1 seed (paper: 3)": "noise",
    }


# ---- the documents


def names(values: dict[str, Any], place: str = "") -> Iterator[str]:
    """The dotted names of all settings of a network or study, and of the sections that they are in."""
    for key, value in values.items():
        if key == "published_code":
            yield from names(value, place)
        elif key not in ("words", "budget", "least"):
            yield f"{place}{key}"
            yield from names(value, f"{place}{key}.") if isinstance(value, dict) else ()


@cache
def quick() -> dict[str, Any]:
    """The parameters of profile quick."""
    return load_params(Profiles(ROOT).params_path("quick")).model_dump(mode="json")


def ours_of(system: str, name: str) -> list[dict[str, Any]]:
    """Settings that a network or study is compared with, of any run or study of the system."""
    values = quick()
    variant = {"scae": "scae", "vae": "vae", "cnn": "cnn"}.get(name.rpartition("_")[2], system)
    runs = [run for run in values["runs"].values() if run["variant"] == variant]
    if system == "regression":
        sets = [study for entry in values["regression_sets"].values() for study in entry["studies"].values()]
        runs = [study for study in [*values["regression"].values(), *sets] if name in (study["study"], *DATASETS)]
    if system == "comparison":
        runs = [{}]
    data = next(iter(values["datasets"].values()))
    more = {
        "training_share": 1.0,
        "dataset": data,
        "rate": 0.01,
        "steps": 1,
        "holdout": {"factor": "instance", "value": 4},
    }
    return [{**run, **more, "training": {**run.get("training", {}), "steps": 1, "epoch_steps": "9"}} for run in runs]


DATASETS = ("mnist", "fashion_mnist")
ALL = [(system, name) for system, each in documents.documents().items() for name in each if name != "shared"]


@pytest.mark.parametrize(("system", "name"), ALL)
def test_what_a_document_gives_is_a_setting_of_ours(system: str, name: str) -> None:
    """A misspelt name would never differ."""
    theirs = documents.documents()[system][name]
    places, ours = set(names(theirs)) - {"dataset.source"}, ours_of(system, name)
    known = set().union(*map(names, ours))
    if system == "capsnet":  # a setting at its default may be left out of the values
        known |= {f"model.{setting}" for setting in CapsNetModelParams.model_fields}
    assert places - known == set()
    assert {*theirs.get("words", ()), *theirs.get("budget", ())} <= places
    for words in theirs.get("words", {}).values():
        assert words.format_map(Recorded(ours[0])), "with our settings"
    sources = theirs.get("dataset", {}).get("source", "mnist")
    assert set(sources if isinstance(sources, list) else [sources]) <= LABELS.keys()
