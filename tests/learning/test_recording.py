"""A recorded step gives what the step gives, or is not used. The recorder here stands for a GPU's."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from small import SCAE_SIZE, SIZE, small_run, squares, training
from torch import Tensor

from pipeline.learning import gradient
from pipeline.learning.gradient import Task, Trained, train
from pipeline.learning.recording import Named, Recorded, Recording, Step
from pipeline.learning.replicas import Replicas
from pipeline.systems import build_model

VARIANTS = ["generative", "generative, any slot", "vae", "scae", "capsnet", "matrix_capsules", "cnn"]
CROP = 10


def written_down(step: Step, inputs: Sequence[Tensor]) -> Recording:
    """Does the step again on the same inputs, into the same outputs, as a CUDA graph does."""
    outputs = step(*inputs)

    def replay() -> None:
        for held, new in zip(outputs, step(*inputs), strict=True):
            for name, value in new.items():
                held[name].copy_(value)

    return Recording(replay, outputs)


class Counted:
    """w times the mean of x as gradient, and how often it was computed."""

    def __init__(self) -> None:
        self.calls, self.w = 0, torch.ones(3)

    def __call__(self, x: Tensor) -> tuple[Named, Named]:
        self.calls += 1
        return {"w": self.w * x.mean()}, {"loss": x.sum()}


def test_a_replay_reads_its_inputs_and_parameters_as_they_are_now() -> None:
    step = Counted()
    recorded = Recorded(step, written_down)
    for value in (1.0, 2.0, 3.0):
        step.w.add_(1.0)  # in place, as an optimiser does
        gradients, metrics = recorded(torch.full((4,), value))
        torch.testing.assert_close(gradients["w"], step.w * value)
        assert metrics["loss"] == pytest.approx(4 * value)


def test_results_of_a_replay_lie_where_those_of_the_last_one_lay() -> None:
    recorded = Recorded(Counted(), written_down)
    first, _ = recorded(torch.ones(4))
    second, _ = recorded(torch.ones(4) * 5)
    assert first["w"].data_ptr() == second["w"].data_ptr()


def test_inputs_of_other_shapes_are_computed() -> None:
    step = Counted()
    recorded = Recorded(step, written_down)
    recorded(torch.ones(4))
    gradients, metrics = recorded(torch.ones(7) * 2)
    assert torch.equal(gradients["w"], torch.full((3,), 2.0))
    assert metrics["loss"] == 14
    step.w = step.w.double()
    assert recorded(torch.ones(4, dtype=torch.float64))[0]["w"].dtype == torch.float64, "nor are those of other types"


def test_a_step_that_cannot_be_recorded_is_computed(caplog: pytest.LogCaptureFixture) -> None:
    tried = []

    def refuse(step: Step, inputs: Sequence[Tensor]) -> Recording:
        tried.append(inputs)
        raise RuntimeError("operation not permitted when stream is capturing")

    step = Counted()
    recorded = Recorded(step, refuse)
    with caplog.at_level(logging.WARNING):
        for value in (1.0, 2.0):
            assert torch.equal(recorded(torch.full((4,), value))[0]["w"], torch.full((3,), value))
    assert len(tried) == len(caplog.records) == 1
    assert "not permitted" in caplog.text
    assert step.calls == 1 + 2, "the first is compared with"


@pytest.mark.parametrize("kind", ["deaf", "deaf to metrics", "broken"])
def test_a_recording_that_gives_something_else_is_not_used(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def record(step: Step, inputs: Sequence[Tensor]) -> Recording:
        gradients, metrics = step(*inputs)

        def replay() -> None:  # a deaf one leaves the results of the recording
            if kind == "broken":
                gradients["w"].fill_(torch.nan)
            if kind == "deaf to metrics":
                gradients["w"].copy_(step(*inputs)[0]["w"])

        return Recording(replay, (gradients, metrics))

    recorded = Recorded(Counted(), record)
    with caplog.at_level(logging.WARNING):
        for value in (1.0, 2.0):
            assert torch.equal(recorded(torch.full((4,), value))[0]["w"], torch.full((3,), value))
    assert "gives other values" in caplog.text


def test_a_training_by_replays_ends_where_a_plain_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """With parts that are seeded, clipping, validation between epochs, and weights that are kept."""
    run, data = small_run(), squares()
    run = run.model_copy(update={"model": run.model.model_copy(update={"seeding_epoch": 1})})

    def trained() -> Trained:
        parts = data.part("train"), data.part("validation")
        values = training(epochs=3, gradient_clip=0.5)
        task = Task(lambda: build_model(run, SIZE), values, run.augmentation, *parts)
        return train(task, [3, 4], torch.device("cpu"))

    plain = trained()
    used = []

    def replayed(step: Step, device: torch.device) -> Step:
        used.append(Recorded(step, written_down))
        return used[-1]

    monkeypatch.setattr(gradient, "recorded", replayed)
    found = trained()
    assert all(each.recording for each in used)
    torch.testing.assert_close(found.parameters, plain.parameters)
    told = ["train_loss", "validation_loss", "train_gradient_norm"]
    np.testing.assert_allclose(found.history[told], plain.history[told], rtol=1e-5)


def replicas_of(variant: str, device: torch.device) -> tuple[Replicas, list[tuple[Tensor, ...]]]:
    """Two replicas, or one where they cannot be stacked, and the inputs of three steps."""
    name, _, slots = variant.partition(", ")
    run = small_run(name)
    if slots:
        run = run.model_copy(update={"model": run.model.model_copy(update={"slots": "any"})})
    size = {"scae": SCAE_SIZE, "matrix_capsules": CROP, "cnn": CROP}.get(variant, SIZE)
    stackable = build_model(run, size).stackable
    replicas = Replicas(lambda: build_model(run, size), [3, 4] if stackable else [3], device)
    n, generator = len(replicas), torch.Generator(device).manual_seed(0)
    inputs = []
    for step in range(3):
        images = torch.rand(n, 6, 1, size, size, generator=generator, device=device)
        noise = torch.stack([replicas.skeleton.draw_noise((6,), generator, device) for _ in range(n)])
        labels = (torch.arange(6, device=device) + step).expand(n, 6) % 3
        inputs.append((images, noise, torch.tensor(0.1 * step, device=device), labels))
    return replicas, inputs


def check_steps(replicas: Replicas, recorded: Recorded, inputs: list[tuple[Tensor, ...]]) -> None:
    for each in inputs:
        expected, found = replicas.gradients(*each), recorded(*each)
        for wanted, given in zip(expected, found, strict=True):
            for name, value in wanted.items():
                torch.testing.assert_close(given[name], value, rtol=1e-3, atol=1e-4)
        for value in replicas.parameters.values():
            value.mul_(0.99)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_models_step_can_be_done_again_in_place(variant: str) -> None:
    replicas, inputs = replicas_of(variant, torch.device("cpu"))
    recorded = Recorded(replicas.gradients, written_down)
    check_steps(replicas, recorded, inputs)
    assert recorded.recording is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_gpu_replays_every_models_step(variant: str) -> None:
    replicas, inputs = replicas_of(variant, torch.device("cuda"))
    recorded = Recorded(replicas.gradients)
    check_steps(replicas, recorded, inputs)
    assert recorded.recording is not None
