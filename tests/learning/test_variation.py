"""What of a run's settings a study changes, and what it leaves."""

from __future__ import annotations

import pytest
from pipeline.learning.variation import SCHEDULE, ablated, swept, varied, viewed, with_epochs
from small import small_params, small_run, training

from pipeline.classification.settings import ViewpointParams
from pipeline.params import parse_params
from pipeline.probes.settings import SweepParams
from pipeline.systems.generative.settings import GenerativeRun
from pipeline.systems.matrix_capsules.studies.settings import AblationParams


@pytest.mark.parametrize(("share", "epochs"), [(1.0, 7), (0.5, 4), (0.01, 1)])
def test_a_sweep_trains_for_its_share_of_the_runs_own_epochs(share: float, epochs: int) -> None:
    run = small_run("scae", training=training(epochs=7).model_dump())
    sweep = SweepParams(angles=[0.0, 45.0], runs=["a"], replicas=5, training_share=share)
    found = swept(run, 45, sweep)
    assert found.training.epochs == epochs
    assert (found.replicas, found.augmentation.rotation, found.augmentation.shift) == (5, 45.0, 0.0)
    assert found.model == run.model


def test_a_varied_run_differs_in_one_hyperparameter_and_how_long_it_trains() -> None:
    params = parse_params(small_params())
    run, study = params.runs["capsules"], params.sensitivity.model_copy(update={"epochs": 7, "replicas": 3})
    assert isinstance(run, GenerativeRun)
    changed = varied(run, "pixel_sd", 0.4, study)
    assert (changed.replicas, changed.training.epochs, changed.model.pixel_sd) == (3, 7, 0.4)
    same = {"replicas": run.replicas, "training": run.training, "model": run.model}
    assert changed.model_copy(update=same) == run
    times = {name: getattr(run.model, name) for name in SCHEDULE}
    assert changed.model.model_copy(update={"pixel_sd": run.model.pixel_sd, **times}) == run.model


def test_a_shorter_training_has_its_schedule_shortened() -> None:
    run = small_run("generative", training=training(epochs=40).model_dump())
    times = {"temperature_epochs": 0, "seeding_epoch": 2, "early_epochs": 6, "ramp_epochs": 12}
    run = run.model_copy(update={"model": run.model.model_copy(update=times)})
    half, eighth = (with_epochs(run, epochs).model for epochs in (20, 5))
    assert [getattr(half, name) for name in SCHEDULE] == [0, 1, 3, 6]
    assert [getattr(eighth, name) for name in SCHEDULE] == [0, 1, 1, 2], "what happens at all still does"
    sweep = SweepParams(angles=[0], runs=["a"], replicas=1, training_share=0.5)
    assert swept(run, 0.0, sweep).model == half
    vae = small_run("vae")
    assert with_epochs(vae, 3) == vae.model_copy(update={"training": vae.training.model_copy(update={"epochs": 3})})


@pytest.mark.parametrize("variant", ["matrix_capsules", "cnn"])
def test_a_study_of_viewpoints_trains_to_its_end_on_its_own_data(variant: str) -> None:
    run = small_run(variant, training=training(epochs=4, patience=2).model_dump())
    study = ViewpointParams(axis="azimuth", dataset="other", capsules="a", cnn="b", epochs=6, replicas=3)
    found = viewed(run, study)
    assert (found.dataset, found.replicas, found.training.epochs, found.training.patience) == ("other", 3, 6, 6)
    assert type(found) is type(run)
    assert found.model.model_dump(exclude={"margin_epochs"}) == run.model.model_dump(exclude={"margin_epochs"})


def test_an_ablation_changes_its_settings_and_stretches_the_margins_growth() -> None:
    run = small_run("matrix_capsules", training=training(epochs=4).model_dump())
    found = ablated(run, AblationParams(run="a", epochs=6, replicas=3, model={"iterations": 5, "pose": "vector"}))
    changes = {"iterations": 5, "pose": "vector", "margin_epochs": pytest.approx(1.5 * run.model.margin_epochs)}
    assert found.model.model_dump() == {**run.model.model_dump(), **changes}
    assert (found.replicas, found.training.epochs, found.dataset) == (3, 6, run.dataset)
