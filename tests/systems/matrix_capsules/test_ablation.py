"""What an ablation trains."""

from __future__ import annotations

import pytest
from small import small_run, training

from pipeline.systems.matrix_capsules.studies.ablation import ablated
from pipeline.systems.matrix_capsules.studies.settings import AblationParams


def test_an_ablation_changes_its_settings_and_stretches_the_margins_growth() -> None:
    run = small_run("matrix_capsules", training=training(epochs=4).model_dump())
    found = ablated(run, AblationParams(run="a", epochs=6, replicas=3, model={"iterations": 5, "pose": "vector"}))
    changes = {"iterations": 5, "pose": "vector", "margin_epochs": pytest.approx(1.5 * run.model.margin_epochs)}
    assert found.model.model_dump() == {**run.model.model_dump(), **changes}
    assert (found.replicas, found.training.epochs, found.dataset) == (3, 6, run.dataset)
