"""The training loop: its schedule, validation, early stop, and what it does when a number stops being one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from line import Line, train_line
from small import SCAE_SIZE, SIZE, STILL, small_run, squares, training

from pipeline.learning import gradient
from pipeline.learning.checkpoints import Checkpoint
from pipeline.learning.gradient import DivergedError, Task, Trained, group_replicas, train
from pipeline.learning.settings import AugmentationParams, CropParams
from pipeline.systems import build_model

CPU = torch.device("cpu")


def test_the_step_size_falls_along_a_cosine() -> None:
    """w moves by the step size of each step; epochs of one step, so that `train_w` shows it before each."""
    found = train_line([0], epochs=6, learning_rate=0.1, final_learning_rate=0.02)
    moves = np.diff(found.history["train_w"])
    expected = [0.02 + 0.08 * 0.5 * (1 + math.cos(math.pi * epoch / 6)) for epoch in range(5)]
    assert moves == pytest.approx(expected, rel=1e-4)
    assert moves[0] == pytest.approx(0.1)


def test_the_step_size_falls_by_a_constant_factor() -> None:
    found = train_line([0], epochs=6, learning_rate=0.1, final_learning_rate=0.02, decay="exponential")
    assert np.diff(found.history["train_w"]) == pytest.approx(0.1 * 0.2 ** (np.arange(5) / 6), rel=1e-4)


def test_the_step_size_falls_within_an_epoch_too() -> None:
    found = train_line([0], epochs=1, steps=4, learning_rate=0.01, final_learning_rate=0.002)
    expected = sum(0.002 + 0.008 * 0.5 * (1 + math.cos(math.pi * step / 4)) for step in range(4))
    assert found.history["validation_w"].item() + 0.06 == pytest.approx(expected, rel=1e-4)


def test_the_weights_kept_are_the_best_on_validation_not_the_last() -> None:
    """w = -0.26, -0.16, -0.06, 0.04, ...: of steps of 0.1 from -0.36 the validation loss |w| is least at epoch 4."""
    found = train_line([3], epochs=9)
    assert found.history["validation_w"].tolist() == pytest.approx(np.arange(-0.26, 0.6, 0.1).tolist(), abs=1e-4)
    assert found.best_epoch == [4]
    assert found.parameters["w"].item() == pytest.approx(0.04, abs=1e-4)
    assert len(found.history) == 9


def test_each_replica_stops_when_its_patience_is_used_up() -> None:
    """Stacked replicas pass their best at different epochs; each stops by itself and keeps its own best."""
    found = train_line([1, 6, 3], [[0, 1, 2]], epochs=50, patience=3)
    apart = train_line([1, 6, 3], [[0], [1], [2]], epochs=50, patience=3)
    assert found.best_epoch == apart.best_epoch
    assert len(set(found.best_epoch)) == 3
    last = found.history.groupby("replica")["epoch"].max()
    assert [last[replica] - best for replica, best in enumerate(found.best_epoch)] == [3, 3, 3]
    torch.testing.assert_close(found.parameters, apart.parameters)
    assert found.parameters["w"].abs().max() < 0.06


def test_training_without_a_stop_runs_all_epochs() -> None:
    assert len(train_line([2], epochs=7, patience=7).history) == 7


def test_a_stopped_replica_that_later_diverges_does_not_end_the_others() -> None:
    """It steps on beside the others for want of a way out of the stack, but nothing it does counts any more."""

    class Fragile(Line):
        def forward(self, *inputs: Any) -> Any:
            loss, metrics = super().forward(*inputs)
            bad = torch.where(self.w[0] > 0.4, torch.nan, 0.0)  # far behind its best at zero
            return loss + bad, metrics

    found = train_line([0, 6], [[0, 1]], epochs=9, patience=2, model=Fragile)
    apart = train_line([0, 6], [[0], [1]], epochs=9, patience=2, model=Fragile)
    assert found.best_epoch == apart.best_epoch
    torch.testing.assert_close(found.parameters, apart.parameters)


# ---- numbers that are none


def test_a_term_that_is_not_finite_stops_training_by_name_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "abc", interval=0)
    with pytest.raises(DivergedError) as caught:
        train_line([0], epochs=5, steps=4, checkpoints=[checkpoint], model=lambda: Line(bad_from=2.5))
    message = str(caught.value)
    assert "epoch 3, step 3: " in message, "counted from one"
    assert "bad_term" in message
    assert "good_term" not in message
    assert f"checkpoint is kept at {checkpoint.path}" in message
    assert caught.value.exit_code == 1
    loaded = Checkpoint(tmp_path, "abc").load("cpu")
    assert loaded is not None
    tensors, state = loaded
    assert state["epoch"] == 2
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_without_a_checkpoint_none_is_promised() -> None:
    with pytest.raises(DivergedError, match="epoch 1, step 1: ") as caught:
        train_line([0], epochs=5, model=lambda: Line(bad_from=0.0))
    assert "checkpoint" not in str(caught.value)


def test_one_replica_of_a_stack_is_enough_to_stop() -> None:
    class Fragile(Line):
        def forward(self, *inputs: Any) -> Any:
            loss, metrics = super().forward(*inputs)
            metrics["good_term"] = metrics["good_term"] + torch.where(self.w[0] > 0, torch.nan, 0.0)
            return loss, metrics

    with pytest.raises(DivergedError, match=r"seed 1, 0, 2: not finite at epoch 1, step 2: good_term"):
        train_line([1, 0, 2], [[0, 1, 2]], epochs=5, steps=3, model=Fragile)


def test_a_validation_that_is_not_finite_stops_training_too(tmp_path: Path) -> None:
    """The last step of an epoch can spoil the weights: no checkpoint may keep them as if they were good."""
    # Three validation images in batches of two: only validation ever sees one image alone.
    checkpoint = Checkpoint(tmp_path, "abc", interval=0)
    with pytest.raises(DivergedError, match=r"epoch 2, validation: .*bad_term"):
        train_line([0], epochs=5, checkpoints=[checkpoint], model=lambda: Line(bad_from=2.0, bad_for=1))
    loaded = checkpoint.load("cpu")
    assert loaded is not None
    assert loaded[1]["epoch"] == 1


def test_a_real_model_that_diverges_says_so() -> None:
    run, data = small_run("vae"), squares()
    wild = training(epochs=50, learning_rate=1.0, final_learning_rate=1.0, gradient_clip=1e30)
    images = data.part("train")

    def build() -> Any:
        model = build_model(run, SIZE)
        with torch.no_grad():
            next(model.parameters()).mul_(1e30)
        return model

    with pytest.raises(DivergedError, match=r"epoch 1, step 1: .*log_latent"):
        train(Task(build, wild, STILL, images, images), [0], CPU)


# ---- resuming


BATCH_NORM = {"activation": "bayes", "batch_norm": True, "saving": None}
"""Of matrix capsules, with statistics that are measured after each epoch."""


@pytest.mark.parametrize(
    ("variant", "model", "changes"),
    [
        ("generative", {}, {"optimiser": "adam"}),
        ("generative", {}, {"optimiser": "rmsprop", "averaging": 0.2}),
        ("scae", {}, {"optimiser": "rmsprop"}),
        ("cnn", {"mixup": 0.3}, {}),
        ("matrix_capsules", {"mixup": 0.3, "beta_a_unit": 50.0}, {"averaging": 0.2}),
        ("matrix_capsules", BATCH_NORM, {}),
        ("matrix_capsules", BATCH_NORM, {"averaging": 0.2}),
    ],
)
def test_a_training_cut_between_epochs_goes_on_as_if_nothing_had_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str, model: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Cut by an exception in the callback of epoch 2; what a kill leaves in mid-epoch is tested with real kills."""
    size = SCAE_SIZE if variant == "scae" else SIZE
    run, data = small_run(variant), squares(size=size)
    run = run.model_copy(update={"model": run.model.model_copy(update=model)})
    images, validation = data.part("train"), data.part("validation")
    turned = AugmentationParams(rotation=30.0, shift=1.0, whole_pixels=False)
    augmentation = run.augmentation if isinstance(run.augmentation, CropParams) else turned
    settings = training(epochs=4, **changes)

    def go(checkpoint: Checkpoint | None, on_epoch: Any = None) -> gradient.Trained:
        return train(
            Task(lambda: build_model(run, size), settings, augmentation, images, validation),
            [3],
            CPU,
            checkpoints=None if checkpoint is None else [checkpoint],
            on_epoch=on_epoch,
        )

    class CutError(Exception):
        pass

    def cut(rows: list[dict[str, float]]) -> None:
        if rows[0]["epoch"] == 2:
            raise CutError

    whole = go(None)
    with pytest.raises(CutError):
        go(Checkpoint(tmp_path, "k", interval=0), cut)
    epochs: list[float] = []
    resumed = go(Checkpoint(tmp_path, "k", interval=0), lambda rows: epochs.append(rows[0]["epoch"]))
    assert epochs == [1, 2, 3, 4], "what the checkpoint brings back is told again"
    for name, weights in whole.parameters.items():
        assert torch.equal(resumed.parameters[name], weights), name
    measured = [column for column in whole.history.columns if column != "images_per_second"]
    assert resumed.history[measured].equals(whole.history[measured])
    assert resumed.best_epoch == whole.best_epoch
    # ... and a finished one is not done again.
    monkeypatch.setattr(gradient._Loop, "_one_epoch", lambda loop: pytest.fail("nothing is left to do"))
    again = go(Checkpoint(tmp_path, "k"))
    assert all(torch.equal(again.parameters[name], weights) for name, weights in whole.parameters.items())


def test_early_stops_survive_an_interruption(tmp_path: Path) -> None:
    whole = train_line([1, 6], [[0, 1]], epochs=30, patience=3)
    checkpoint = Checkpoint(tmp_path, "k", interval=0)
    for epochs in (5, 6, 9, 30):  # cut again and again, as a changed number of epochs would not be outside a test
        resumed = train_line([1, 6], [[0, 1]], [checkpoint], epochs=epochs, patience=3)
    assert resumed.best_epoch == whole.best_epoch
    torch.testing.assert_close(resumed.parameters, whole.parameters)


# ---- images


def test_validation_sees_the_same_images_and_noise_at_every_epoch() -> None:
    """More images than a batch, of uneven size: their mean is over images, not over batches."""
    run, data = small_run("vae"), squares()
    images, validation = data.part("train"), data.part("validation")
    frozen = training(epochs=3, batch_size=5, learning_rate=1e-30, final_learning_rate=1e-30)
    augmentation = AugmentationParams(rotation=45.0, shift=1.0, whole_pixels=False)
    small_batches = train(Task(lambda: build_model(run, SIZE), frozen, augmentation, images, validation), [0], CPU)
    assert small_batches.history["validation_loss"].nunique() == 1
    assert small_batches.history["train_loss"].nunique() == 3
    whole = frozen.model_copy(update={"batch_size": len(validation[0])})
    at_once = train(Task(lambda: build_model(run, SIZE), whole, augmentation, images, validation), [0], CPU)
    assert at_once.history["validation_loss"][0] == pytest.approx(small_batches.history["validation_loss"][0], rel=1e-5)


def test_every_epoch_is_told_with_its_metrics() -> None:
    told: list[list[dict[str, float]]] = []
    run, data = small_run(), squares()
    images, validation = data.part("train"), data.part("validation")
    found = train(
        Task(lambda: build_model(run, SIZE), training(epochs=2), STILL, images, validation),
        [4, 5],
        CPU,
        groups=[[0, 1]],
        on_epoch=told.append,
    )
    assert [(row["replica"], row["epoch"]) for rows in told for row in rows] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    terms = ["log_pixels", "log_parts", "log_objects", "entropy"]
    for row in told[-1]:
        for part in ("train", "validation"):
            assert sum(row[f"{part}_{term}"] for term in terms) == pytest.approx(row[f"{part}_bound"], rel=1e-5)
            assert row[f"{part}_bound"] == pytest.approx(-row[f"{part}_loss"], rel=1e-5)
        assert row["images_per_second"] > 0
        assert row["train_gradient_norm"] > 0
        assert row["train_pixel_error"] > 0
    assert len(found.history) == 4
    assert found.seconds > 0


def test_watched_images_are_measured_like_those_of_validation_and_decide_nothing() -> None:
    run, data = small_run("cnn"), squares()
    other = (data.images[data.split["test"]], data.labels[data.split["test"]])

    def trained(**watched: Any) -> Trained:
        return train(
            Task(
                lambda: build_model(run, 10),
                training(),
                run.augmentation,
                data.part("train"),
                data.part("validation"),
                watched,
            ),
            [0, 1],
            CPU,
        )

    alone, beside = trained(), trained(same=data.part("validation"), other=other)
    torch.testing.assert_close(alone.parameters, beside.parameters)
    history = beside.history
    np.testing.assert_allclose(history["same_loss"], history["validation_loss"], rtol=1e-5)
    np.testing.assert_allclose(history["same_accuracy"], history["validation_accuracy"], rtol=1e-5)
    assert (abs(history["other_loss"] - history["validation_loss"]) > 1e-4).all()
    assert not [name for name in alone.history.columns if name.startswith("same")]


def test_networks_that_fill_a_device_by_themselves_are_not_stacked() -> None:
    gpu = torch.device("cuda")
    assert group_replicas(3, gpu) == [[0, 1, 2]]
    assert group_replicas(3, gpu, stackable=False) == group_replicas(3, CPU) == [[0], [1], [2]]
