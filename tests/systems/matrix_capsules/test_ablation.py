"""What an ablation trains."""

from __future__ import annotations

from typing import Any

import pytest
from small import small_run, training

from pipeline.systems.matrix_capsules.studies.ablation import AblationParams, ablated


def test_an_ablation_changes_its_settings_and_stretches_the_margins_growth() -> None:
    run = small_run("matrix_capsules", training=training(epochs=4).model_dump())
    conditions: dict[str, Any] = {"plain": {}, "both": {"iterations": 5, "pose": "vector"}}
    study = AblationParams(run="a", epochs=6, replicas=3, conditions=conditions)
    found = ablated(run, study, "both")
    changes = {"iterations": 5, "pose": "vector", "margin_epochs": pytest.approx(1.5 * run.model.margin_epochs)}
    assert found.model.model_dump() == {**run.model.model_dump(), **changes}
    assert ablated(run, study, "plain").model == run.with_epochs(6).model
    assert (found.replicas, found.training.epochs, found.dataset) == (3, 6, run.dataset)
