"""A run's settings: trained for other epochs, and held against the images it is to learn from."""

from __future__ import annotations

from typing import Any

import pytest
from small import SMALL_CNN, SMALL_MATRIX_CAPSULES, SMALL_SCAE, small_run, training

from pipeline.errors import UserError
from pipeline.systems import MODELS
from pipeline.systems.generative.settings import SCHEDULE, SeedingParams

CLASSIFIERS = ("capsnet", "matrix_capsules", "cnn")
OF_CROPS = ("matrix_capsules", "cnn")
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


def test_there_is_one_seed_for_each_replica() -> None:
    assert small_run("vae", seed=7, replicas=3).seeds == [7, 8, 9]


class TestImagesThatARunCannotLearnFrom:
    """They are refused by name before anything is trained."""

    def refused(self, run: Any, channels: int, size: int, classes: int) -> str:
        with pytest.raises(UserError) as caught:
            run.check_fits(channels, size, classes)
        return str(caught.value)

    @pytest.mark.parametrize("variant", MODELS)
    def test_none_where_they_fit(self, variant: str) -> None:
        run = small_run(variant)
        run.check_fits(1, 23, 3)
        run.check_fits(1, 23, 2)  # fewer classes than outputs

    @pytest.mark.parametrize("variant", MODELS)
    def test_a_model_of_one_channel_refuses_pairs_of_images(self, variant: str) -> None:
        message = self.refused(small_run(variant), 2, 23, 3)
        takes = "model.views is 1" if variant in ("matrix_capsules", "cnn") else f"a model of variant {variant} takes 1"
        assert message == f"images of squares have 2 channels, but {takes}"

    @pytest.mark.parametrize(("variant", "model"), [("matrix_capsules", SMALL_MATRIX_CAPSULES), ("cnn", SMALL_CNN)])
    def test_a_model_of_pairs_refuses_single_images(self, variant: str, model: dict[str, Any]) -> None:
        run = small_run(variant, model={**model, "views": 2})
        assert run.channels == 2
        run.check_fits(2, 23, 3)
        assert self.refused(run, 1, 23, 3) == "images of squares have 1 channel, but model.views is 2"

    @pytest.mark.parametrize("variant", CLASSIFIERS)
    def test_a_classifier_refuses_more_classes_than_it_has_outputs(self, variant: str) -> None:
        assert self.refused(small_run(variant), 1, 23, 4) == "model.classes is 3, but squares has 4 classes"

    @pytest.mark.parametrize("variant", sorted(set(MODELS) - set(CLASSIFIERS)))
    def test_who_learns_without_labels_takes_any_number_of_classes(self, variant: str) -> None:
        small_run(variant).check_fits(1, 23, 1000)
        assert SMALL_SCAE["classes"] == 3  # a setting of its sparsity, not outputs

    @pytest.mark.parametrize("variant", OF_CROPS)
    def test_images_smaller_than_the_crop_are_refused(self, variant: str) -> None:
        run = small_run(variant)
        run.check_fits(1, CROP, 3)
        message = self.refused(run, 1, CROP - 1, 3)
        assert message == "augmentation.crop is 10 pixels: squares has 9x9"
