"""What a recipe trains, and what it measures."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from pydantic import ValidationError
from records import load_record
from small import ROOT, small_run, training

from pipeline.classification.settings import CroppedRun
from pipeline.data.holdout import KNOWN
from pipeline.data.published import TRAIN_INSTANCES
from pipeline.learning.train import Trained
from pipeline.studies.recipe import ERRORS, RecipeParams, errors, outcome

CONDITIONS: dict[str, Any] = {
    "unchanged": {},
    "longer": {"training": {"epochs": 6, "learning_rate": 0.01}},
    "both": {"augmentation": {"rotation": 5}, "model": {"mixup": 0.1}},
}


def study(**changes: Any) -> RecipeParams:
    values = {"run": "a", "factor": "instance", "held_out": [4, 6], "known_share": 0.1, "replicas": 1, "epochs": 2}
    return RecipeParams.model_validate(values | {"conditions": CONDITIONS} | changes)


def test_a_condition_changes_what_it_names_and_has_the_seeds_of_the_study() -> None:
    run = cast("CroppedRun", small_run("matrix_capsules", training=training(epochs=4).model_dump()))
    alone = run.with_epochs(2).model_copy(update={"replicas": 1})
    assert study().changed(run, "unchanged") == alone
    assert study(replicas=3).changed(run, "unchanged") == alone.model_copy(update={"replicas": 3})
    longer = study().changed(run, "longer")
    assert (longer.training.epochs, longer.training.learning_rate) == (6, 0.01)
    assert longer.model == run.with_epochs(6).model, "the model's schedule is as long as the training"
    both = study().changed(run, "both")
    assert both.augmentation == run.augmentation.model_copy(update={"rotation": 5})
    assert both.model.model_dump() == {**alone.model.model_dump(), "mixup": 0.1}
    assert both.training == alone.training
    held_out = study().without(run, 6).held_out
    assert held_out
    assert (held_out.factor, held_out.value, held_out.known_share) == ("instance", 6, 0.1)
    with pytest.raises(ValidationError, match=r"training\.epochs"):
        study(conditions={"wrong": {"training": {"epochs": 0}}}).changed(run, "wrong")
    with pytest.raises(ValidationError, match="4 is listed twice"):
        study(held_out=[4, 6, 4])
    with pytest.raises(ValidationError):
        study(conditions={"wrong": {"model": {"mixxup": 0.1}}}).changed(run, "wrong")


def test_errors_are_of_the_last_epoch_not_of_the_best() -> None:
    columns = {
        "replica": [0, 0, 1, 1],
        "validation_accuracy": [0.9, 0.7, 0.8, 0.6],
        "known_accuracy": [0.8, 0.95, 0.8, 0.9],
        "train_accuracy": [0.5, 0.99, 0.6, 0.98],
    }

    def found() -> pd.DataFrame:
        table = errors(cast("Trained", SimpleNamespace(history=pd.DataFrame(columns), seconds=6.0)))
        return table.pivot_table(index="replica", columns="metric", values="value")

    assert found().loc[0].to_dict() == pytest.approx({"new": 0.3, "known": 0.05, "train": 0.01, "seconds": 3.0})
    assert found().loc[1].to_dict() == pytest.approx({"new": 0.4, "known": 0.1, "train": 0.02, "seconds": 3.0})
    del columns["known_accuracy"]
    assert {*found()} == {"new", "train", "seconds"}


def test_numbers_spread_over_what_was_held_out_and_seeds() -> None:
    rows = [("a", 4, 0, 0.1), ("a", 6, 0, 0.3), ("b", 4, 0, 0.5), ("b", 4, 1, 0.6), ("b", 4, 2, 0.7)]
    table = pd.DataFrame(rows, columns=["condition", "held_out", "replica", "value"]).assign(metric="new")
    found = outcome(table).numbers["condition"]
    assert found["a"]["new"] == pytest.approx({"mean": 0.2, "sd": 0.1414, "n": 2}, rel=1e-3)
    assert found["b"]["new"] == pytest.approx({"mean": 0.6, "sd": 0.1, "n": 3})


@pytest.mark.parametrize("path", sorted(ROOT.glob("reports/*/results/recipe/*.json")), ids=lambda path: path.stem)
def test_committed_recipes_were_chosen_without_test_images(path: Path) -> None:
    """Every network of theirs validated on a toy of the training part, and looked at no test image in passing."""
    record = load_record(path)
    last = record["provenance"][-1]
    study = last["settings"]["recipe"][path.stem]
    if study["factor"] == "instance":
        assert set(study["held_out"]) <= set(TRAIN_INSTANCES)
    assert all(numbers.keys() <= {*ERRORS, "seconds"} for numbers in record["condition"].values())
    assert set(ERRORS.values()) == {"validation_accuracy", f"{KNOWN}_accuracy", "train_accuracy"}
    assert record["condition"].keys() == last["trained"].keys()
    assert all(not run.get("watched") for run in last["trained"].values())
