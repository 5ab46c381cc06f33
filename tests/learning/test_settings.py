"""A run's settings: trained for other epochs, and held against the images it is to learn from."""

from __future__ import annotations

import pytest
from small import SMALL_CNN, SMALL_MATRIX_CAPSULES, small_run, training

from pipeline.errors import UserError
from pipeline.systems import MODELS
from pipeline.systems.generative.settings import SCHEDULE, SeedingParams

CROP = 10  # pixels a side, of the small classifiers


def test_a_shorter_training_has_its_schedule_shortened() -> None:
    run = small_run("generative", training=training(epochs=40).model_dump())
    times = {"temperature_epochs": 0, "seeding_epoch": 2, "early_epochs": 6, "ramp_epochs": 12}
    run = run.model_copy(update={"model": run.model.model_copy(update=times)})
    half, eighth = (run.with_epochs(epochs).model for epochs in (20, 5))
    assert [getattr(half, name) for name in SCHEDULE] == [0, 1, 3, 6]
    assert [getattr(eighth, name) for name in SCHEDULE] == [0, 1, 1, 2], "what happens at all still does"
    assert half.seeding is eighth.seeding is None


@pytest.mark.parametrize(("epochs", "taught"), [(40, 8), (20, 4), (1, 1)])
def test_objects_are_taught_for_their_share_of_a_shorter_training(epochs: int, taught: int) -> None:
    run = small_run("generative", training=training(epochs=40).model_dump())
    seeding = SeedingParams(images=100, iterations=5, teaching_epochs=8)
    run = run.model_copy(update={"model": run.model.model_copy(update={"seeding": seeding})})
    assert run.with_epochs(epochs).model.seeding == seeding.model_copy(update={"teaching_epochs": taught})


def test_a_longer_training_has_its_margins_growth_stretched() -> None:
    run = small_run("matrix_capsules", training=training(epochs=4).model_dump())
    changed = run.with_epochs(6)
    assert changed.model.margin_epochs == pytest.approx(1.5 * run.model.margin_epochs)
    assert changed.model.model_copy(update={"margin_epochs": run.model.margin_epochs}) == run.model
    assert changed.model_copy(update={"training": run.training, "model": run.model}) == run


@pytest.mark.parametrize("variant", ["vae", "scae", "capsnet", "cnn"])
def test_without_a_schedule_the_epochs_alone_change(variant: str) -> None:
    run = small_run(variant)
    assert run.with_epochs(3) == run.model_copy(update={"training": run.training.model_copy(update={"epochs": 3})})
    assert run.training.epochs != 3


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


def test_a_model_of_pairs_refuses_single_images() -> None:
    for variant, model in (("matrix_capsules", SMALL_MATRIX_CAPSULES), ("cnn", SMALL_CNN)):
        run = small_run(variant, model={**model, "views": 2})
        run.check_fits(2, 23, 3)
        with pytest.raises(UserError, match="1 channel, "):
            run.check_fits(1, 23, 3)
