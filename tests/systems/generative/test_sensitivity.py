"""What is trained for a sensitivity study."""

from __future__ import annotations

from small import small_params

from pipeline.params import parse_params
from pipeline.systems.generative.settings import SCHEDULE, GenerativeRun
from pipeline.systems.generative.studies.sensitivity import varied


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
