"""A run's settings: trained for other epochs, and held against the images it is to learn from."""

from __future__ import annotations

import pytest
from small import small_run, training

from pipeline.errors import UserError
from pipeline.systems import MODELS
from pipeline.systems.generative.settings import SCHEDULE, SeedingParams

CROP = 10  # pixels a side, of the small classifiers


def test_a_shorter_training_has_its_schedule_shortened() -> None:
    times = {"temperature_epochs": 0, "seeding_epoch": 2, "early_epochs": 6, "ramp_epochs": 12}
    run = small_run("generative", training=training(epochs=40).model_dump(), model=times)
    half, eighth = (run.with_epochs(epochs).model for epochs in (20, 5))
    assert [getattr(half, name) for name in SCHEDULE] == [0, 1, 3, 6]
    assert [getattr(eighth, name) for name in SCHEDULE] == [0, 1, 1, 2], "what happens at all still does"
    assert half.seeding is eighth.seeding is None
    seeding = SeedingParams(images=100, iterations=5, teaching_epochs=8)
    taught = run.model_copy(update={"model": run.model.model_copy(update={"seeding": seeding})})
    assert [taught.with_epochs(epochs).model.seeding.teaching_epochs for epochs in (40, 20, 1)] == [8, 4, 1]


def test_a_longer_training_has_its_margins_growth_stretched() -> None:
    schedule = {"margin_epochs": 0.2, "early_epochs": 2.0}
    run = small_run("matrix_capsules", training=training(epochs=4).model_dump(), model=schedule)
    changed = run.with_epochs(6)
    longer = {name: pytest.approx(1.5 * epochs) for name, epochs in schedule.items()}
    assert changed.model.model_dump() == run.model.model_dump() | longer
    assert changed.model_copy(update={"training": run.training, "model": run.model}) == run
    vae = small_run("vae")
    assert vae.with_epochs(3) == vae.model_copy(update={"training": training(epochs=3)}), "it has no schedule"


@pytest.mark.parametrize("variant", MODELS)
def test_images_that_a_run_cannot_learn_from_are_refused(variant: str) -> None:
    """Channels, size, classes. A model without labels takes any number of classes."""
    run = small_run(variant)
    run.check_fits(1, 23, 3)
    run.check_fits(1, 23, 2)  # fewer classes than outputs
    refused = [(2, 23, 3)]
    if variant in ("capsnet", "matrix_capsules", "cnn"):
        refused.append((1, 23, 4))
    else:
        run.check_fits(1, 23, 1000)
    if variant in ("matrix_capsules", "cnn"):
        run.check_fits(1, CROP, 3)
        refused.append((1, CROP - 1, 3))
    for channels, size, classes in refused:
        with pytest.raises(UserError, match="squares"):
            run.check_fits(channels, size, classes)
