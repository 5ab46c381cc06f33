"""What the sweep over rotations trains."""

from __future__ import annotations

import pytest
from small import small_run, training

from pipeline.probes.sweep import swept
from pipeline.studies.sweep import SweepParams


@pytest.mark.parametrize(("share", "epochs"), [(1.0, 7), (0.5, 4), (0.01, 1)])
def test_a_sweep_trains_for_its_share_of_the_runs_own_epochs(share: float, epochs: int) -> None:
    run = small_run("scae", training=training(epochs=7).model_dump())
    sweep = SweepParams(angles=[0.0, 45.0], runs=["a"], replicas=5, training_share=share)
    found = swept(run, 45, sweep)
    assert found.training.epochs == epochs
    assert (found.replicas, found.augmentation.rotation, found.augmentation.shift) == (5, 45.0, 0.0)
    assert found.model == run.model
