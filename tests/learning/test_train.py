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

from pipeline.errors import UserError
from pipeline.learning.checkpoints import Checkpoint
from pipeline.learning.settings import AugmentationParams, CropParams
from pipeline.learning.train import Task, Trained, clip, train
from pipeline.systems import build_model

CPU = torch.device("cpu")


def test_the_step_size_falls_along_a_cosine_or_by_a_constant_factor() -> None:
    """w moves by the step size of each step; epochs of one step, so that `train_w` shows it before each."""
    rates = {"learning_rate": 0.1, "final_learning_rate": 0.02}
    cosine = [0.02 + 0.08 * 0.5 * (1 + math.cos(math.pi * epoch / 6)) for epoch in range(5)]
    assert np.diff(train_line([0], epochs=6, **rates).history["train_w"]) == pytest.approx(cosine, rel=1e-4)
    found = train_line([0], epochs=6, decay="exponential", **rates)
    assert np.diff(found.history["train_w"]) == pytest.approx(0.1 * 0.2 ** (np.arange(5) / 6), rel=1e-4)
    found = train_line([0], epochs=1, steps=4, learning_rate=0.01, final_learning_rate=0.002)
    expected = sum(0.002 + 0.008 * 0.5 * (1 + math.cos(math.pi * step / 4)) for step in range(4))
    assert found.history["validation_w"].item() + 0.06 == pytest.approx(expected, rel=1e-4), "within an epoch, too"


def test_a_model_may_keep_the_weights_of_its_last_epoch_and_then_never_stops_early() -> None:
    class Last(Line):
        keeps_last = True

    found = train_line([3], epochs=9, patience=1, model=Last)
    assert found.best_epoch == [9]
    assert found.parameters[0]["w"].item() == pytest.approx(found.history["validation_w"].iloc[-1], abs=1e-6)


def test_each_replica_stops_when_its_patience_is_used_up_also_after_interruptions(tmp_path: Path) -> None:
    """Replicas pass their best at different epochs; each stops by itself and keeps its own best."""
    found = train_line([1, 6, 3], epochs=50, patience=3)
    assert len(set(found.best_epoch)) == 3
    last = found.history.groupby("replica")["epoch"].max()
    assert [last[replica] - best for replica, best in enumerate(found.best_epoch)] == [3, 3, 3]
    assert all(each["w"].abs().item() < 0.06 for each in found.parameters)
    checkpoints = [Checkpoint(tmp_path, name, interval=0) for name in ("one", "six", "three")]
    for epochs in (5, 6, 9, 50):  # cut again and again, as a changed number of epochs would not be outside a test
        resumed = train_line([1, 6, 3], checkpoints, epochs=epochs, patience=3)
    assert resumed.best_epoch == found.best_epoch
    torch.testing.assert_close(resumed.parameters, found.parameters)


def test_a_seed_learns_the_same_whatever_else_is_trained() -> None:
    """On turned images, drawn by seed, and past the seeding of objects."""

    def learned(seeds: list[int]) -> list[dict[str, torch.Tensor]]:
        run, data = small_run(), squares()
        turned = AugmentationParams(rotation=45.0, shift=1.0, whole_pixels=False)
        parts = data.part("train"), data.part("validation")
        return train(Task(lambda: build_model(run, SIZE), training(epochs=3), turned, *parts), seeds, CPU).parameters

    torch.manual_seed(99)
    expected = torch.rand(3)
    torch.manual_seed(99)
    alone, among = learned([7]), learned([5, 7])
    assert torch.equal(torch.rand(3), expected), "the global state is left alone"
    torch.testing.assert_close(among[1], alone[0])
    assert any((among[0][name] - values).abs().max() > 1e-3 for name, values in alone[0].items()), "the seeds differ"


def test_gradients_are_shortened_and_not_turned() -> None:
    gradients = [torch.tensor([3.0, 0.0]), torch.tensor([[4.0]])]
    assert clip(gradients, 1.0).item() == pytest.approx(5.0), "the norm before"
    assert gradients[0].tolist() == pytest.approx([0.6, 0.0])
    assert gradients[1].item() == pytest.approx(0.8)
    assert clip(gradients, 2.0).item() == pytest.approx(1.0)
    assert gradients[1].item() == pytest.approx(0.8), "a shorter one is left alone"
    nothing = [torch.zeros(2, 3)]
    clip(nothing, 1.0)
    assert nothing[0].tolist() == [[0.0] * 3] * 2


def test_training_clips_before_it_steps() -> None:
    """Against Adam's 1e-8 a gradient of 1e-12 hardly counts, where one of 1 moves w by the step size."""
    free = train_line([0], epochs=1, gradient_clip=10.0)
    clipped = train_line([0], epochs=1, gradient_clip=1e-12)
    assert free.parameters[0]["w"].item() == pytest.approx(0.04)
    assert clipped.parameters[0]["w"].item() == pytest.approx(-0.06, abs=1e-4)
    assert clipped.history["train_gradient_norm"].item() == pytest.approx(1), "what is recorded is the norm before"


FROZEN = ["M", "gamma", "template_weights"]


def test_training_starts_where_it_is_told_and_leaves_what_is_frozen() -> None:
    """Seeding of the objects, which sets M before the second epoch, counts as training."""
    run, data = small_run(), squares()
    first = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        first.append({name: value.detach() for name, value in build_model(run, SIZE).named_parameters()})
    start = [{name: value + 0.01 for name, value in each.items() if name != "embed.weight"} for each in first]
    parts = data.part("train"), data.part("validation")
    no_step = training(epochs=2, learning_rate=1e-30, final_learning_rate=1e-30)
    still, moved = (
        Task(lambda: build_model(run, SIZE), settings, STILL, *parts) for settings in (no_step, training(epochs=2))
    )
    found = train(moved, [3, 4], CPU, start=start, frozen=FROZEN).parameters
    unmoved = train(still, [3, 4], CPU, start=start, frozen=FROZEN).parameters
    for replica in (0, 1):
        for name in FROZEN:
            assert torch.equal(found[replica][name], start[replica][name]), name
        for name in ("part_head.2.bias", "embed.weight", "c_excess"):
            assert not torch.equal(found[replica][name], start[replica].get(name, first[replica][name]))
        torch.testing.assert_close(unmoved[replica]["part_head.2.bias"], start[replica]["part_head.2.bias"])
        torch.testing.assert_close(unmoved[replica]["embed.weight"], first[replica]["embed.weight"])


def test_a_model_is_given_training_images_before_an_epoch() -> None:
    seen: list[float] = []

    class Watching(Line):
        def beginning_images(self, epoch: int) -> int:
            return 2 if epoch == 1 else 0

        def begin_epoch(self, images: torch.Tensor) -> None:
            seen.append(images.mean().item())
            with torch.no_grad():
                self.w.fill_(0.25)

    found = train_line([0, 1], epochs=3, model=Watching)
    assert seen == [1.0, 1.0]
    assert found.history["train_w"].tolist() == pytest.approx([-0.06, 0.25, 0.35, -0.16, 0.25, 0.35])


def test_a_term_that_is_not_finite_stops_training_by_name_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, "abc", interval=0)
    with pytest.raises(UserError) as caught:
        train_line([0], epochs=5, steps=4, checkpoints=[checkpoint], model=lambda: Line(bad_from=2.5))
    message = str(caught.value)
    assert "epoch 3, step 3: " in message, "counted from one"
    assert "bad_term" in message
    assert "good_term" not in message
    assert str(checkpoint.path) in message
    loaded = Checkpoint(tmp_path, "abc").load("cpu")
    assert loaded is not None
    assert loaded[1]["epoch"] == 2
    assert all(tensor.isfinite().all() for tensor in loaded[0].values())


def test_a_validation_that_is_not_finite_stops_training_too(tmp_path: Path) -> None:
    """The last step of an epoch can spoil the weights: no checkpoint may keep them as if they were good."""
    # Three validation images in batches of two: only validation ever sees one image alone.
    checkpoint = Checkpoint(tmp_path, "abc", interval=0)
    with pytest.raises(UserError, match=r"epoch 1, validation: .*bad_term") as caught:
        train_line([0], epochs=5, checkpoints=[checkpoint], model=lambda: Line(bad_from=1.0, bad_for=1))
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in str(caught.value), "no checkpoint is there to be named"


BATCH_NORM = {"activation": "bayes", "batch_norm": True, "saving": None}
"""Of matrix capsules, with statistics that are measured after each epoch."""


@pytest.mark.parametrize(
    ("variant", "model", "changes"),
    [
        ("generative", {}, {"optimiser": "rmsprop", "averaging": 0.2}),
        ("scae", {}, {"optimiser": "rmsprop"}),
        ("cnn", {"mixup": 0.3}, {}),
        ("matrix_capsules", BATCH_NORM, {"averaging": 0.2}),
    ],
)
def test_a_training_cut_between_epochs_goes_on_as_if_nothing_had_been(
    tmp_path: Path, variant: str, model: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Cut by an exception in the callback of epoch 2; what a kill leaves in mid-epoch is tested with real kills."""
    size = SCAE_SIZE if variant == "scae" else SIZE
    run, data = small_run(variant, model=model), squares(size=size)
    images, validation = data.part("train"), data.part("validation")
    turned = AugmentationParams(rotation=30.0, shift=1.0, whole_pixels=False)
    augmentation = run.augmentation if isinstance(run.augmentation, CropParams) else turned
    settings = training(epochs=4, **changes)

    def go(checkpoint: Checkpoint | None, on_epoch: Any = print) -> Trained:
        task = Task(lambda: build_model(run, size), settings, augmentation, images, validation)
        return train(task, [3], CPU, checkpoints=checkpoint and [checkpoint], on_epoch=on_epoch)

    class CutError(Exception):
        pass

    def cut(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise CutError

    whole = go(None)
    with pytest.raises(CutError):
        go(Checkpoint(tmp_path, "k", interval=0), cut)
    epochs: list[float] = []
    resumed = go(Checkpoint(tmp_path, "k", interval=0), lambda row: epochs.append(row["epoch"]))
    assert epochs == [1, 2, 3, 4], "what the checkpoint brings back is told again"
    for name, weights in whole.parameters[0].items():
        assert torch.equal(resumed.parameters[0][name], weights), name
    measured = [column for column in whole.history.columns if column != "images_per_second"]
    assert resumed.history[measured].equals(whole.history[measured])
    assert resumed.best_epoch == whole.best_epoch


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


def test_a_training_on_random_crops_is_measured_on_the_middle_crop() -> None:
    run, data = small_run("cnn"), squares()
    crops = run.augmentation.model_copy(update={"gamma": 1.0})
    parts = data.part("train"), data.part("validation")
    found = train(Task(lambda: build_model(run, 10), training(epochs=1), crops, *parts), [0], CPU)
    model = build_model(run, 10).eval()
    model.load_state_dict(found.parameters[0])
    images, labels = (torch.from_numpy(each) for each in parts[1])
    middle = images[..., 1:11, 1:11].float() / 255
    loss, _ = model(middle, torch.zeros(12, model.noise_size), torch.tensor(1.0), labels)
    assert found.history["validation_loss"].item() == pytest.approx(loss.item(), rel=1e-5)


def test_watched_images_are_measured_like_those_of_validation_and_decide_nothing() -> None:
    run, data = small_run("cnn"), squares()

    def trained(**watched: Any) -> Trained:
        parts = data.part("train"), data.part("validation")
        return train(Task(lambda: build_model(run, 10), training(), run.augmentation, *parts, watched), [0, 1], CPU)

    alone, beside = trained(), trained(same=data.part("validation"), other=data.part("test"))
    torch.testing.assert_close(alone.parameters, beside.parameters)
    history = beside.history
    np.testing.assert_allclose(history["same_loss"], history["validation_loss"], rtol=1e-5)
    np.testing.assert_allclose(history["same_accuracy"], history["validation_accuracy"], rtol=1e-5)
    assert (abs(history["other_loss"] - history["validation_loss"]) > 1e-4).all()
    assert not [name for name in alone.history.columns if name.startswith("same")]
